#!/bin/bash
#SBATCH --job-name=resnet50
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=3
#SBATCH --time=1:00:00
#SBATCH --partition=gpu-a100
#SBATCH --chdir=/submitted/from
# resnet50 on site lonestar6: 6 ranks by ibrun. Rendered by hpcrun VERSION.

# ---- The run: its record, its signals and how each rank starts are in hpcrun's bash library ----
export HPCRUN_RUN_DIR=/runs/RUN
hpcrun_library=/hpcrun/shell
[[ -O $HPCRUN_RUN_DIR && -O $HPCRUN_RUN_DIR/shell/job.bash ]] && hpcrun_library=$HPCRUN_RUN_DIR/shell  # this run's own copy
builtin source "$hpcrun_library/job.bash" VERSION slurm --python /venv/bin/python || exit 1

# ---- Modules ----
type module >/dev/null 2>&1 || source /etc/profile
type module >/dev/null 2>&1 || hpcrun_fail "there is no command module, even after /etc/profile (site key modules)"
hpcrun_module load TACC
hpcrun_module load impi

# ---- Environment ----
export PATH=/venv/bin${PATH:+:$PATH}
export HPCRUN_NTASKS=6 HPCRUN_SITE_NAME=lonestar6 HPCRUN_LAUNCHER=ibrun HPCRUN_GPUS_PER_NODE=3 HPCRUN_LOG_LEVEL=WARNING
export PYTHONUNBUFFERED=1 TF_CPP_MIN_LOG_LEVEL="${TF_CPP_MIN_LOG_LEVEL:-1}"
export KEY='it'"'"'s'

# ---- CUDA's files for XLA and TensorFlow ----
[ -e /dev/nvidiactl ] && hpcrun_cuda &&
  export XLA_FLAGS="${XLA_FLAGS:+$XLA_FLAGS }--xla_gpu_cuda_data_dir=$HPCRUN_RUN_DIR/cuda"

# ---- Launch ----
hpcrun_hostfile plain --nodes 2 --ntasks-per-node 3
hpcrun_launch --ranks 6 --stop-signal TERM --rank 'PMI_RANK OMPI_COMM_WORLD_RANK MV2_COMM_WORLD_RANK' --local-rank 'MPI_LOCALRANKID OMPI_COMM_WORLD_LOCAL_RANK MV2_COMM_WORLD_LOCAL_RANK' \
  --local-ranks 'MPI_LOCALNRANKS OMPI_COMM_WORLD_LOCAL_SIZE MV2_COMM_WORLD_LOCAL_SIZE' --cpu-bind cores \
  --visible CUDA_VISIBLE_DEVICES --gpus 0,1,2 --gpus-per-rank 1 -- \
  ibrun -n 6 -o 0 @rank \
  /venv/bin/python /hpcrun/workloads/resnet50/train.py --synthetic-data
