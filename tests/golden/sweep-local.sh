#!/bin/bash
# a.out on site local: 2 ranks by mpiexec. Rendered by hpcrun VERSION.

# ---- The run: its record, its signals and how each rank starts are in hpcrun's bash library ----
export HPCRUN_TASK=${HPCRUN_TASK:?which task of the sweep, from 0 on}
export HPCRUN_RUN_DIR=/runs/RUN/RUN.$HPCRUN_TASK
hpcrun_library=/hpcrun/shell
[[ -O /runs/RUN && -O /runs/RUN/shell/job.bash ]] && hpcrun_library=/runs/RUN/shell  # the sweep's own copy
cd /submitted/from || exit
builtin source "$hpcrun_library/job.bash" VERSION local --python /venv/bin/python --sweep || exit 1

# ---- Environment ----
export PATH=/venv/bin${PATH:+:$PATH}
export MPIR_CVAR_CH4_NETMOD=ofi
export HPCRUN_NTASKS=2 HPCRUN_SITE_NAME=local HPCRUN_LAUNCHER=mpiexec HPCRUN_GPUS_PER_NODE=0 HPCRUN_LOG_LEVEL=WARNING
export PYTHONUNBUFFERED=1 TF_CPP_MIN_LOG_LEVEL="${TF_CPP_MIN_LOG_LEVEL:-1}"
export FI_SOCKETS_IFACE="${FI_SOCKETS_IFACE:-lo}"  # all ranks are on this host: MPICH needs no network
export KEY='it'"'"'s'
hpcrun_await_turn 3  # limit the number of tasks that run at the same time

# The user's variables override all others.
export KEY='it'"'"'s'

# ---- A sweep: each task has its own values and run directory ----
case $HPCRUN_TASK in
  0) hpcrun_program=(./a.out 'two words' --lr=0.1 --seed=1) ;;
  1) hpcrun_program=(./a.out 'two words' --lr=0.1 --seed=2) ;;
  2) hpcrun_program=(./a.out 'two words' --lr=0.01 --seed=1) ;;
  3) hpcrun_program=(./a.out 'two words' --lr=0.01 --seed=2) ;;
  *) hpcrun_fail "this sweep has no task $HPCRUN_TASK" ;;
esac

# ---- Launch ----
hpcrun_hostfile hydra --nodes 1 --ntasks 2
hpcrun_launch --ignores-failures --ranks 2 --stop-signal TERM --rank PMI_RANK --local-rank MPI_LOCALRANKID \
  --local-ranks MPI_LOCALNRANKS --cpu-bind cores -- \
  mpiexec -launcher fork -f "$HPCRUN_RUN_DIR/hostfile" -n 2 @rank \
  "${hpcrun_program[@]}"
