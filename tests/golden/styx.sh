#!/bin/bash
#SBATCH --job-name=resnet50
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --gpus-per-node=4
#SBATCH --chdir=/submitted/from
# resnet50 on site styx: 8 ranks by mpiexec. Rendered by hpcrun VERSION.

# ---- The run: its record, its signals and how each rank starts are in hpcrun's bash library ----
export HPCRUN_RUN_DIR=/runs/RUN
hpcrun_library=/hpcrun/shell
[[ -O $HPCRUN_RUN_DIR && -O $HPCRUN_RUN_DIR/shell/job.bash ]] && hpcrun_library=$HPCRUN_RUN_DIR/shell  # this run's own copy
builtin source "$hpcrun_library/job.bash" VERSION slurm --python /venv/bin/python || exit 1

# ---- Environment ----
export PATH=/venv/bin${PATH:+:$PATH}
export LD_LIBRARY_PATH=/opt/GPI/lib64${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
[ -z "${GASPICXX_INSTALLATION_PATH-}" ] || export LD_LIBRARY_PATH="${GASPICXX_INSTALLATION_PATH}"${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
[ -z "${CONDA_PREFIX-}" ] || export LD_LIBRARY_PATH="${CONDA_PREFIX}"/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export MPIR_CVAR_CH4_NETMOD=ofi
export HPCRUN_DATA_IMAGENET=/home/DATA/PUBLIC_DATA/ImageNet
export HPCRUN_NTASKS=8 HPCRUN_SITE_NAME=styx HPCRUN_LAUNCHER=mpiexec HPCRUN_GPUS_PER_NODE=4 HPCRUN_LOG_LEVEL=WARNING
export PYTHONUNBUFFERED=1 TF_CPP_MIN_LOG_LEVEL="${TF_CPP_MIN_LOG_LEVEL:-1}"
export KEY='it'"'"'s'

# ---- CUDA's files for XLA and TensorFlow ----
hpcrun_cuda \
  '--libdevice=${CONDA_PREFIX}/nvvm/libdevice/libdevice.10.bc' \
  '--libdevice=${CONDA_PREFIX}/lib/nvvm/libdevice/libdevice.10.bc' \
  '--libdevice=${CONDA_PREFIX}/lib/libdevice.10.bc' &&
  export XLA_FLAGS="${XLA_FLAGS:+$XLA_FLAGS }--xla_gpu_cuda_data_dir=$HPCRUN_RUN_DIR/cuda"

# ---- Launch ----
hpcrun_hostfile hydra --nodes 2 --ntasks-per-node 4
hpcrun_launch --ignores-failures --ranks 8 --stop-signal TERM --rank PMI_RANK --local-rank MPI_LOCALRANKID \
  --local-ranks MPI_LOCALNRANKS --cpu-bind cores --visible CUDA_VISIBLE_DEVICES --gpus 0,1,2,3 \
  --gpus-per-rank 1 -- \
  mpiexec -launcher slurm -f "$HPCRUN_RUN_DIR/hostfile" -n 8 @rank \
  /venv/bin/python /hpcrun/workloads/resnet50/train.py --synthetic-data
