# Starts one rank of a job and waits for it: bash rank.bash PROGRAM [ARGUMENT...]. Each rank runs rank.sh in the run
# directory, which hpcrun_launch writes: it sets the variables and loads this file.
#
# The rank gets its share of the node's GPUs and its log file, logs/rank-N.log in the run directory; rank 0 also writes
# to the job's log. The program gets each signal once. When it has ended and its output is written, this process ends
# as the program did: with its exit code, or by the signal that ended it. A rank that fails by itself, rather than by a
# signal to stop, adds a line to failed.jsonl; see hpcrun_read_failure in launch.bash for the one that caused the job's end.
#
# A rank that gets a signal to stop before its program starts, or that starts while the job is being stopped or after
# another rank has failed, does not start the program. Of two different signals at the same instant bash may lose one, if
# Slurm signals only this process.
#
# Environment:
#   HPCRUN_RUN_DIR                    the run directory, with logs, exit.json, and container.sh for a container
#   HPCRUN_RANK, HPCRUN_LOCAL_RANK    the rank, and its number on its node
#   HPCRUN_NTASKS, HPCRUN_LAUNCHER, HPCRUN_SITE_NAME
# Variables, all but the first optional:
#   hpcrun_visible                    the name of the variable that selects a program's GPUs
#   hpcrun_gpus, hpcrun_gpus_per_rank the node's GPUs if that variable is unset (0,1,2,3); the number of GPUs a rank sees
#   hpcrun_gpu_order                  the node's GPUs in the order of the ranks whose cores are nearest (0,2,1,3)
#   hpcrun_wired                      the names of PMI's and PMIx's variables, one of which each rank needs for MPI
#   hpcrun_output_on_all_ranks        not empty: all ranks also write to the job's log, each line with its rank
#   hpcrun_in_container               not empty: container.sh starts the program
#   hpcrun_ignores_failures           not empty: the launcher may ignore an exit code, so a failed rank ends by a signal
#   hpcrun_cpu_bind                   cores or sockets: what to bind the rank to; see cpu_bind.bash
#   hpcrun_local_ranks                the number of ranks on the node, or Slurm's 2(x3),1 for all nodes
#   hpcrun_master, hpcrun_port        rank 0's host and its free ports; see world.bash, also for hpcrun_workers
#   hpcrun_mode                       the umask of its log file
#   hpcrun_earlier_failures           the number of lines that failed.jsonl had before this launch
#   HPCRUN_STAGED                     the folder of data on the node-local disk, which are copied first; see stage.bash
: "${hpcrun_visible:?}" "${hpcrun_gpus:=}" "${hpcrun_gpus_per_rank:=}" "${hpcrun_gpu_order:=}"
: "${hpcrun_wired:=}" "${hpcrun_output_on_all_ranks:=}" "${hpcrun_in_container:=}" "${hpcrun_ignores_failures:=}"
: "${hpcrun_cpu_bind:=}" "${hpcrun_local_ranks:=}" "${hpcrun_mode:=go=}" "${hpcrun_earlier_failures:=0}"
: "${hpcrun_master:=}" "${hpcrun_port:=0}" "${hpcrun_workers:=}"
if [[ ! $HPCRUN_RANK =~ ^[0-9]+$ || ! $HPCRUN_LOCAL_RANK =~ ^[0-9]+$ ]]; then
  echo "hpcrun: error: $HPCRUN_LAUNCHER sets no known variable with the number of a rank (rank '$HPCRUN_RANK'," \
    "on its node '$HPCRUN_LOCAL_RANK'); set launcher.rank and launcher.local_rank in site $HPCRUN_SITE_NAME" >&2
  exit 1
