#!/bin/bash
# resnet50 on site local, rendered by hpcrun VERSION. This is the whole job: nothing else runs behind it.

export HPCRUN_RUN_DIR=/runs/RUN
export HPCRUN_JOB_ID=$$
cd /submitted/from || exit
hpcrun_umask=$(umask)
umask go=  # of what hpcrun writes; your own holds for all that you write
mkdir -p "$HPCRUN_RUN_DIR/logs"
[ -O "$HPCRUN_RUN_DIR" ] || { echo "hpcrun: the run directory $HPCRUN_RUN_DIR is somebody else's" >&2; exit 1; }
hpcrun_room() { printf '%4096s' "" >"$HPCRUN_RUN_DIR/.room"; set -- $?; rm -f "$HPCRUN_RUN_DIR/.room"; return "$1"; } 2>/dev/null
hpcrun_room || { echo "hpcrun: there is no room for the record of this job in $HPCRUN_RUN_DIR: its disk is full" >&2; exit 1; }
chmod go= "$HPCRUN_RUN_DIR/${HPCRUN_JOB_ID}"_0_log.{out,err} 2>/dev/null  # Slurm has made them
hpcrun_becomes() {  # JOB: from here on this run is that job, with the log that it has
  local before end
  before=$(sed -n 's/.*"job_id": "\([^"]*\)".*/\1/p' "$HPCRUN_RUN_DIR/submitted.json" 2>/dev/null)
  [ -n "$before" ] && [ "$before" != "$1" ] || return
  for end in out err; do ln -sfn "${before}_0_log.$end" "$HPCRUN_RUN_DIR/${1}_0_log.$end"; done
  sed -e "s/\"start_time\": [0-9]*/\"start_time\": $(cut -d ' ' -f 22 </proc/$$/stat)/" -e "s/\"job_id\": \"[^\"]*\"/\"job_id\": \"$1\"/" "$HPCRUN_RUN_DIR/submitted.json" \
    >"$HPCRUN_RUN_DIR/.submitted.json" && mv "$HPCRUN_RUN_DIR/.submitted.json" "$HPCRUN_RUN_DIR/submitted.json"
}
if hpcrun_becomes "$HPCRUN_JOB_ID"; then  # somebody has started this script again
  echo "hpcrun: the log goes on in $HPCRUN_RUN_DIR/${HPCRUN_JOB_ID}_0_log.out"
  exec >>"$HPCRUN_RUN_DIR/${HPCRUN_JOB_ID}_0_log.out" 2>>"$HPCRUN_RUN_DIR/${HPCRUN_JOB_ID}_0_log.err"
fi
hpcrun_started=$(date +%s) hpcrun_requeued=false
grep -qs 'time limit.*"requeued": true' "$HPCRUN_RUN_DIR/exit.json" && hpcrun_requeued=true
printf '{"job_id": "%s", "slurm_job": "%s", "host": "%s", "nodes": "%s", "started": %d, "requeued": %s}\n' \
  "$HPCRUN_JOB_ID" "${SLURM_JOB_ID-}" "$(uname -n)" "" "$hpcrun_started" "$hpcrun_requeued" \
  >>"$HPCRUN_RUN_DIR/starts.jsonl"
