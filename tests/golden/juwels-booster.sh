#!/bin/bash
#SBATCH --job-name=resnet50
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=12
#SBATCH --partition=booster
#SBATCH --account=training2600
#SBATCH --gres=gpu:4
#SBATCH --chdir=/submitted/from
# resnet50 on site juwels-booster: 8 ranks by srun. Rendered by hpcrun VERSION.

# ---- The run: its record, its signals and how each rank starts are in hpcrun's bash library ----
export HPCRUN_RUN_DIR=/runs/RUN
hpcrun_library=/hpcrun/shell
[[ -O $HPCRUN_RUN_DIR && -O $HPCRUN_RUN_DIR/shell/job.bash ]] && hpcrun_library=$HPCRUN_RUN_DIR/shell  # this run's own copy
builtin source "$hpcrun_library/job.bash" VERSION slurm --python /venv/bin/python || exit 1

# ---- Modules ----
type module >/dev/null 2>&1 || source /etc/profile
type module >/dev/null 2>&1 || hpcrun_fail "there is no command module, even after /etc/profile (site key modules)"
hpcrun_module load Stages/2025
hpcrun_module load GCC/13.3.0
hpcrun_module load OpenMPI/5.0.5
hpcrun_module load CUDA/12
hpcrun_module load MPI-settings/CUDA
hpcrun_module load Python/3.12.3
hpcrun_module load mpi4py

# ---- Environment ----
export PATH=/venv/bin${PATH:+:$PATH}
export NCCL_SOCKET_IFNAME=ib0
export HPCRUN_NTASKS=8 HPCRUN_SITE_NAME=juwels-booster HPCRUN_LAUNCHER=srun HPCRUN_MPI_TYPE=pspmix HPCRUN_GPUS_PER_NODE=4 HPCRUN_LOG_LEVEL=WARNING
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
  srun --ntasks=8 --nodes=2 --ntasks-per-node=4 --cpus-per-task=12 --mpi=pspmix --kill-on-bad-exit=1 @rank \
  /venv/bin/python /hpcrun/workloads/resnet50/train.py --synthetic-data
