# Starts one rank of a job, and stays its parent: bash rank.bash PROGRAM [ARGUMENT...]. Each rank gets there through rank.sh
# in the run directory, which hpcrun_launch writes: it sets the variables, and loads this file.
#
# The rank takes its share of the node's GPUs and its log file, logs/rank-N.log in the run directory; rank 0 also writes
# to the job's log. It gets each signal once. When the program has ended and its output is where it belongs, this ends
# as the program did: with its exit code, or by the signal that ended it. A rank that fails by itself, rather than
# because it was told to stop, adds a line to failed.jsonl: the first line is what ended the job.
#
# A rank that is told to stop before its program starts, or that begins when the job is being stopped, does not start it.
# Of two unlike signals at the same instant bash may lose one, where Slurm's cgroups signal this process alone.
#
# Environment:
#   HPCRUN_RUN_DIR                    the run directory, which has logs, perhaps exit.json and, in a container, container.sh
#   HPCRUN_RANK, HPCRUN_LOCAL_RANK    the rank, and its number on its node
#   HPCRUN_NTASKS, HPCRUN_LAUNCHER, HPCRUN_SITE_NAME
# Variables, all but the first optional:
#   hpcrun_visible                    names the variable by which programs find their GPUs
#   hpcrun_gpus, hpcrun_gpus_per_rank the node's GPUs where that variable is unset (0,1,2,3); how many a rank takes
#   hpcrun_gpu_order                  the node's GPUs, the nearest to each rank's cores (0,2,1,3)
#   hpcrun_wired                      names variables of which a rank that MPI can start has one
#   hpcrun_output_on_all_ranks        not empty: all ranks also write to the job's log, each line with its rank
#   hpcrun_in_container               not empty: the program starts through container.sh
#   hpcrun_cpu_bind                   cores or sockets: what it is bound to, of the node's; see cpu_bind.bash
#   hpcrun_local_ranks                how many ranks the node has: a number, or Slurm's 2(x3),1 for all nodes
#   hpcrun_mode                       the umask under which its log file is made
: "${hpcrun_visible:?}" "${hpcrun_gpus:=}" "${hpcrun_gpus_per_rank:=}" "${hpcrun_gpu_order:=}"
: "${hpcrun_wired:=}" "${hpcrun_output_on_all_ranks:=}" "${hpcrun_in_container:=}"
: "${hpcrun_cpu_bind:=}" "${hpcrun_local_ranks:=}" "${hpcrun_mode:=go=}"
if [[ ! $HPCRUN_RANK =~ ^[0-9]+$ || ! $HPCRUN_LOCAL_RANK =~ ^[0-9]+$ ]]; then
  echo "hpcrun: error: $HPCRUN_LAUNCHER sets no variable that hpcrun knows to tell a rank its number (rank '$HPCRUN_RANK'," \
    "on its node '$HPCRUN_LOCAL_RANK'); set launcher.rank and launcher.local_rank in site $HPCRUN_SITE_NAME" >&2
  exit 1