# A job that is started again goes on with its checkpoints and metrics.jsonl; how it ended is told anew.
rm -f "$HPCRUN_RUN_DIR"/{exit.json,result.json,failed.jsonl,heartbeats/*.json,"${HPCRUN_JOB_ID}_0_result.pkl"}

# ---- However this job ends, exit.json says how -----------------------------------------------------------------
hpcrun_reason="the job script ended before the ranks started" hpcrun_launcher= hpcrun_code= hpcrun_over= hpcrun_requeued=false
hpcrun_write() { printf '%-1023s\n' "$1" 1<>"$HPCRUN_RUN_DIR/exit.json"; }  # in place, where it takes no more room
hpcrun_record() {  # CODE REASON ENDED: seconds since 1970, or null while the ranks are still being stopped
  local record
  printf -v record '{"exit_code": %d, "reason": "%s", "host": "%s", "job_id": "%s", "started": %d, "ended": %s, "requeued": %s}' \
    "$1" "${2//[\'\"\\]/}" "$(uname -n)" "$HPCRUN_JOB_ID" "$hpcrun_started" "$3" "$hpcrun_requeued"
  hpcrun_write "$record"
}
hpcrun_fail() { hpcrun_reason=$1; echo "hpcrun: $1" >&2; exit 1; }
hpcrun_ask() {  # the signal that mpiexec passes on to its ranks, and leaves them time to write a checkpoint
  kill -s TERM "$hpcrun_launcher" 2>/dev/null
}
hpcrun_stopped() {  # SIGNAL NUMBER: record it now, there may be no time later; then let the ranks end by themselves
  [ -z "$hpcrun_over" ] && [ "$hpcrun_reason" != "stopped by SIG$1" ] || return
  hpcrun_reason="stopped by SIG$1"
  hpcrun_record $((128 + $2)) "$hpcrun_reason" null
  [ -n "$hpcrun_launcher" ] || exit $((128 + $2))
  hpcrun_ask "$1"
}
hpcrun_ended() {  # STATUS: what counts is how the ranks ended; without ranks there is no success
  local code=${hpcrun_code:-$(($1 ? $1 : 1))} answer
  umask go=
  trap "" HUP INT TERM USR1 USR2
  case $hpcrun_reason in stopped* | completed) ;; *) hpcrun_room || hpcrun_reason+="; the disk of the run directory is full" ;; esac
  hpcrun_record "$code" "$hpcrun_reason" "$(date +%s)"
  # submitit's Job.results() reads a pickle; a stopped job gets none, for its scheduler may start it again
  case $code/$hpcrun_reason in
    */stopped*) ;;
    0/*) printf "(S'success'\nI0\nt." >"$HPCRUN_RUN_DIR/${HPCRUN_JOB_ID}_0_result.pkl" ;;
    *) printf "(S'error'\nS'exit code %d: %s'\nt." "$code" "${hpcrun_reason//[\'\"\\]/}" >"$HPCRUN_RUN_DIR/${HPCRUN_JOB_ID}_0_result.pkl" ;;
  esac
  exit "$code"
}
trap 'hpcrun_stopped HUP 1' HUP
trap 'hpcrun_stopped INT 2' INT
trap 'hpcrun_stopped TERM 15' TERM
trap 'hpcrun_ended $?' EXIT
hpcrun_write ""  # blank, until there is something to say: the disk may be full by then; and all signals are minded now
# Nothing can trap SIGKILL, but it closes this pipe: the reader then writes the record and ends the ranks.
exec {HPCRUN_ALIVE}> >(
  trap "" HUP INT TERM
  exec >/dev/null 2>&1
  read -r _
  grep -q '"ended": [0-9]' "$HPCRUN_RUN_DIR/exit.json" || {
    hpcrun_record 137 "the job script was killed by SIGKILL" "$(date +%s)"
    kill -s TERM -- "-$$"
    for file in /proc/[0-9]*/environ; do  # timeout gives the ranks a process group of their own
      pid=${file:6:-8}
      [ "$pid" = "$BASHPID" ] || ! grep -qzxF "HPCRUN_RUN_DIR=$HPCRUN_RUN_DIR" "$file" || kill -s TERM "$pid"
    done
  }
)
mkdir -p "$HPCRUN_RUN_DIR/provenance"
umask "$hpcrun_umask"


