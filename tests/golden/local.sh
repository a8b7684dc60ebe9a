#!/bin/bash
# resnet50 on site local: 2 ranks by mpiexec. Rendered by hpcrun VERSION.

# ---- The run: its record, its signals and how each rank starts are in hpcrun's bash library ----
export HPCRUN_RUN_DIR=/runs/RUN
hpcrun_library=/hpcrun/shell
[[ -O $HPCRUN_RUN_DIR && -O $HPCRUN_RUN_DIR/shell/job.bash ]] && hpcrun_library=$HPCRUN_RUN_DIR/shell  # this run's own copy
cd /submitted/from || exit
builtin source "$hpcrun_library/job.bash" VERSION local --python /venv/bin/python --timeout || exit 1

# ---- Environment ----
export PATH=/venv/bin${PATH:+:$PATH}
export MPIR_CVAR_CH4_NETMOD=ofi
export HPCRUN_NTASKS=2 HPCRUN_SITE_NAME=local HPCRUN_LAUNCHER=mpiexec HPCRUN_GPUS_PER_NODE=0 HPCRUN_LOG_LEVEL=WARNING
export PYTHONUNBUFFERED=1 TF_CPP_MIN_LOG_LEVEL="${TF_CPP_MIN_LOG_LEVEL:-1}"
export FI_SOCKETS_IFACE="${FI_SOCKETS_IFACE:-lo}"  # all ranks are on this host: MPICH needs no network
export KEY='it'"'"'s'

# ---- Launch ----
hpcrun_hostfile hydra --nodes 1 --ntasks 2
hpcrun_launch --ignores-failures --ranks 2 --stop-signal TERM --rank PMI_RANK --local-rank MPI_LOCALRANKID \
  --local-ranks MPI_LOCALNRANKS --cpu-bind cores -- \
  timeout --signal=TERM --kill-after=30 1800 mpiexec -launcher fork -f "$HPCRUN_RUN_DIR/hostfile" -n 2 @rank \
  /venv/bin/python /hpcrun/workloads/resnet50/train.py --synthetic-data
