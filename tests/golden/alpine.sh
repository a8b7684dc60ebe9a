#!/bin/bash
#SBATCH --job-name=resnet50
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=3
#SBATCH --cpus-per-task=21
#SBATCH --time=1:00:00
#SBATCH --partition=aa100
#SBATCH --qos=gpu-normal
#SBATCH --gres=gpu:a100-40gb:3
#SBATCH --chdir=/submitted/from
# resnet50 on site alpine: 6 ranks by mpirun. Rendered by hpcrun VERSION.

# ---- The run: its record, its signals and how each rank starts are in hpcrun's bash library ----
export HPCRUN_RUN_DIR=/runs/RUN
hpcrun_library=/hpcrun/shell
[[ -O $HPCRUN_RUN_DIR && -O $HPCRUN_RUN_DIR/shell/job.bash ]] && hpcrun_library=$HPCRUN_RUN_DIR/shell  # this run's own copy
builtin source "$hpcrun_library/job.bash" VERSION slurm --python /venv/bin/python || exit 1

# ---- Modules ----
type module >/dev/null 2>&1 || source /etc/profile
type module >/dev/null 2>&1 || hpcrun_fail "there is no command module, even after /etc/profile (site key modules)"
hpcrun_module purge
hpcrun_module load gcc
hpcrun_module load openmpi

# ---- Environment ----
export PATH=/venv/bin${PATH:+:$PATH}
export HPCRUN_NTASKS=6 HPCRUN_SITE_NAME=alpine HPCRUN_LAUNCHER=mpirun HPCRUN_GPUS_PER_NODE=3 HPCRUN_LOG_LEVEL=WARNING
export PYTHONUNBUFFERED=1 TF_CPP_MIN_LOG_LEVEL="${TF_CPP_MIN_LOG_LEVEL:-1}"
export KEY='it'"'"'s'

# ---- CUDA's files for XLA and TensorFlow ----
[ -e /dev/nvidiactl ] && hpcrun_cuda &&
  export XLA_FLAGS="${XLA_FLAGS:+$XLA_FLAGS }--xla_gpu_cuda_data_dir=$HPCRUN_RUN_DIR/cuda"

# ---- Launch ----
hpcrun_hostfile openmpi --nodes 2 --ntasks-per-node 3
hpcrun_launch --hides-signals --ranks 6 --stop-signal USR2 --rank OMPI_COMM_WORLD_RANK --local-rank OMPI_COMM_WORLD_LOCAL_RANK \
  --local-ranks OMPI_COMM_WORLD_LOCAL_SIZE --cpu-bind cores --visible CUDA_VISIBLE_DEVICES --gpus 0,1,2 \
  --gpus-per-rank 1 -- \
  mpirun --bind-to none --map-by slot --hostfile "$HPCRUN_RUN_DIR/hostfile" -n 6 @rank \
  /venv/bin/python /hpcrun/workloads/resnet50/train.py --synthetic-data
