#!/bin/bash
# a.out on site local, rendered by hpcrun VERSION. This is the whole job: nothing else runs behind it.

export HPCRUN_TASK=${HPCRUN_TASK:?which task of the sweep, from 0 on}
export HPCRUN_RUN_DIR=/runs/RUN/RUN.$HPCRUN_TASK
export HPCRUN_JOB_ID=$$
cd /submitted/from || exit
mkdir -p "$HPCRUN_RUN_DIR/logs"
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
rm -f "$HPCRUN_RUN_DIR"/{exit.json,result.json,heartbeats/*.json,"${HPCRUN_JOB_ID}_0_result.pkl"}

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
  trap "" HUP INT TERM USR1 USR2
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
  }
)


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

export KEY='it'"'"'s'

# Tasks wait for their turn: as many run at the same time as there are places.
exec {hpcrun_place}>>/runs/RUN/.place-$((HPCRUN_TASK % 3))
flock "$hpcrun_place" & wait $!
hpcrun_started=$(date +%s)


# What the user has set counts, whatever else has set it.
export KEY='it'"'"'s'

# ---- A sweep: each task has values of its own, and a run directory ---------------------------------------------
case $HPCRUN_TASK in
  0) hpcrun_program=(./a.out 'two words' --lr=0.1 --seed=1) ;;
  1) hpcrun_program=(./a.out 'two words' --lr=0.1 --seed=2) ;;
  2) hpcrun_program=(./a.out 'two words' --lr=0.01 --seed=1) ;;
  3) hpcrun_program=(./a.out 'two words' --lr=0.01 --seed=2) ;;
esac

# ---- What this job is made of, written down beside all else at the lowest priority --------------------------------
mkdir -p "$HPCRUN_RUN_DIR/provenance"
( exec >/dev/null 2>&1
  tr : '\n' <<<"${LOADEDMODULES-}" >"$HPCRUN_RUN_DIR/provenance/modules.txt"
  exec nice -n 19 timeout 60 /venv/bin/python -m hpcrun.provenance.packages >"$HPCRUN_RUN_DIR/provenance/packages.txt"
) {HPCRUN_ALIVE}>&- {hpcrun_place}>&- & hpcrun_provenance=$!

# ---- Where the ranks go ----------------------------------------------------------------------------------------
/venv/bin/python -m hpcrun hostfile --format hydra --output "$HPCRUN_RUN_DIR/hostfile" --nodes 1 --ntasks 2 \
  || hpcrun_fail "the hostfile could not be made: is hpcrun installed for this Python (site key python)?"

# Each rank starts through this: it takes its own GPUs and its own log file, and rank 0 also writes to the job's log.
cat >"$HPCRUN_RUN_DIR/rank.sh" <<'RANK'
export HPCRUN_RANK=$PMI_RANK HPCRUN_LOCAL_RANK=$MPI_LOCALRANKID
echo "[rank $HPCRUN_RANK] host $(uname -n), CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES-unset}"
if [ "$HPCRUN_RANK" = 0 ]; then
  exec > >(trap "" TERM INT HUP USR1 USR2; exec tee -a "$HPCRUN_RUN_DIR/logs/rank-0.log") 2>&1
else
  exec >>"$HPCRUN_RUN_DIR/logs/rank-$HPCRUN_RANK.log" 2>&1
fi
exec "$@"
RANK

# ---- Launch ----------------------------------------------------------------------------------------------------
mpiexec -launcher fork -f "$HPCRUN_RUN_DIR/hostfile" -n 2 bash "$HPCRUN_RUN_DIR/rank.sh" \
  "${hpcrun_program[@]}" {HPCRUN_ALIVE}>&- {hpcrun_place}>&- &
hpcrun_launcher=$!
wait "$hpcrun_launcher"; hpcrun_code=$?
while kill -0 "$hpcrun_launcher" 2>/dev/null; do wait "$hpcrun_launcher"; hpcrun_code=$?; done  # a signal ends wait early
hpcrun_over=yes  # what comes now stops nothing
case $hpcrun_reason/$hpcrun_code in
  "stopped by SIGUSR2/0") hpcrun_reason="completed" ;;  # it was done before its time limit
  stopped*) ;;
  */0) hpcrun_reason="completed" ;;
  *) hpcrun_reason="the ranks ended with exit code $hpcrun_code" ;;
esac

case $hpcrun_reason in stopped*) kill "$hpcrun_provenance" 2>/dev/null ;; esac  # it may take longer than is left
# Nothing is to write here when the job has ended. Of a child that ends just as a signal comes, bash forgets that it
# has ended, and would wait for ever.
kill -0 "$hpcrun_provenance" 2>/dev/null && wait "$hpcrun_provenance"
