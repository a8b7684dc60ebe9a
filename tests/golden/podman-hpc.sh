#!/bin/bash
#SBATCH --job-name=a.out
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --gpus-per-node=4
#SBATCH --chdir=/submitted/from
# a.out on site own: 8 ranks by srun. Rendered by hpcrun VERSION.

# ---- The run: its record, its signals and how each rank starts are in hpcrun's bash library ----
export HPCRUN_RUN_DIR=/runs/RUN
hpcrun_library=/hpcrun/shell
[[ -O $HPCRUN_RUN_DIR && -O $HPCRUN_RUN_DIR/shell/job.bash ]] && hpcrun_library=$HPCRUN_RUN_DIR/shell  # this run's own copy
builtin source "$hpcrun_library/job.bash" VERSION slurm --python /venv/bin/python || exit 1

# ---- Environment ----
export PATH=/venv/bin${PATH:+:$PATH}
export MPIR_CVAR_CH4_NETMOD=ofi
export HPCRUN_NTASKS=8 HPCRUN_SITE_NAME=own HPCRUN_LAUNCHER=srun HPCRUN_MPI_TYPE=pmix HPCRUN_GPUS_PER_NODE=4 HPCRUN_LOG_LEVEL=WARNING
export PYTHONUNBUFFERED=1 TF_CPP_MIN_LOG_LEVEL="${TF_CPP_MIN_LOG_LEVEL:-1}"
export KEY='it'"'"'s'

# ---- The container ----
hpcrun_image=nvcr.io/nvidia/tensorflow:24.03-tf2-py3
hpcrun_binds=(
  /runs/RUN:/runs/RUN
  /submitted/from:/submitted/from
)
hpcrun_variables=(  # only for the container
  PYTHONNOUSERSITE=1  # packages in the home folder are for the host's Python
  PYTHONPATH=/hpcrun
  TF_ENABLE_ONEDNN_OPTS=0
  KEY='it'"'"'s'
)
hpcrun_names=(PYTHONUNBUFFERED XLA_FLAGS TF_CPP_MIN_LOG_LEVEL CUDA_VISIBLE_DEVICES)
hpcrun_families=(HPCRUN_ SLURM_ PMI PALS_ OMPI_ PRTE_ MPI I_MPI_ NCCL_ RCCL_ UCX_ FI_ OMP_)
hpcrun_enter_container --bind-hpcrun --bind --volume --runtime podman-hpc -- \
  podman-hpc run --rm --workdir=/submitted/from --network=host --ipc=host --pid=host --gpu

# ---- Launch ----
hpcrun_hostfile plain --nodes 2 --ntasks-per-node 4
hpcrun_launch --launcher srun --ranks 8 --stop-signal USR2 --rank SLURM_PROCID --local-rank SLURM_LOCALID \
  --local-ranks SLURM_STEP_TASKS_PER_NODE --wired 'PMI_RANK PMI_FD PMIX_RANK' --cpu-bind cores \
  --visible CUDA_VISIBLE_DEVICES --gpus 0,1,2,3 --gpus-per-rank 1 --in-container python3 -- \
  srun --ntasks=8 --nodes=2 --ntasks-per-node=4 --mpi=pmix --kill-on-bad-exit=1 @rank \
  ./a.out 'two words'
