#!/bin/bash
#SBATCH --job-name=resnet50
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --gpus-per-node=4
#SBATCH --chdir=/submitted/from
# resnet50 on site slurm: 8 ranks by srun. Rendered by hpcrun VERSION.

# ---- The run: its record, its signals and how each rank starts are in hpcrun's bash library ----
export HPCRUN_RUN_DIR=/runs/RUN
hpcrun_library=/hpcrun/shell
[[ -O $HPCRUN_RUN_DIR && -O $HPCRUN_RUN_DIR/shell/job.bash ]] && hpcrun_library=$HPCRUN_RUN_DIR/shell  # this run's own copy
builtin source "$hpcrun_library/job.bash" VERSION slurm --python /venv/bin/python || exit 1

# ---- Environment ----
export PATH=/venv/bin${PATH:+:$PATH}
export MPIR_CVAR_CH4_NETMOD=ofi
export HPCRUN_NTASKS=8 HPCRUN_SITE_NAME=slurm HPCRUN_LAUNCHER=srun HPCRUN_MPI_TYPE=pmi2 HPCRUN_GPUS_PER_NODE=4 HPCRUN_LOG_LEVEL=WARNING
export PYTHONUNBUFFERED=1 TF_CPP_MIN_LOG_LEVEL="${TF_CPP_MIN_LOG_LEVEL:-1}"
export KEY='it'"'"'s'

# ---- CUDA's files for XLA and TensorFlow ----
[ -e /dev/nvidiactl ] && hpcrun_cuda &&
  export XLA_FLAGS="${XLA_FLAGS:+$XLA_FLAGS }--xla_gpu_cuda_data_dir=$HPCRUN_RUN_DIR/cuda"

# ---- Launch ----
hpcrun_hostfile plain --nodes 2 --ntasks-per-node 4
hpcrun_launch --launcher srun --ranks 8 --stop-signal USR2 --rank SLURM_PROCID --local-rank SLURM_LOCALID \
  --local-ranks SLURM_STEP_TASKS_PER_NODE --wired 'PMI_RANK PMI_FD PMIX_RANK' --cpu-bind cores \
  --visible CUDA_VISIBLE_DEVICES --gpus 0,1,2,3 --gpus-per-rank 1 -- \
  srun --ntasks=8 --nodes=2 --ntasks-per-node=4 --mpi=pmi2 --kill-on-bad-exit=1 @rank \
  /venv/bin/python /hpcrun/workloads/resnet50/train.py --synthetic-data
