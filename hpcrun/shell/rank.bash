# Starts one rank of a job and waits for it: bash rank.bash PROGRAM [ARGUMENT...]. Each rank runs rank.sh in the run
# directory. hpcrun_launch writes rank.sh, which sets the variables and loads this file.
#
# The rank sees its GPUs, and writes to its log, logs/rank-N.log in the run directory; rank 0 also writes to the job's
# log. The program gets each signal once. After the program has ended and its output is written, this process ends in the
# same way: with the program's exit code, or by the signal that ended the program. A rank that fails, but not by a signal
# to stop, adds a line to failed.jsonl, from which hpcrun_read_failure (outcome.bash) finds the first failure. A rank that a
# signal has stopped waits for the other ranks, because the launcher would kill a rank that still writes a checkpoint.
#
# The program does not start if the rank has got a signal to stop, if the job is being stopped, or if another rank has
# failed. If Slurm signals only this process, bash may lose one of two different signals at the same instant.
#
# Environment:
#   HPCRUN_RUN_DIR                    the run directory, with logs, exit.json and, for a container, container.sh
#   HPCRUN_RANK, HPCRUN_LOCAL_RANK    the rank number, and the local rank number on the node
#   HPCRUN_NTASKS, HPCRUN_LAUNCHER, HPCRUN_SITE_NAME
# Variables, all but the first optional:
#   hpcrun_visible                    the name of the environment variable that selects the GPUs that a program sees
#   hpcrun_gpus                       the node's GPUs if that environment variable is not set, such as 0,1,2,3
#   hpcrun_gpus_per_rank              the number of GPUs that a rank sees
#   hpcrun_gpu_order                  the node's GPUs in the order of the local ranks to whose cores they are nearest
#   hpcrun_wired                      the names of PMI and PMIx variables, of which each rank needs one for MPI
#   hpcrun_output_on_all_ranks        not empty: all ranks also write to the job's log, with the rank number in each line
#   hpcrun_in_container               not empty: container.sh starts the program
#   hpcrun_ignores_failures           not empty: the launcher may ignore an exit code, so a failed rank ends by a signal
#   hpcrun_cpu_bind                   cores or sockets, to which to bind the rank; see cpu_bind.bash
#   hpcrun_local_ranks                the number of ranks on the node, or of all nodes in Slurm's format, such as 2(x3),1
#   hpcrun_master, hpcrun_port, hpcrun_workers    the host of rank 0, free ports and the workers; see world.bash
#   hpcrun_mode                       the umask of the rank's log and of the records of ranks
#   hpcrun_earlier_failures           the number of lines that failed.jsonl had before this launch
#   hpcrun_ranks                      the number of ranks that the launcher starts
#   hpcrun_stop_seconds               the longest time, in seconds, from a signal until this process ends, if the job is not cancelled
#   HPCRUN_STAGED                     the folder for data on the node-local disk, which the rank copies; see stage.bash
: "${hpcrun_visible:?}" "${hpcrun_gpus:=}" "${hpcrun_gpus_per_rank:=}" "${hpcrun_gpu_order:=}"
: "${hpcrun_wired:=}" "${hpcrun_output_on_all_ranks:=}" "${hpcrun_in_container:=}" "${hpcrun_ignores_failures:=}"
: "${hpcrun_cpu_bind:=}" "${hpcrun_local_ranks:=}" "${hpcrun_mode:=go=}" "${hpcrun_earlier_failures:=0}"
: "${hpcrun_master:=}" "${hpcrun_port:=0}" "${hpcrun_workers:=}" "${hpcrun_ranks:=1}" "${hpcrun_stop_seconds:=90}"
if [[ ! $HPCRUN_RANK =~ ^[0-9]+$ || ! $HPCRUN_LOCAL_RANK =~ ^[0-9]+$ ]]; then
  echo "hpcrun: error: $HPCRUN_LAUNCHER sets no known variable with the number of a rank (rank '$HPCRUN_RANK'," \
    "on its node '$HPCRUN_LOCAL_RANK'); set launcher.rank and launcher.local_rank in site $HPCRUN_SITE_NAME" >&2
  exit 1
