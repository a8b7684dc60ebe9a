#!/bin/bash
#SBATCH --job-name=a.out
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --time=8:00:00
#SBATCH --signal=B:USR2@120
#SBATCH --requeue
#SBATCH --chdir=/submitted/from
# a.out on site slurm: 2 ranks by srun. Rendered by hpcrun VERSION.

# ---- The run: its record, its signals and how each rank starts are in hpcrun's bash library ----
export HPCRUN_RUN_DIR=/runs/RUN
hpcrun_library=/hpcrun/shell
[[ -O $HPCRUN_RUN_DIR && -O $HPCRUN_RUN_DIR/shell/job.bash ]] && hpcrun_library=$HPCRUN_RUN_DIR/shell  # this run's own copy
builtin source "$hpcrun_library/job.bash" VERSION slurm --python /venv/bin/python --max-requeue 3 || exit 1

# ---- Environment ----
export PATH=/venv/bin${PATH:+:$PATH}
export MPIR_CVAR_CH4_NETMOD=ofi
export HPCRUN_NTASKS=2 HPCRUN_SITE_NAME=slurm HPCRUN_LAUNCHER=srun HPCRUN_MPI_TYPE=pmi2 HPCRUN_GPUS_PER_NODE=0 HPCRUN_LOG_LEVEL=WARNING
export PYTHONUNBUFFERED=1 TF_CPP_MIN_LOG_LEVEL="${TF_CPP_MIN_LOG_LEVEL:-1}"
export KEY='it'"'"'s'

# ---- Launch ----
hpcrun_hostfile plain --nodes 2 --ntasks-per-node 1
hpcrun_launch --launcher srun --ranks 2 --stop-signal USR2 --rank SLURM_PROCID --local-rank SLURM_LOCALID \
  --local-ranks SLURM_STEP_TASKS_PER_NODE --wired 'PMI_RANK PMI_FD PMIX_RANK' --cpu-bind cores -- \
  srun --ntasks=2 --nodes=2 --ntasks-per-node=1 --mpi=pmi2 --kill-on-bad-exit=1 @rank \
  ./a.out 'two words'