# ---- Environment -----------------------------------------------------------------------------------------------
export PATH=/venv/bin${PATH:+:$PATH}
export MPIR_CVAR_CH4_NETMOD=ofi
export HPCRUN_NTASKS=2
export HPCRUN_SITE_NAME=local
export HPCRUN_LAUNCHER=mpiexec
export HPCRUN_MPI_TYPE=''
export HPCRUN_GPUS_PER_NODE=0
export HPCRUN_LOG_LEVEL=WARNING
export PYTHONUNBUFFERED=1 TF_CPP_MIN_LOG_LEVEL="${TF_CPP_MIN_LOG_LEVEL:-1}"
export FI_SOCKETS_IFACE="${FI_SOCKETS_IFACE:-lo}"  # MPICH's ranks are all here: no network that goes away ends them

export KEY='it'"'"'s'


umask go=  # what hpcrun writes again
# ---- What this job is made of, written down beside all else at the lowest priority --------------------------------
( exec >/dev/null 2>&1
  tr : '\n' <<<"${LOADEDMODULES-}" >"$HPCRUN_RUN_DIR/provenance/modules.txt"
  exec nice -n 19 timeout 60 /venv/bin/python -m hpcrun.provenance.packages >"$HPCRUN_RUN_DIR/provenance/packages.txt"
) {HPCRUN_ALIVE}>&- & hpcrun_provenance=$!

# ---- Where the ranks go ----------------------------------------------------------------------------------------
/venv/bin/python -m hpcrun hostfile --format hydra --output "$HPCRUN_RUN_DIR/hostfile" --nodes 1 --ntasks 2 \
  || hpcrun_fail "the hostfile could not be made: is hpcrun installed for this Python (site key python)?"

