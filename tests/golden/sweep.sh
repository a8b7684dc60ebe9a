#!/bin/bash
#SBATCH --job-name=a.out
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --array=0-3%3
#SBATCH --chdir=/submitted/from
# a.out on site slurm: 8 ranks by srun. Rendered by hpcrun VERSION.

# ---- The run: its record, its signals and how each rank starts are in hpcrun's bash library ----
export HPCRUN_TASK=$SLURM_ARRAY_TASK_ID
export HPCRUN_RUN_DIR=/runs/RUN/RUN.$HPCRUN_TASK
hpcrun_library=/hpcrun/shell
[[ -O /runs/RUN && -O /runs/RUN/shell/job.bash ]] && hpcrun_library=/runs/RUN/shell  # the sweep's own copy
builtin source "$hpcrun_library/job.bash" VERSION slurm --python /venv/bin/python --sweep || exit 1

# ---- Environment ----
export PATH=/venv/bin${PATH:+:$PATH}
export MPIR_CVAR_CH4_NETMOD=ofi
export HPCRUN_NTASKS=8 HPCRUN_SITE_NAME=slurm HPCRUN_LAUNCHER=srun HPCRUN_MPI_TYPE=pmi2 HPCRUN_GPUS_PER_NODE=0 HPCRUN_LOG_LEVEL=WARNING
export PYTHONUNBUFFERED=1 TF_CPP_MIN_LOG_LEVEL="${TF_CPP_MIN_LOG_LEVEL:-1}"
export KEY='it'"'"'s'

# ---- A sweep: each task has its own values and run directory ----
case $HPCRUN_TASK in
  0) hpcrun_program=(./a.out 'two words' --lr=0.1 --seed=1) ;;
  1) hpcrun_program=(./a.out 'two words' --lr=0.1 --seed=2) ;;
  2) hpcrun_program=(./a.out 'two words' --lr=0.01 --seed=1) ;;
  3) hpcrun_program=(./a.out 'two words' --lr=0.01 --seed=2) ;;
  *) hpcrun_fail "this sweep has no task $HPCRUN_TASK" ;;
esac

# ---- Launch ----
hpcrun_hostfile plain --nodes 2 --ntasks-per-node 4
hpcrun_launch --launcher srun --ranks 8 --stop-signal USR2 --rank SLURM_PROCID --local-rank SLURM_LOCALID \
  --local-ranks SLURM_STEP_TASKS_PER_NODE --wired 'PMI_RANK PMI_FD PMIX_RANK' --cpu-bind cores -- \
  srun --ntasks=8 --nodes=2 --ntasks-per-node=4 --mpi=pmi2 --kill-on-bad-exit=1 @rank \
  "${hpcrun_program[@]}"
