#!/bin/bash
#SBATCH --job-name=a.out
#SBATCH --nodes=2
#SBATCH --ntasks=3
#SBATCH --chdir=/submitted/from
# a.out on site own: 3 ranks by mpirun. Rendered by hpcrun VERSION.

# ---- The run: its record, its signals and how each rank starts are in hpcrun's bash library ----
export HPCRUN_RUN_DIR=/runs/RUN
hpcrun_library=/hpcrun/shell
[[ -O $HPCRUN_RUN_DIR && -O $HPCRUN_RUN_DIR/shell/job.bash ]] && hpcrun_library=$HPCRUN_RUN_DIR/shell  # this run's own copy
builtin source "$hpcrun_library/job.bash" VERSION slurm --python /venv/bin/python || exit 1

# ---- Environment ----
export PATH=/venv/bin${PATH:+:$PATH}
export HPCRUN_NTASKS=3 HPCRUN_SITE_NAME=own HPCRUN_LAUNCHER=mpirun HPCRUN_GPUS_PER_NODE=0 HPCRUN_LOG_LEVEL=WARNING
export PYTHONUNBUFFERED=1 TF_CPP_MIN_LOG_LEVEL="${TF_CPP_MIN_LOG_LEVEL:-1}"
export KEY='it'"'"'s'

# ---- Launch ----
hpcrun_hostfile openmpi --nodes 2 --ntasks 3
hpcrun_launch --hides-signals --ranks 3 --stop-signal USR2 --rank OMPI_COMM_WORLD_RANK --local-rank OMPI_COMM_WORLD_LOCAL_RANK \
  --local-ranks OMPI_COMM_WORLD_LOCAL_SIZE --cpu-bind cores -- \
  mpirun --bind-to none --map-by slot --hostfile "$HPCRUN_RUN_DIR/hostfile" -n 3 @rank \
  ./a.out 'two words'