fi
hpcrun_folder=${BASH_SOURCE[0]%/*}
if [ "$HPCRUN_NTASKS" != 1 ]; then
  # shellcheck source=/dev/null
  source "$hpcrun_folder/cpu_bind.bash"
  [[ $hpcrun_local_ranks != *[,\(]* ]] || hpcrun_local_ranks=$(hpcrun_tasks_on_node "$hpcrun_local_ranks")
  [ -z "$hpcrun_cpu_bind" ] || hpcrun_cpu_bind "$hpcrun_cpu_bind" "$HPCRUN_LOCAL_RANK" "$hpcrun_local_ranks"
fi
if [ -n "$hpcrun_master" ]; then
  # shellcheck source=/dev/null
  source "$hpcrun_folder/world.bash"
  hpcrun_export_world
fi
(
  umask "$hpcrun_mode"
  : >>"$HPCRUN_RUN_DIR/logs/rank-$HPCRUN_RANK.log"
)
hpcrun_signals=([129]=HUP [130]=INT [131]=QUIT [138]=USR1 [140]=USR2 [143]=TERM)  # by the exit code of a process that the signal ends
hpcrun_program='' hpcrun_signal_caught='' hpcrun_pending_signals='' hpcrun_sending=''
hpcrun_stopped='' hpcrun_signal_time='' hpcrun_codes=' ' hpcrun_stage_lock='' hpcrun_stage_use='' hpcrun_stage_command=''
hpcrun_unstage() { :; }
# shellcheck source=/dev/null
[ -z "${HPCRUN_STAGED-}" ] || source "${BASH_SOURCE[0]%/*}/stage.bash"

# ---- Signals -----------------------------------------------------------------------------------------------------
# With Slurm's cgroup plugin, only this process gets a signal; with its other plugins, mpirun and mpiexec, the program also
# gets it. The program must not get it twice, because the second signal may interrupt the handler of the first. The witness
# is a process that ends by any of these signals, or with this process. If it has ended, the program has got the signal.
hpcrun_witness() {
  exec {hpcrun_lifeline}> >(trap - "${hpcrun_signals[@]}"; exec cat >/dev/null 2>&1)
  hpcrun_witness=$!
}
hpcrun_send_signals() {  # SIGNAL...: send signals to the program, unless it has got them already
  for _ in {1..5}; do
    kill -0 "$hpcrun_witness" 2>/dev/null || { exec {hpcrun_lifeline}>&-; hpcrun_witness; return; }
    command sleep 0.04
  done
  for hpcrun_signal; do kill -s "$hpcrun_signal" "$hpcrun_program" 2>/dev/null; done
}
hpcrun_forward() {  # [SIGNAL]: forward pending signals to the program; a call during another call only adds its signal
  local now
  hpcrun_signal_caught=yes
  [[ $hpcrun_pending_signals == *"$1"* ]] || hpcrun_pending_signals+=" $1"
  [ -z "$hpcrun_stage_command" ] || kill "$hpcrun_stage_command" 2>/dev/null
  [ -n "$hpcrun_program" ] && [ -z "$hpcrun_sending" ] || return
  while [ -n "$hpcrun_pending_signals" ] && kill -0 "$hpcrun_program" 2>/dev/null; do  # more signals may arrive meanwhile
    hpcrun_sending=yes
    now=$hpcrun_pending_signals hpcrun_pending_signals=''  # a single command, because a trap may run between two commands
    # shellcheck disable=SC2086  # names of signals
    hpcrun_send_signals $now
    hpcrun_sending=''
  done
}
for hpcrun_number in "${!hpcrun_signals[@]}"; do
  hpcrun_signal=${hpcrun_signals[hpcrun_number]} hpcrun_mark_stopped=hpcrun_stopped=yes
  case $hpcrun_signal in USR1 | USR2) hpcrun_mark_stopped= ;; esac
  # shellcheck disable=SC2064  # expand the signal now
  trap "hpcrun_codes+='$hpcrun_number ' hpcrun_signal_time=\${hpcrun_signal_time:-\$SECONDS}; ${hpcrun_mark_stopped:-:}; hpcrun_forward $hpcrun_signal" "$hpcrun_signal"
done
hpcrun_witness

hpcrun_die_by_signal() {
  # The launcher may ignore an exit code while other ranks wait forever in MPI_Init, but it reacts to a signal.
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

hpcrun_record_end() {  # FOLDER: completed or stopped; one file per rank, because NFS may lose lines that several nodes append to a file
  (
    umask "$hpcrun_mode"
    command mkdir "$HPCRUN_RUN_DIR/$1"  # without -p: a removed run directory stays removed
    echo "$hpcrun_host" >"$HPCRUN_RUN_DIR/$1/rank-$HPCRUN_RANK"
  ) 2>/dev/null
}
hpcrun_is_cancelled() {  # return whether the job script has recorded SIGTERM: hpcrun cancel or Slurm then kills the ranks later
  local record=''
  read -r record <"$HPCRUN_RUN_DIR/exit.json"
  [[ $record == *'"reason": "stopped by SIGTERM"'*'"ended": null'* ]]
}
hpcrun_await_stopped_ranks() {  # wait until all ranks have ended, or one has failed
  local failures=() ended=()
  shopt -s nullglob
  while ((SECONDS < hpcrun_signal_time + hpcrun_stop_seconds)) || hpcrun_is_cancelled; do
    mapfile -t failures <"$HPCRUN_RUN_DIR/failed.jsonl"
    ended=("$HPCRUN_RUN_DIR"/{completed,stopped}/rank-*)
    [ -e "$HPCRUN_RUN_DIR/stopped/rank-$HPCRUN_RANK" ] || break
    ((${#failures[@]} == hpcrun_earlier_failures && ${#ended[@]} < hpcrun_ranks)) || break
    command sleep 0.1
  done
} 2>/dev/null

# ---- A stop or a failure before the start of this rank -----------------------------------------------------------
# Slurm signals only ranks that have started, and a Prolog may delay a rank. The job script has recorded a stop in
# exit.json, and a failed rank its failure in failed.jsonl.
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
  hpcrun_record_end stopped
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
# Processes that outlive the program may keep its output open: see the end of this file.
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
if [[ $HPCRUN_NTASKS != 1 || -n $hpcrun_master ]] && [ -z "$hpcrun_in_container" ]; then  # Python then loads sitecustomize.py in the folder of this file
  [[ $hpcrun_folder == *:* ]] || export PYTHONPATH=$hpcrun_folder${PYTHONPATH:+:$PYTHONPATH}
  export HPCRUN_STOP_SECONDS=$hpcrun_stop_seconds
fi
[ -z "$hpcrun_in_container" ] || set -- bash "$HPCRUN_RUN_DIR/container.sh" "$@"
exec 2>/dev/null  # suppress bash's message about the signal that ended the program
( trap - "${hpcrun_signals[@]}"; exec {hpcrun_lifeline}>&- {hpcrun_output}>&-
  hpcrun_close_stage_locks
  exec "$@" ) \
  <&0 >&"$hpcrun_output" 2>&1 &
hpcrun_program=$! hpcrun_early=$hpcrun_pending_signals hpcrun_pending_signals=''  # a single command, because a trap may run between two
for hpcrun_signal in $hpcrun_early; do  # the signal may have come before the program started; otherwise, the program has ended
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
  129 | 130 | 131 | 138 | 140 | 143) command sleep 0.3 ;;  # a signal from outside, which this process may also get
  0) [ "$hpcrun_ranks" = 1 ] || hpcrun_record_end completed ;;
  137)
    umask "$hpcrun_mode"
    echo "rank $HPCRUN_RANK on $hpcrun_host" >>"$HPCRUN_RUN_DIR/killed"  # Open MPI may also end this process
    command sleep 0.05 ;;                                  # SIGKILL from outside, which would also end this process
  14) command sleep 0.5 ;;                                 # Open MPI's exit code for a rank that lost another rank, which writes its line first
esac
if [ -n "$hpcrun_signal_time" ] && [ "$hpcrun_ranks" != 1 ] && [ "$hpcrun_code" != 0 ]; then
  # A rank that failed for another reason ends now, because the other ranks may wait for its messages. A rank that cannot
  # record its end does not wait either: the disk is full, or the run directory was removed.
  if hpcrun_record_end stopped && { [ -n "${hpcrun_signals[hpcrun_code]-}" ] || ((hpcrun_code != 1 && hpcrun_code <= 128)); }; then
    hpcrun_await_stopped_ranks
  fi
fi
hpcrun_failed=
if [ "$hpcrun_code" != 0 ] && [ -z "$hpcrun_stopped" ] && [[ $hpcrun_codes != *" $hpcrun_code "* ]]; then
  hpcrun_failed=yes
  hpcrun_record_failure "$hpcrun_code"
fi
exec {hpcrun_lifeline}>&-  # ends the witness
# A pipe holds at most 64 KiB of output. A reader that waits for more has written everything. If it still waits, a process
# that outlives the program keeps the pipe open, and gets two seconds for further output.
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
for _ in {1..50}; do  # Slurm waits for a second if it finds a process of an ended rank
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
