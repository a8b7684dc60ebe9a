#!/bin/bash
#SBATCH --job-name=resnet50
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=7
#SBATCH --time=1:00:00
#SBATCH --partition=batch
#SBATCH --account=stf007
#SBATCH --gpus-per-task=1
#SBATCH --chdir=/submitted/from
#SBATCH --gpu-bind=closest
#SBATCH --network=disable_rdzv_get
# resnet50 on site frontier: 8 ranks by srun. Rendered by hpcrun VERSION.

# ---- The run: its record, its signals and how each rank starts are in hpcrun's bash library ----
export HPCRUN_RUN_DIR=/runs/RUN
hpcrun_library=/hpcrun/shell
[[ -O $HPCRUN_RUN_DIR && -O $HPCRUN_RUN_DIR/shell/job.bash ]] && hpcrun_library=$HPCRUN_RUN_DIR/shell  # this run's own copy
builtin source "$hpcrun_library/job.bash" VERSION slurm --python /venv/bin/python || exit 1

# ---- Modules ----
type module >/dev/null 2>&1 || source /etc/profile
type module >/dev/null 2>&1 || hpcrun_fail "there is no command module, even after /etc/profile (site key modules)"
hpcrun_module load PrgEnv-gnu/8.7.0
hpcrun_module load cpe/26.03
hpcrun_module load miniforge3/23.11.0-0
hpcrun_module load rocm/7.1.1
hpcrun_module load rccl-net-plugin
hpcrun_module load craype-accel-amd-gfx90a

# ---- Environment ----
export PATH=/venv/bin${PATH:+:$PATH}
[ -z "${CRAY_LD_LIBRARY_PATH-}" ] || export LD_LIBRARY_PATH="${CRAY_LD_LIBRARY_PATH}"${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export NCCL_SOCKET_IFNAME=hsn0,hsn1,hsn2,hsn3
export MIOPEN_USER_DB_PATH=/tmp/my-miopen-cache
export MIOPEN_CUSTOM_CACHE_DIR=/tmp/my-miopen-cache
export MPICH_GPU_SUPPORT_ENABLED=0
export HPCRUN_NTASKS=8 HPCRUN_SITE_NAME=frontier HPCRUN_LAUNCHER=srun HPCRUN_MPI_TYPE='' HPCRUN_GPUS_PER_NODE=4 HPCRUN_LOG_LEVEL=WARNING
export PYTHONUNBUFFERED=1 TF_CPP_MIN_LOG_LEVEL="${TF_CPP_MIN_LOG_LEVEL:-1}"
export KEY='it'"'"'s'

# ---- Launch ----
hpcrun_hostfile plain --nodes 2 --ntasks-per-node 4
hpcrun_launch --launcher srun --ranks 8 --stop-signal USR2 --rank SLURM_PROCID --local-rank SLURM_LOCALID \
  --local-ranks SLURM_STEP_TASKS_PER_NODE --wired 'PMI_RANK PMI_FD PMIX_RANK' --cpu-bind cores \
  --visible ROCR_VISIBLE_DEVICES --gpus 0,1,2,3 --gpus-per-rank 1 -- \
  srun --ntasks=8 --nodes=2 --ntasks-per-node=4 --cpus-per-task=7 --kill-on-bad-exit=1 @rank \
  /venv/bin/python /hpcrun/workloads/resnet50/train.py --synthetic-data
