#!/bin/bash
#SBATCH --job-name=resnet50
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --gpus-per-node=4
#SBATCH --chdir=/submitted/from
# resnet50 on site own: 8 ranks by srun. Rendered by hpcrun VERSION.

# ---- The run: its record, its signals and how each rank starts are in hpcrun's bash library ----
export HPCRUN_RUN_DIR=/runs/RUN
hpcrun_library=/hpcrun/shell
[[ -O $HPCRUN_RUN_DIR && -O $HPCRUN_RUN_DIR/shell/job.bash ]] && hpcrun_library=$HPCRUN_RUN_DIR/shell  # this run's own copy
builtin source "$hpcrun_library/job.bash" VERSION slurm --python /venv/bin/python || exit 1

# ---- Modules ----
type module >/dev/null 2>&1 || source /etc/profile
type module >/dev/null 2>&1 || hpcrun_fail "there is no command module, even after /etc/profile (site key modules)"
hpcrun_module load apptainer

# ---- Environment ----
export PATH=/venv/bin${PATH:+:$PATH}
export MPIR_CVAR_CH4_NETMOD=ofi
export NCCL_DEBUG=WARN
export HPCRUN_DATA_IMAGENET="${SCRATCH?site key data.imagenet names it}"/imagenet
export HPCRUN_NTASKS=8 HPCRUN_SITE_NAME=own HPCRUN_LAUNCHER=srun HPCRUN_MPI_TYPE=pmi2 HPCRUN_GPUS_PER_NODE=4 HPCRUN_LOG_LEVEL=WARNING
export PYTHONUNBUFFERED=1 TF_CPP_MIN_LOG_LEVEL="${TF_CPP_MIN_LOG_LEVEL:-1}"
export KEY='it'"'"'s'

# ---- The container ----
hpcrun_image="${PROJECT?the table container of the site file names it}"/images/tf.sif
hpcrun_binds=(
  /runs/RUN:/runs/RUN
  /submitted/from:/submitted/from
  /hpcrun/workloads/resnet50:/hpcrun/workloads/resnet50
  "${HOME?the table container of the site file names it}"/keys:/keys:ro
  /opt/slurm:/opt/slurm
)
hpcrun_data=("$HPCRUN_DATA_IMAGENET")
hpcrun_variables=(  # only for the container
  PYTHONNOUSERSITE=1  # packages in the home folder are for the host's Python
  PYTHONPATH=/hpcrun
  PYTHONPATH=/hpcrun:/keys/packages
  KEY='it'"'"'s'
)
hpcrun_names=(PYTHONUNBUFFERED XLA_FLAGS TF_CPP_MIN_LOG_LEVEL ROCR_VISIBLE_DEVICES)
hpcrun_families=(HPCRUN_ SLURM_ PMI PALS_ OMPI_ PRTE_ MPI I_MPI_ NCCL_ RCCL_ UCX_ FI_ OMP_)
hpcrun_enter_container --image-file --bind-hpcrun --bind --bind --prefix APPTAINER --python python3 --runtime apptainer -- \
  apptainer exec --pwd=/submitted/from --rocm --no-home

# ---- Launch ----
hpcrun_hostfile plain --nodes 2 --ntasks-per-node 4
hpcrun_launch --launcher srun --ranks 8 --stop-signal USR2 --rank SLURM_PROCID --local-rank SLURM_LOCALID \
  --local-ranks SLURM_STEP_TASKS_PER_NODE --wired 'PMI_RANK PMI_FD PMIX_RANK' --cpu-bind cores \
  --visible ROCR_VISIBLE_DEVICES --gpus 0,1,2,3 --gpus-per-rank 1 --in-container python3 -- \
  srun --ntasks=8 --nodes=2 --ntasks-per-node=4 --mpi=pmi2 --kill-on-bad-exit=1 @rank \
  python3 /hpcrun/workloads/resnet50/train.py --synthetic-data
