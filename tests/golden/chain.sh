#!/bin/bash
#SBATCH --job-name=a.out
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --time=3
#SBATCH --signal=B:USR2@45
#SBATCH --no-requeue
#SBATCH --chdir=/submitted/from
# a.out on site own: 1 rank by mpiexec. Rendered by hpcrun VERSION.

# ---- The run: its record, its signals and how each rank starts are in hpcrun's bash library ----
export HPCRUN_RUN_DIR=/runs/RUN
hpcrun_library=/hpcrun/shell
[[ -O $HPCRUN_RUN_DIR && -O $HPCRUN_RUN_DIR/shell/job.bash ]] && hpcrun_library=$HPCRUN_RUN_DIR/shell  # this run's own copy
builtin source "$hpcrun_library/job.bash" VERSION slurm --python /venv/bin/python --max-requeue 3 --resubmit || exit 1

# ---- Environment ----
export PATH=/venv/bin${PATH:+:$PATH}
export LD_LIBRARY_PATH=/opt/GPI/lib64${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
[ -z "${GASPICXX_INSTALLATION_PATH-}" ] || export LD_LIBRARY_PATH="${GASPICXX_INSTALLATION_PATH}"${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
[ -z "${CONDA_PREFIX-}" ] || export LD_LIBRARY_PATH="${CONDA_PREFIX}"/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export MPIR_CVAR_CH4_NETMOD=ofi
export HPCRUN_DATA_IMAGENET=/home/DATA/PUBLIC_DATA/ImageNet
export HPCRUN_NTASKS=1 HPCRUN_SITE_NAME=own HPCRUN_LAUNCHER=mpiexec HPCRUN_GPUS_PER_NODE=0 HPCRUN_LOG_LEVEL=WARNING
export PYTHONUNBUFFERED=1 TF_CPP_MIN_LOG_LEVEL="${TF_CPP_MIN_LOG_LEVEL:-1}"
export KEY='it'"'"'s'

# ---- Launch ----
hpcrun_hostfile hydra --nodes 1 --ntasks-per-node 1
hpcrun_launch --ranks 1 --stop-signal TERM --rank PMI_RANK --local-rank MPI_LOCALRANKID --local-ranks MPI_LOCALNRANKS -- \
  mpiexec -launcher slurm -f "$HPCRUN_RUN_DIR/hostfile" -n 1 @rank \
  ./a.out 'two words'
