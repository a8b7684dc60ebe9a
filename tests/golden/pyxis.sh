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

# ---- Environment ----
export PATH=/venv/bin${PATH:+:$PATH}
export MPIR_CVAR_CH4_NETMOD=ofi
export HPCRUN_DATA_IMAGENET=/data/imagenet
export HPCRUN_NTASKS=8 HPCRUN_SITE_NAME=own HPCRUN_LAUNCHER=srun HPCRUN_MPI_TYPE=pmi2 HPCRUN_GPUS_PER_NODE=4 HPCRUN_LOG_LEVEL=WARNING
export PYTHONUNBUFFERED=1 TF_CPP_MIN_LOG_LEVEL="${TF_CPP_MIN_LOG_LEVEL:-1}"
export KEY='it'"'"'s'

# ---- The container ----
hpcrun_image='nvcr.io#nvidia/tensorflow:24.03-tf2-py3'
hpcrun_binds=(
  /runs/RUN:/runs/RUN
  /submitted/from:/submitted/from
  /hpcrun/workloads/resnet50:/hpcrun/workloads/resnet50
  "${SCRATCH?the table container of the site file names it}":/scratch
)
hpcrun_data=("$HPCRUN_DATA_IMAGENET")
hpcrun_variables=(  # only for the container
  PYTHONNOUSERSITE=1  # packages in the home folder are for the host's Python
  PYTHONPATH=/hpcrun
  KEY='it'"'"'s'
)
hpcrun_names=(PYTHONUNBUFFERED XLA_FLAGS TF_CPP_MIN_LOG_LEVEL MPIR_CVAR_CH4_NETMOD HPCRUN_DATA_IMAGENET HPCRUN_RUN_DIR HPCRUN_JOB_ID HPCRUN_NTASKS HPCRUN_SITE_NAME HPCRUN_LAUNCHER HPCRUN_MPI_TYPE HPCRUN_GPUS_PER_NODE HPCRUN_LOG_LEVEL CUDA_VISIBLE_DEVICES)
hpcrun_enter_pyxis --image-file --bind-hpcrun -- \
  --container-workdir=/submitted/from --no-container-mount-home --no-container-entrypoint

# ---- Launch ----
hpcrun_hostfile plain --nodes 2 --ntasks-per-node 4
hpcrun_launch --launcher srun --ranks 8 --stop-signal USR2 --rank SLURM_PROCID --local-rank SLURM_LOCALID \
  --local-ranks SLURM_STEP_TASKS_PER_NODE --wired 'PMI_RANK PMI_FD PMIX_RANK' --cpu-bind cores \
  --visible CUDA_VISIBLE_DEVICES --gpus 0,1,2,3 --gpus-per-rank 1 --no-packages -- \
  env --unset=LD_LIBRARY_PATH --unset=PYTHONPATH "${hpcrun_variables[@]}" \
  srun --ntasks=8 --nodes=2 --ntasks-per-node=4 --mpi=pmi2 --kill-on-bad-exit=1 "${hpcrun_container[@]}" @rank \
  python3 /hpcrun/workloads/resnet50/train.py --synthetic-data
