#!/bin/bash
#SBATCH --job-name=a.out
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --chdir=/submitted/from
# a.out on site own: 2 ranks by srun. Rendered by hpcrun VERSION.

# ---- The run: its record, its signals and how each rank starts are in hpcrun's bash library ----
export HPCRUN_RUN_DIR=/runs/RUN
hpcrun_library=/hpcrun/shell
[[ -O $HPCRUN_RUN_DIR && -O $HPCRUN_RUN_DIR/shell/job.bash ]] && hpcrun_library=$HPCRUN_RUN_DIR/shell  # this run's own copy
builtin source "$hpcrun_library/job.bash" VERSION slurm --python /venv/bin/python || exit 1

# ---- Environment ----
export PATH=/venv/bin${PATH:+:$PATH}
export MPIR_CVAR_CH4_NETMOD=ofi
export HPCRUN_NTASKS=2 HPCRUN_SITE_NAME=own HPCRUN_LAUNCHER=srun HPCRUN_MPI_TYPE=pmi2 HPCRUN_GPUS_PER_NODE=0 HPCRUN_LOG_LEVEL=WARNING
export PYTHONUNBUFFERED=1 TF_CPP_MIN_LOG_LEVEL="${TF_CPP_MIN_LOG_LEVEL:-1}"
export KEY='it'"'"'s'

# ---- The node-local disk: each node copies these once, before its ranks start the program ----
hpcrun_stage "${NVME?site key local_scratch names it}"/"${USER?site key local_scratch names it}" \
  --copy '/data/two words' \
  --copy /data/labels.csv \
  --unpack images /data/images.tar.gz

# ---- The container ----
hpcrun_image=/images/tf.sif
hpcrun_binds=(
  /runs/RUN:/runs/RUN
  /submitted/from:/submitted/from
)
hpcrun_data=("${HPCRUN_STAGED%/*/*}")
hpcrun_variables=(  # only for the container
  PYTHONNOUSERSITE=1  # packages in the home folder are for the host's Python
  PYTHONPATH=/hpcrun
  KEY='it'"'"'s'
)
hpcrun_names=(PYTHONUNBUFFERED XLA_FLAGS TF_CPP_MIN_LOG_LEVEL CUDA_VISIBLE_DEVICES)
hpcrun_families=(HPCRUN_ SLURM_ PMI PALS_ OMPI_ PRTE_ MPI I_MPI_ NCCL_ RCCL_ UCX_ FI_ OMP_)
hpcrun_enter_container --image-file --bind-hpcrun --bind --bind --prefix APPTAINER --runtime apptainer -- \
  apptainer exec --pwd=/submitted/from

# ---- Launch ----
hpcrun_hostfile plain --nodes 2 --ntasks-per-node 1
hpcrun_launch --launcher srun --ranks 2 --stop-signal USR2 --rank SLURM_PROCID --local-rank SLURM_LOCALID \
  --local-ranks SLURM_STEP_TASKS_PER_NODE --wired 'PMI_RANK PMI_FD PMIX_RANK' --cpu-bind cores \
  --in-container python3 -- \
  srun --ntasks=2 --nodes=2 --ntasks-per-node=1 --mpi=pmi2 --kill-on-bad-exit=1 @rank \
  ./a.out --in="$HPCRUN_STAGED"'/two words'