fi
if [ -n "$hpcrun_cpu_bind" ]; then
  # shellcheck source=/dev/null
  source "${BASH_SOURCE[0]%/*}/cpu_bind.bash"
  [[ $hpcrun_local_ranks != *[,\(]* ]] || hpcrun_local_ranks=$(hpcrun_tasks_here "$hpcrun_local_ranks")
  hpcrun_cpu_bind "$hpcrun_cpu_bind" "$HPCRUN_LOCAL_RANK" "$hpcrun_local_ranks"
fi
(
  umask "$hpcrun_mode"
  : >>"$HPCRUN_RUN_DIR/logs/rank-$HPCRUN_RANK.log"
)
hpcrun_signals=(HUP INT QUIT USR1 USR2 TERM)
hpcrun_program='' hpcrun_caught='' hpcrun_untold='' hpcrun_telling=''
hpcrun_stopped='' hpcrun_codes=' '

# ---- Signals -----------------------------------------------------------------------------------------------------
# Slurm's cgroups pass a signal to this process alone; its other plugins, mpirun and mpiexec to the program as well,
# which must not get it twice: a second one may end what the first has begun. The witness is a process beside the
# program that ends by any of these signals, or with this process: where it has, the program has been told.
hpcrun_witness() {
  exec {hpcrun_lifeline}> >(trap - "${hpcrun_signals[@]}"; exec cat >/dev/null 2>&1)
  hpcrun_witness=$!
}
hpcrun_tell() {  # SIGNAL...: to the program, unless it knows
  for _ in {1..5}; do
    kill -0 "$hpcrun_witness" 2>/dev/null || { exec {hpcrun_lifeline}>&-; hpcrun_witness; return; }
    command sleep 0.04
  done
  for hpcrun_signal; do kill -s "$hpcrun_signal" "$hpcrun_program" 2>/dev/null; done
}
hpcrun_forward() {  # [SIGNAL]; one that comes while another is told is told by who tells that
  local now
  hpcrun_caught=yes
  [[ $hpcrun_untold == *"$1"* ]] || hpcrun_untold+=" $1"
  [ -n "$hpcrun_program" ] && [ -z "$hpcrun_telling" ] || return
  while [ -n "$hpcrun_untold" ] && kill -0 "$hpcrun_program" 2>/dev/null; do  # signals may come faster than this tells
    hpcrun_telling=yes
    now=$hpcrun_untold hpcrun_untold=''  # in one command: a trap comes between two
    # shellcheck disable=SC2086  # names of signals
    hpcrun_tell $now
    hpcrun_telling=''
  done
}
for hpcrun_signal in "${hpcrun_signals[@]}"; do
  hpcrun_number=$((128 + $(kill -l "$hpcrun_signal"))) hpcrun_stops=hpcrun_stopped=yes
  case $hpcrun_signal in USR1 | USR2) hpcrun_stops= ;; esac
  # shellcheck disable=SC2064  # which signal it is, is known now
  trap "hpcrun_codes+='$hpcrun_number '; ${hpcrun_stops:-:}; hpcrun_forward $hpcrun_signal" "$hpcrun_signal"
done
hpcrun_witness

hpcrun_alarm() {
  # An exit code is no alarm to MPICH's mpiexec: ranks in MPI_Init would wait for this one for ever. A signal is.
  [ "$HPCRUN_LAUNCHER" = mpiexec ] && [ "${HPCRUN_NTASKS:-1}" -gt 1 ] || return
  command sleep 2
  trap - TERM
  kill -TERM $$
}

