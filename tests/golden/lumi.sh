#!/bin/bash
#SBATCH --job-name=resnet50
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=7
#SBATCH --mem-per-gpu=60G
#SBATCH --partition=small-g
#SBATCH --account=project_465000000
#SBATCH --gpus-per-node=4
#SBATCH --chdir=/submitted/from
# resnet50 on site lumi: 8 ranks by srun. Rendered by hpcrun VERSION.

# ---- The run: its record, its signals and how each rank starts are in hpcrun's bash library ----
export HPCRUN_RUN_DIR=/runs/RUN
hpcrun_library=/hpcrun/shell
[[ -O $HPCRUN_RUN_DIR && -O $HPCRUN_RUN_DIR/shell/job.bash ]] && hpcrun_library=$HPCRUN_RUN_DIR/shell  # this run's own copy
builtin source "$hpcrun_library/job.bash" VERSION slurm --python /venv/bin/python || exit 1

# ---- Modules ----
type module >/dev/null 2>&1 || source /etc/profile
type module >/dev/null 2>&1 || hpcrun_fail "there is no command module, even after /etc/profile (site key modules)"
hpcrun_module load LUMI/25.03
hpcrun_module load partition/G
hpcrun_module load rocm/6.3.4
hpcrun_module load cray-python/3.11.7

# ---- Environment ----
export PATH=/venv/bin${PATH:+:$PATH}
export NCCL_SOCKET_IFNAME=hsn0,hsn1,hsn2,hsn3
export NCCL_NET_GDR_LEVEL=PHB
export MIOPEN_USER_DB_PATH=/tmp/"${USER?site key environment.MIOPEN_USER_DB_PATH names it}"-miopen-cache-"${SLURM_JOB_ID?site key environment.MIOPEN_USER_DB_PATH names it}"
export MIOPEN_CUSTOM_CACHE_DIR=/tmp/"${USER?site key environment.MIOPEN_CUSTOM_CACHE_DIR names it}"-miopen-cache-"${SLURM_JOB_ID?site key environment.MIOPEN_CUSTOM_CACHE_DIR names it}"
export HPCRUN_NTASKS=8 HPCRUN_SITE_NAME=lumi HPCRUN_LAUNCHER=srun HPCRUN_MPI_TYPE='' HPCRUN_GPUS_PER_NODE=4 HPCRUN_LOG_LEVEL=WARNING
export PYTHONUNBUFFERED=1 TF_CPP_MIN_LOG_LEVEL="${TF_CPP_MIN_LOG_LEVEL:-1}"
export KEY='it'"'"'s'

# ---- Launch ----
hpcrun_hostfile plain --nodes 2 --ntasks-per-node 4
hpcrun_launch --launcher srun --ranks 8 --stop-signal USR2 --rank SLURM_PROCID --local-rank SLURM_LOCALID \
  --local-ranks SLURM_STEP_TASKS_PER_NODE --wired 'PMI_RANK PMI_FD PMIX_RANK' --cpu-bind cores \
  --visible ROCR_VISIBLE_DEVICES --gpus 0,1,2,3 --gpus-per-rank 1 -- \
  srun --ntasks=8 --nodes=2 --ntasks-per-node=4 --cpus-per-task=7 --kill-on-bad-exit=1 @rank \
  /venv/bin/python /hpcrun/workloads/resnet50/train.py --synthetic-data