# Each rank starts through this: it takes its own GPUs and its own log file, and rank 0 also writes to the job's log.
cat >"$HPCRUN_RUN_DIR/rank.sh" <<'RANK'
export HPCRUN_RANK=$PMI_RANK HPCRUN_LOCAL_RANK=$MPI_LOCALRANKID
hpcrun_listed() {  # RANGES: each number of 0-2,5, separated by commas
  local part number numbers=()
  for part in ${1//,/ }; do
    for ((number = ${part%-*}; number <= ${part#*-}; number++)); do numbers+=("$number"); done
  done
  local IFS=,
  echo "${numbers[*]}"
}
hpcrun_tasks_here() {  # SLURM_STEP_TASKS_PER_NODE: how many of 2(x3),1 are on this node
  local part times nodes=${SLURM_NODEID:-0}
  for part in ${1//,/ }; do
    times=1
    if [[ $part == *\(x* ]]; then times=${part#*\(x} times=${times%\)}; fi
    if [ "$nodes" -lt "$times" ]; then echo "${part%%\(*}"; return; fi
    nodes=$((nodes - times))
  done
}
# Bind this process, and so the rank that it becomes, to its share of the cores that it may use: of those of a socket before
# those of the next, a core's hardware threads together. KIND sockets is all of the sockets that this share lies on.
# Where Slurm has bound its tasks, where there are more ranks than cores, and without taskset and lscpu, all stays as it is.
hpcrun_cpu_bind() {  # KIND LOCAL_RANK LOCAL_RANKS
  local kind=$1 rank=$2 ranks=$3 mask cpu node socket core key own='' sockets=' ' cores=()
  local -A cpus=() socket_of=()
  [[ $rank =~ ^[0-9]+$ && $ranks =~ ^[0-9]+$ ]] && [ "$ranks" -gt 1 ] || return 0
  case ${SLURM_CPU_BIND_TYPE:-none} in none) ;; *) return 0 ;; esac
  mask=$(taskset -pc $$ 2>/dev/null) || return 0
  mask=$(hpcrun_listed "${mask##*: }")
  IFS=, read -ra cores <<<"$mask"
  # a share already, though Slurm does not say so
  [ -z "${SLURM_STEP_TASKS_PER_NODE-}" ] || [ $((${#cores[@]} * ranks)) -gt "${SLURM_CPUS_ON_NODE:-0}" ] || return 0
  cores=()
  while IFS=, read -r node socket core cpu; do
    [[ ,$mask, == *",$cpu,"* ]] || continue
    key=$node/$socket/$core
    [ -n "${cpus[$key]-}" ] || cores+=("$key")
    cpus[$key]+=${cpus[$key]:+,}$cpu socket_of[$key]=$socket
  done < <(lscpu -p=NODE,SOCKET,CORE,CPU 2>/dev/null | sed '/^#/d' | sort -t, -k2,2n -k1,1n -k3,3n -k4,4n)
  [ ${#cores[@]} -ge "$ranks" ] || return 0
  local first=$((rank * ${#cores[@]} / ranks)) end=$(((rank + 1) * ${#cores[@]} / ranks))
  for key in "${cores[@]:first:end - first}"; do own+=${own:+,}${cpus[$key]} sockets+="${socket_of[$key]} "; done
  if [ "$kind" = sockets ]; then
    own=
    for key in "${cores[@]}"; do
      [[ $sockets != *" ${socket_of[$key]} "* ]] || own+=${own:+,}${cpus[$key]}
    done
  fi
  taskset -pc "$own" $$ >/dev/null 2>&1 || true
}
hpcrun_cpu_bind cores "$HPCRUN_LOCAL_RANK" "${MPI_LOCALNRANKS-}"
hpcrun_visible=CUDA_VISIBLE_DEVICES
( umask go=; : >>"$HPCRUN_RUN_DIR/logs/rank-$HPCRUN_RANK.log" )
# Starts one rank of a job, and stays its parent: bash rank.bash PROGRAM [ARGUMENT...]
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
: "${hpcrun_visible:?}" "${hpcrun_gpus:=}" "${hpcrun_gpus_per_rank:=}" "${hpcrun_gpu_order:=}"
: "${hpcrun_wired:=}" "${hpcrun_output_on_all_ranks:=}" "${hpcrun_in_container:=}"
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
    sleep 0.04
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
  sleep 2
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
  echo "[rank $HPCRUN_RANK] on $(uname -n) does not start its program: the job is being stopped"
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
echo "[rank $HPCRUN_RANK] host $(uname -n), $hpcrun_visible=${!hpcrun_visible-unset}"
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
  129 | 130 | 131 | 138 | 140 | 143) sleep 0.3 ;;  # a signal from outside, and perhaps to all: this process hears of it
  137) sleep 0.05 ;;                               # likewise, and ends
  14) sleep 0.5 ;;                                 # Open MPI ends a rank so that has lost another: that one comes first
esac
hpcrun_failed=
if [ "$hpcrun_code" != 0 ] && [ -z "$hpcrun_stopped" ] && [[ $hpcrun_codes != *" $hpcrun_code "* ]]; then
  hpcrun_failed=yes
  (
    umask go=
    printf '{"rank": %d, "host": "%s", "exit_code": %d, "time": %d}\n' \
      "$HPCRUN_RANK" "$(uname -n)" "$hpcrun_code" "$(date +%s)" >>"$HPCRUN_RUN_DIR/failed.jsonl"
  )
fi
# Of the output a pipe holds 64 KiB at most. A reader that waits for more has passed on all; then some process that the
# program has left holds the pipe, and gets two seconds for its last words.
for hpcrun_reader in "${hpcrun_readers[@]}"; do
  for ((hpcrun_tries = hpcrun_waits = 0; hpcrun_tries < 750 && hpcrun_waits < 50; hpcrun_tries++)); do
    kill -0 "$hpcrun_reader" 2>/dev/null || continue 2
    read -r _ hpcrun_file _ 2>/dev/null <"/proc/$hpcrun_reader/syscall"
    [ "$hpcrun_file" != 0x0 ] || hpcrun_waits=$((hpcrun_waits + 1))
    sleep 0.04
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
RANK

# ---- Launch ----------------------------------------------------------------------------------------------------
umask "$hpcrun_umask"
timeout --signal=TERM --kill-after=30 1800 mpiexec -launcher fork -f "$HPCRUN_RUN_DIR/hostfile" -n 2 bash "$HPCRUN_RUN_DIR/rank.sh" \
  /venv/bin/python /hpcrun/workloads/resnet50/train.py --synthetic-data {HPCRUN_ALIVE}>&- &
hpcrun_launcher=$!
(  # MPICH's mpiexec may not notice a rank that fails when it has left MPI: the others would wait for ever
  trap "" USR1 USR2
  while read -rt 3; kill -0 "$hpcrun_launcher"; do
    [ ! -s "$HPCRUN_RUN_DIR/failed.jsonl" ] || { read -rt 3; kill -s TERM "$hpcrun_launcher"; break; }
  done
) <> <(:) >/dev/null 2>&1 {HPCRUN_ALIVE}>&- & hpcrun_watch=$!
wait "$hpcrun_launcher"; hpcrun_code=$?
while kill -0 "$hpcrun_launcher" 2>/dev/null; do wait "$hpcrun_launcher"; hpcrun_code=$?; done  # a signal ends wait early
hpcrun_over=yes  # what comes now stops nothing
kill "$hpcrun_watch" 2>/dev/null
hpcrun_who=  # failed.jsonl is the ranks' own: its first line is of the one whose end made the launcher end the others
read -r hpcrun_first 2>/dev/null <"$HPCRUN_RUN_DIR/failed.jsonl"
if [[ ${hpcrun_first-} =~ ^.\"rank\":\ ([0-9]+),\ \"host\":\ \"([^\"]*)\",\ \"exit_code\":\ ([0-9]+), ]]; then
  hpcrun_code=${BASH_REMATCH[3]} hpcrun_who="rank ${BASH_REMATCH[1]} on ${BASH_REMATCH[2]}"
elif [ "$hpcrun_code" != 0 ]; then  # MPI_Abort may kill all ranks before one writes that line; its log ends with MPICH's
  read -r hpcrun_first hpcrun_number < <(
    find "$HPCRUN_RUN_DIR/logs" -name 'rank-*.log' -newer "$HPCRUN_RUN_DIR/starts.jsonl" -exec tail -vn 5 {} + | sed -nE '
    /^==> .*rank-([0-9]+)\.log <==$/ { s//\1/; h }
    /.*application called MPI_Abort\(.*, (-?[0-9]+)\) - process.*/ { s//\1/; G; s/\n/ /; p }')
  if [ -n "$hpcrun_first" ]; then
    hpcrun_code=$((hpcrun_first & 255)) hpcrun_who="rank $hpcrun_number, which called MPI_Abort"
    [ "$hpcrun_code" != 0 ] || hpcrun_code=1
  fi
fi
case $hpcrun_reason/$hpcrun_code in
  "stopped by SIGUSR2/0") hpcrun_reason="completed" ;;  # it was done before its time limit
  stopped*) ;;
  */0) hpcrun_reason="completed" ;;
  */137) hpcrun_reason="the ranks ended with exit code 137${hpcrun_who:+: $hpcrun_who was killed by SIGKILL, most often for want of memory}" ;;
  *) hpcrun_reason="the ranks ended with exit code $hpcrun_code${hpcrun_who:+, that of $hpcrun_who}" ;;
esac
case $hpcrun_reason in *rank\ *) echo "hpcrun: $hpcrun_reason; its last words are in $HPCRUN_RUN_DIR/logs" >&2 ;; esac

case $hpcrun_reason in stopped*) kill "$hpcrun_provenance" 2>/dev/null ;; esac  # it may take longer than is left
# Nothing is to write here when the job has ended. Of a child that ends just as a signal comes, bash forgets that it
# has ended, and would wait for ever.
kill -0 "$hpcrun_provenance" 2>/dev/null && wait "$hpcrun_provenance"