# ---- A stop that came before this rank ---------------------------------------------------------------------------
# Slurm signals only ranks that have begun, and a Prolog may keep others for long; the job's script has noted the stop.
hpcrun_unless_stopped() {
  local record='' code=''
  read -r record 2>/dev/null <"$HPCRUN_RUN_DIR/exit.json"
  if [ -n "$hpcrun_untold" ]; then
    code=${hpcrun_codes# } code=${code%% *}
  elif [[ $record =~ '"exit_code": '([0-9]+)', "reason": "stopped by '.*'"ended": null' ]]; then
    code=${BASH_REMATCH[1]}
  fi
  [ -n "$code" ] || return 0
  echo "[rank $HPCRUN_RANK] on $(command uname -n) does not start its program: the job is being stopped"
  hpcrun_alarm
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
echo "[rank $HPCRUN_RANK] host $(command uname -n), $hpcrun_visible=${!hpcrun_visible-unset}"
if [ -n "$hpcrun_wired" ] && [ "$HPCRUN_RANK" = 0 ]; then
  for hpcrun_name in $hpcrun_wired none; do [ -z "${!hpcrun_name-}" ] || break; done
  [ "$hpcrun_name" != none ] || echo "hpcrun: WARNING: $HPCRUN_LAUNCHER gave the ranks no PMI or PMIx: MPI programs" \
    "would run as $HPCRUN_NTASKS worlds of one rank; set mpi.type in site $HPCRUN_SITE_NAME" >&2
fi

hpcrun_unless_stopped

# ---- Output ------------------------------------------------------------------------------------------------------
# A program that leaves processes behind, which hold its output open, keeps nobody waiting: see the end.
hpcrun_log=$HPCRUN_RUN_DIR/logs/rank-$HPCRUN_RANK.log hpcrun_readers=()
hpcrun_deaf() { trap '' "${hpcrun_signals[@]}"; exec {hpcrun_lifeline}>&-; exec "$@"; }
if [ -n "$hpcrun_output_on_all_ranks" ]; then
  exec {hpcrun_lines}> >(hpcrun_deaf sed -u "s/^/[rank $HPCRUN_RANK] /")
  hpcrun_readers+=($!)
  exec {hpcrun_output}> >(hpcrun_deaf tee -a "$hpcrun_log" >&"$hpcrun_lines" {hpcrun_lines}>&-)
  hpcrun_readers=($! "${hpcrun_readers[@]}")
  exec {hpcrun_lines}>&-
elif [ "$HPCRUN_RANK" = 0 ]; then
  exec {hpcrun_output}> >(hpcrun_deaf tee -a "$hpcrun_log")
  hpcrun_readers+=($!)
else
  exec {hpcrun_output}>>"$hpcrun_log" || exit
fi

# ---- The program, in this process group, with this process's input -------------------------------------------------
[ -z "$hpcrun_in_container" ] || set -- bash "$HPCRUN_RUN_DIR/container.sh" "$@"
exec 2>/dev/null  # bash would tell by which signal it ends, and where in this file
( trap - "${hpcrun_signals[@]}"; exec {hpcrun_lifeline}>&- {hpcrun_output}>&-; exec "$@" ) \
  <&0 >&"$hpcrun_output" 2>&1 &
hpcrun_program=$! hpcrun_early=$hpcrun_untold hpcrun_untold=''  # in one command: a trap comes between two
for hpcrun_signal in $hpcrun_early; do  # it may not have been there to hear; if it was, it has ended
  kill -s "$hpcrun_signal" "$hpcrun_program" 2>/dev/null
  exec {hpcrun_lifeline}>&-
  hpcrun_witness
done
exec {hpcrun_output}>&-
hpcrun_forward ''
while [ -n "$hpcrun_caught" ]; do  # a signal ends wait early
  hpcrun_caught=''
  wait "$hpcrun_program"
  hpcrun_code=$?
done

# ---- How it ended ------------------------------------------------------------------------------------------------
case $hpcrun_code in
  129 | 130 | 131 | 138 | 140 | 143) command sleep 0.3 ;;  # a signal from outside, and perhaps to all: this process hears of it
  137) command sleep 0.05 ;;                               # likewise, and ends
  14) command sleep 0.5 ;;                                 # Open MPI ends a rank so that has lost another: that one comes first
esac
hpcrun_failed=
if [ "$hpcrun_code" != 0 ] && [ -z "$hpcrun_stopped" ] && [[ $hpcrun_codes != *" $hpcrun_code "* ]]; then
  hpcrun_failed=yes
  (
    umask go=
    printf '{"rank": %d, "host": "%s", "exit_code": %d, "time": %d}\n' \
      "$HPCRUN_RANK" "$(command uname -n)" "$hpcrun_code" "$(command date +%s)" >>"$HPCRUN_RUN_DIR/failed.jsonl"
  )
fi
# Of the output a pipe holds 64 KiB at most. A reader that waits for more has passed on all; then some process that the
# program has left holds the pipe, and gets two seconds for its last words.
for hpcrun_reader in "${hpcrun_readers[@]}"; do
  for ((hpcrun_tries = hpcrun_waits = 0; hpcrun_tries < 750 && hpcrun_waits < 50; hpcrun_tries++)); do
    kill -0 "$hpcrun_reader" 2>/dev/null || continue 2
    read -r _ hpcrun_file _ 2>/dev/null <"/proc/$hpcrun_reader/syscall"
    [ "$hpcrun_file" != 0x0 ] || hpcrun_waits=$((hpcrun_waits + 1))
    command sleep 0.04
  done
  kill -KILL "$hpcrun_reader" 2>/dev/null
done
[ -n "$hpcrun_failed" ] || exit "$hpcrun_code"
hpcrun_alarm
if [ "$hpcrun_code" -gt 128 ] && hpcrun_signal=$(kill -l $((hpcrun_code - 128)) 2>/dev/null); then
  ulimit -c 0
  trap - "$hpcrun_signal"
  kill -s "$hpcrun_signal" $$
fi
exit "$hpcrun_code"