fi
hpcrun_folder=${BASH_SOURCE[0]%/*}
if [ "$HPCRUN_NTASKS" != 1 ]; then
  # shellcheck source=/dev/null
  source "$hpcrun_folder/cpu_bind.bash"
  # shellcheck source=/dev/null
  source "$hpcrun_folder/world.bash"
  [[ $hpcrun_local_ranks != *[,\(]* ]] || hpcrun_local_ranks=$(hpcrun_tasks_on_node "$hpcrun_local_ranks")
  [ -z "$hpcrun_cpu_bind" ] || hpcrun_cpu_bind "$hpcrun_cpu_bind" "$HPCRUN_LOCAL_RANK" "$hpcrun_local_ranks"
  [ -z "$hpcrun_master" ] || hpcrun_export_world
fi
(
  umask "$hpcrun_mode"
  : >>"$HPCRUN_RUN_DIR/logs/rank-$HPCRUN_RANK.log"
)
hpcrun_signals=([129]=HUP [130]=INT [131]=QUIT [138]=USR1 [140]=USR2 [143]=TERM)  # by the exit code after each
hpcrun_program='' hpcrun_signal_caught='' hpcrun_pending_signals='' hpcrun_sending=''
hpcrun_stopped='' hpcrun_codes=' ' hpcrun_stage_lock='' hpcrun_stage_use='' hpcrun_stage_command=''
hpcrun_unstage() { :; }
# shellcheck source=/dev/null
[ -z "${HPCRUN_STAGED-}" ] || source "${BASH_SOURCE[0]%/*}/stage.bash"

# ---- Signals -----------------------------------------------------------------------------------------------------
# With Slurm's cgroup plugin only this process gets a signal; with its other plugins, mpirun and mpiexec the program gets
# it, too. The program must not get it twice: the second one may interrupt the handler of the first. The witness is a
# process beside the program that ends by any of these signals, or with this process: if it has, so has the program.
hpcrun_witness() {
  exec {hpcrun_lifeline}> >(trap - "${hpcrun_signals[@]}"; exec cat >/dev/null 2>&1)
  hpcrun_witness=$!
}
hpcrun_send_signals() {  # SIGNAL...: to the program, unless it has got them already
  for _ in {1..5}; do
    kill -0 "$hpcrun_witness" 2>/dev/null || { exec {hpcrun_lifeline}>&-; hpcrun_witness; return; }
    command sleep 0.04
  done
  for hpcrun_signal; do kill -s "$hpcrun_signal" "$hpcrun_program" 2>/dev/null; done
}
hpcrun_forward() {  # [SIGNAL]; a call during another call leaves its signal to that one
  local now
  hpcrun_signal_caught=yes
  [[ $hpcrun_pending_signals == *"$1"* ]] || hpcrun_pending_signals+=" $1"
  [ -z "$hpcrun_stage_command" ] || kill "$hpcrun_stage_command" 2>/dev/null
  [ -n "$hpcrun_program" ] && [ -z "$hpcrun_sending" ] || return
  while [ -n "$hpcrun_pending_signals" ] && kill -0 "$hpcrun_program" 2>/dev/null; do  # more signals may arrive meanwhile
    hpcrun_sending=yes
    now=$hpcrun_pending_signals hpcrun_pending_signals=''  # in one command: a trap comes between two
    # shellcheck disable=SC2086  # names of signals
    hpcrun_send_signals $now
    hpcrun_sending=''
  done
}
for hpcrun_number in "${!hpcrun_signals[@]}"; do
  hpcrun_signal=${hpcrun_signals[hpcrun_number]} hpcrun_mark_stopped=hpcrun_stopped=yes
  case $hpcrun_signal in USR1 | USR2) hpcrun_mark_stopped= ;; esac
  # shellcheck disable=SC2064  # expand the signal now
  trap "hpcrun_codes+='$hpcrun_number '; ${hpcrun_mark_stopped:-:}; hpcrun_forward $hpcrun_signal" "$hpcrun_signal"
done
hpcrun_witness

hpcrun_die_by_signal() {
  # The launcher may ignore an exit code while other ranks are in MPI_Init, which wait forever; it reacts to a signal.
  [ -n "$hpcrun_ignores_failures" ] || return
  command sleep 2
  trap - TERM
  kill -TERM $$
}

hpcrun_record_failure() {  # CODE
  (
    umask go=
    printf '{"rank": %d, "host": "%s", "exit_code": %d, "time": %d}\n' \
      "$HPCRUN_RANK" "$hpcrun_host" "$1" "$(command date +%s)" >>"$HPCRUN_RUN_DIR/failed.jsonl"
  )
}

# ---- A stop or a failure before the start of this rank -----------------------------------------------------------
# Slurm signals only ranks that have started, and a Prolog may delay others; the job script has recorded the stop, and
# the other rank its failure.
hpcrun_exit_if_stopped() {
  local record='' code='' reason='the job is being stopped' failures=()
  read -r record 2>/dev/null <"$HPCRUN_RUN_DIR/exit.json"
  if [ -n "$hpcrun_pending_signals" ]; then
    code=${hpcrun_codes# } code=${code%% *}
  elif [[ $record =~ '"exit_code": '([0-9]+)', "reason": "stopped by '.*'"ended": null' ]]; then
    code=${BASH_REMATCH[1]}
  elif mapfile -t failures 2>/dev/null <"$HPCRUN_RUN_DIR/failed.jsonl"; [[
    ${failures[hpcrun_earlier_failures]-} =~ '"rank": '([0-9]+),.*'"exit_code": '([0-9]+) ]]; then
    code=${BASH_REMATCH[2]} reason="rank ${BASH_REMATCH[1]} has failed"
  fi
  [ -n "$code" ] || return 0
  echo "[rank $HPCRUN_RANK] on $hpcrun_host does not start its program: $reason"
  hpcrun_unstage
  hpcrun_die_by_signal
  exit "$code"
}

# ---- GPUs --------------------------------------------------------------------------------------------------------
if [ -n "$hpcrun_gpus_per_rank" ]; then
  IFS=, read -ra hpcrun_all <<<"${!hpcrun_visible-$hpcrun_gpus}"
  IFS=, read -ra hpcrun_order <<<"$hpcrun_gpu_order"
  if [ ${#hpcrun_all[@]} = ${#hpcrun_order[@]} ]; then
    hpcrun_own=()
    for hpcrun_number in "${hpcrun_order[@]}"; do hpcrun_own+=("${hpcrun_all[hpcrun_number]}"); done
    hpcrun_all=("${hpcrun_own[@]}")
  fi
  if [ ${#hpcrun_all[@]} -gt "$hpcrun_gpus_per_rank" ]; then
    hpcrun_all=("${hpcrun_all[@]:HPCRUN_LOCAL_RANK * hpcrun_gpus_per_rank % ${#hpcrun_all[@]}:hpcrun_gpus_per_rank}")
  fi
  export "$hpcrun_visible=$(IFS=,; echo "${hpcrun_all[*]-}")"
fi
hpcrun_host=$(command uname -n)
echo "[rank $HPCRUN_RANK] host $hpcrun_host, $hpcrun_visible=${!hpcrun_visible-unset}"
if [ -n "$hpcrun_wired" ] && [ "$HPCRUN_RANK" = 0 ]; then
  for hpcrun_name in $hpcrun_wired none; do [ -z "${!hpcrun_name-}" ] || break; done
  [ "$hpcrun_name" != none ] || echo "hpcrun: WARNING: $HPCRUN_LAUNCHER gave the ranks no PMI or PMIx: MPI programs" \
    "would run as $HPCRUN_NTASKS worlds of one rank; set mpi.type in site $HPCRUN_SITE_NAME" >&2
fi

hpcrun_exit_if_stopped
if [ -n "${HPCRUN_STAGED-}" ]; then
  hpcrun_stage_in
  hpcrun_exit_if_stopped
fi

# ---- Output ------------------------------------------------------------------------------------------------------
# Processes that the program leaves behind may keep its output open: see the end of this file.
hpcrun_log=$HPCRUN_RUN_DIR/logs/rank-$HPCRUN_RANK.log hpcrun_readers=()
hpcrun_close_stage_locks() { [ -z "$hpcrun_stage_use" ] || exec {hpcrun_stage_lock}<&- {hpcrun_stage_use}>&-; }
hpcrun_exec_ignoring_signals() {
  trap '' "${hpcrun_signals[@]}"
  exec {hpcrun_lifeline}>&-
  hpcrun_close_stage_locks
  exec "$@"
}
if [ -n "$hpcrun_output_on_all_ranks" ]; then
  exec {hpcrun_lines}> >(hpcrun_exec_ignoring_signals sed -u "s/^/[rank $HPCRUN_RANK] /")
  hpcrun_readers+=($!)
  exec {hpcrun_output}> >(hpcrun_exec_ignoring_signals tee -a "$hpcrun_log" >&"$hpcrun_lines" {hpcrun_lines}>&-)
  hpcrun_readers=($! "${hpcrun_readers[@]}")
  exec {hpcrun_lines}>&-
elif [ "$HPCRUN_RANK" = 0 ]; then
  exec {hpcrun_output}> >(hpcrun_exec_ignoring_signals tee -a "$hpcrun_log")
  hpcrun_readers+=($!)
else
  exec {hpcrun_output}>>"$hpcrun_log" || exit
fi

# ---- The program, in this process group, with this process's input -------------------------------------------------
if [ "$HPCRUN_NTASKS" != 1 ] && [ -z "$hpcrun_in_container" ]; then  # sitecustomize.py in the folder of this file
  [[ $hpcrun_folder == *:* ]] || export PYTHONPATH=$hpcrun_folder${PYTHONPATH:+:$PYTHONPATH}
fi
[ -z "$hpcrun_in_container" ] || set -- bash "$HPCRUN_RUN_DIR/container.sh" "$@"
exec 2>/dev/null  # suppress bash's message about the signal that ended the program
( trap - "${hpcrun_signals[@]}"; exec {hpcrun_lifeline}>&- {hpcrun_output}>&-
  hpcrun_close_stage_locks
  exec "$@" ) \
  <&0 >&"$hpcrun_output" 2>&1 &
hpcrun_program=$! hpcrun_early=$hpcrun_pending_signals hpcrun_pending_signals=''  # in one command: a trap comes between two
for hpcrun_signal in $hpcrun_early; do  # the signal may have come before the program started; if not, the program has ended
  kill -s "$hpcrun_signal" "$hpcrun_program" 2>/dev/null
  exec {hpcrun_lifeline}>&-
  hpcrun_witness
done
exec {hpcrun_output}>&-
hpcrun_forward ''
while [ -n "$hpcrun_signal_caught" ]; do  # a signal ends wait early
  hpcrun_signal_caught=''
  wait "$hpcrun_program"
  hpcrun_code=$?
done
if [ "$hpcrun_code" = -1 ]; then  # the program ended at the instant of a signal, and bash has lost its exit code
  hpcrun_code=${hpcrun_codes% } hpcrun_code=${hpcrun_code##* }
fi

# ---- How it ended ------------------------------------------------------------------------------------------------
case $hpcrun_code in
  129 | 130 | 131 | 138 | 140 | 143) command sleep 0.3 ;;  # a signal from outside, which this process may get, too
  137) command sleep 0.05 ;;                               # likewise: SIGKILL would end this process
  14) command sleep 0.5 ;;                                 # Open MPI's exit code for a rank that lost another: let that one be first
esac
hpcrun_failed=
if [ "$hpcrun_code" != 0 ] && [ -z "$hpcrun_stopped" ] && [[ $hpcrun_codes != *" $hpcrun_code "* ]]; then
  hpcrun_failed=yes
  hpcrun_record_failure "$hpcrun_code"
fi
exec {hpcrun_lifeline}>&-  # the witness ends, too
# A pipe holds at most 64 KiB of the output. A reader that waits for more has written everything; then a process that the
# program left behind keeps the pipe open, and gets two seconds for further output.
for hpcrun_reader in "${hpcrun_readers[@]}"; do
  for ((hpcrun_tries = hpcrun_waits = 0; hpcrun_tries < 750 && hpcrun_waits < 50; hpcrun_tries++)); do
    kill -0 "$hpcrun_reader" 2>/dev/null || continue 2
    read -r _ hpcrun_file _ 2>/dev/null <"/proc/$hpcrun_reader/syscall"
    [ "$hpcrun_file" != 0x0 ] || hpcrun_waits=$((hpcrun_waits + 1))
    command sleep 0.04
  done
  kill -KILL "$hpcrun_reader" 2>/dev/null
done
hpcrun_unstage
for _ in {1..50}; do  # if Slurm finds a process of an ended rank, it waits for a second
  kill -0 "$hpcrun_witness" 2>/dev/null || break
  command sleep 0.01
done
[ -n "$hpcrun_failed" ] || exit "$hpcrun_code"
hpcrun_die_by_signal
if [ "$hpcrun_code" -gt 128 ] && hpcrun_signal=$(kill -l $((hpcrun_code - 128)) 2>/dev/null); then
  ulimit -c 0
  trap - "$hpcrun_signal"
  kill -s "$hpcrun_signal" $$
fi
exit "$hpcrun_code"
