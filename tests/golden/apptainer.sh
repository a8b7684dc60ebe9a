#!/bin/bash
#SBATCH --job-name=resnet50
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --gpus-per-node=4
#SBATCH --chdir=/submitted/from
# resnet50 on site own, rendered by hpcrun VERSION. This is the whole job: nothing else runs behind it.

export HPCRUN_RUN_DIR=/runs/RUN
export HPCRUN_JOB_ID=$SLURM_JOB_ID
export SLURM_EXPORT_ENV=ALL  # also after --export=NONE, the ranks get the environment below
mkdir -p "$HPCRUN_RUN_DIR/logs"
hpcrun_becomes() {  # JOB: from here on this run is that job, with the log that it has
  local before end
  before=$(sed -n 's/.*"job_id": "\([^"]*\)".*/\1/p' "$HPCRUN_RUN_DIR/submitted.json" 2>/dev/null)
  [ -n "$before" ] && [ "$before" != "$1" ] || return
  for end in out err; do ln -sfn "${before}_0_log.$end" "$HPCRUN_RUN_DIR/${1}_0_log.$end"; done
  sed "s/\"job_id\": \"[^\"]*\"/\"job_id\": \"$1\"/" "$HPCRUN_RUN_DIR/submitted.json" \
    >"$HPCRUN_RUN_DIR/.submitted.json" && mv "$HPCRUN_RUN_DIR/.submitted.json" "$HPCRUN_RUN_DIR/submitted.json"
}
if hpcrun_becomes "$HPCRUN_JOB_ID"; then  # somebody has started this script again
  echo "hpcrun: the log goes on in $HPCRUN_RUN_DIR/${HPCRUN_JOB_ID}_0_log.out"
  exec >>"$HPCRUN_RUN_DIR/${HPCRUN_JOB_ID}_0_log.out" 2>>"$HPCRUN_RUN_DIR/${HPCRUN_JOB_ID}_0_log.err"
fi
hpcrun_started=$(date +%s) hpcrun_requeued=false
grep -qs 'time limit.*"requeued": true' "$HPCRUN_RUN_DIR/exit.json" && hpcrun_requeued=true
printf '{"job_id": "%s", "slurm_job": "%s", "host": "%s", "nodes": "%s", "started": %d, "requeued": %s}\n' \
  "$HPCRUN_JOB_ID" "${SLURM_JOB_ID-}" "$(uname -n)" "$SLURM_JOB_NODELIST" "$hpcrun_started" "$hpcrun_requeued" \
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
hpcrun_ask() {  # SIGNAL: the ranks get it, and time to write a checkpoint; on SIGTERM srun itself would kill them
  [ "$1" != USR2 ] && scancel --signal=TERM "$HPCRUN_JOB_ID" 2>/dev/null || kill -s USR2 "$hpcrun_launcher" 2>/dev/null
}
hpcrun_stopped() {  # SIGNAL NUMBER: record it now, there may be no time later; then let the ranks end by themselves
  [ -z "$hpcrun_over" ] && [ "$hpcrun_reason" != "stopped by SIG$1" ] || return
  hpcrun_reason="stopped by SIG$1"
  hpcrun_record $((128 + $2)) "$hpcrun_reason" null
  [ -n "$hpcrun_launcher" ] || exit $((128 + $2))
  hpcrun_ask "$1"
}
hpcrun_requeues() { [ -n "$HPCRUN_JOB_ID" ] && [[ $(scontrol show job "$HPCRUN_JOB_ID" 2>/dev/null) == *Requeue=1*$1* ]]; }
hpcrun_log() { tail -c "+$((hpcrun_told + 1))" "$HPCRUN_RUN_DIR/${HPCRUN_JOB_ID}_0_log.err" 2>/dev/null; }  # this start's
hpcrun_node_failed() {  # the ranks, and srun, hear of it before the script does
  hpcrun_log | grep '^srun: error: Node failure' && return
  false
} >/dev/null 2>&1
hpcrun_await_slurm() {  # CODE: when Slurm finds out, it ends this script and starts the job again
  local seconds end reason=$hpcrun_reason
  hpcrun_requeued=true hpcrun_reason="stopped by the failure of a node; requeued"
  hpcrun_record "$1" "$hpcrun_reason" "$(date +%s)"
  echo "hpcrun: a node of this job does not answer; Slurm starts the job again when it finds that out" >&2
  seconds=$(scontrol show config 2>/dev/null | sed -n 's/^SlurmdTimeout *= \([0-9]*\).*/\1/p')
  end=$((SECONDS + ${seconds:-300} + 60))
  trap 'end=' TERM
  while [ "$SECONDS" -lt "${end:-0}" ]; do sleep 1; done
  trap "" TERM
  [ -z "$end" ] || hpcrun_requeued=false hpcrun_reason=$reason
}
hpcrun_ended() {  # STATUS: what counts is how the ranks ended; without ranks there is no success
  local code=${hpcrun_code:-$(($1 ? $1 : 1))} answer
  trap "" HUP INT TERM USR1 USR2
  case $hpcrun_reason in
    the\ ranks*)
      if hpcrun_requeues PreemptTime=[0-9]; then  # in its grace time Slurm tells the ranks alone, and would not requeue a job that ends
        hpcrun_requeued=true hpcrun_back=yes hpcrun_reason="stopped by preemption; requeued"
      elif hpcrun_node_failed && hpcrun_requeues; then hpcrun_await_slurm "$code"
      fi ;;
  esac
  hpcrun_record "$code" "$hpcrun_reason" "$(date +%s)"
  # submitit's Job.results() reads a pickle; a stopped job gets none, for its scheduler may start it again
  case $code/$hpcrun_reason in
    */stopped*) ;;
    0/*) printf "(S'success'\nI0\nt." >"$HPCRUN_RUN_DIR/${HPCRUN_JOB_ID}_0_result.pkl" ;;
    *) printf "(S'error'\nS'exit code %d: %s'\nt." "$code" "${hpcrun_reason//[\'\"\\]/}" >"$HPCRUN_RUN_DIR/${HPCRUN_JOB_ID}_0_result.pkl" ;;
  esac
  if [ -n "$hpcrun_back" ] && ! answer=$(scontrol requeue "$HPCRUN_JOB_ID" 2>&1); then
    answer=${answer//$'\n'/ } hpcrun_requeued=false
    hpcrun_record "$code" "${hpcrun_reason%%; *}; scontrol requeue fails: ${answer:0:300}" "$(date +%s)"
  fi
  [ -z "$hpcrun_cancelled" ] || scancel "$HPCRUN_JOB_ID"  # for Slurm, too, it did not fail
  exit "$code"
}
trap 'hpcrun_stopped HUP 1' HUP
trap 'hpcrun_stopped INT 2' INT
trap 'hpcrun_stopped TERM 15' TERM
trap 'hpcrun_ended $?' EXIT
hpcrun_cancelled= hpcrun_back=
trap '[ -n "$hpcrun_over" ] || { hpcrun_cancelled=yes; hpcrun_stopped TERM 15; }' USR1  # hpcrun cancel
trap '[ "$hpcrun_reason" = "stopped by SIGTERM" ] || hpcrun_stopped USR2 12' USR2  # the time limit is near
hpcrun_told=$(stat -Lc %s "$HPCRUN_RUN_DIR/${HPCRUN_JOB_ID}_0_log.err" 2>/dev/null)  # what is in it by now is an earlier start's
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

# ---- Modules ---------------------------------------------------------------------------------------------------
type module >/dev/null 2>&1 || source /etc/profile
type module >/dev/null 2>&1 || hpcrun_fail "there is no command module here, even after /etc/profile (site key modules)"
module load apptainer || hpcrun_fail 'module apptainer cannot be loaded (site key modules.load)'

# ---- Environment -----------------------------------------------------------------------------------------------
export PATH=/venv/bin${PATH:+:$PATH}
export MPIR_CVAR_CH4_NETMOD=ofi
export NCCL_DEBUG=WARN
export HPCRUN_DATA_IMAGENET="${SCRATCH?site key data.imagenet names it}"/imagenet
export HPCRUN_NTASKS=8
export HPCRUN_SITE_NAME=own
export HPCRUN_LAUNCHER=srun
export HPCRUN_MPI_TYPE=pmi2
export HPCRUN_GPUS_PER_NODE=4
export HPCRUN_LOG_LEVEL=WARNING
export PYTHONUNBUFFERED=1 TF_CPP_MIN_LOG_LEVEL="${TF_CPP_MIN_LOG_LEVEL:-1}"

export KEY='it'"'"'s'


# ---- The container ---------------------------------------------------------------------------------------------
type apptainer >/dev/null 2>&1 || hpcrun_fail "the command apptainer is not there (site key container.runtime); name a module that brings it"
hpcrun_image="${PROJECT?the table container of the site file names it}"/images/tf.sif
[[ $hpcrun_image != /* || -e $hpcrun_image ]] || hpcrun_fail "there is no image $hpcrun_image (site key container.image, or --container)"
hpcrun_binds=(
  /runs/RUN:/runs/RUN
  /submitted/from:/submitted/from
  /hpcrun/workloads/resnet50:/hpcrun/workloads/resnet50
  "${HOME?the table container of the site file names it}"/keys:/keys:ro
  /opt/slurm:/opt/slurm
  "$(/venv/bin/python -c 'import hpcrun; print(*hpcrun.__path__)')":/hpcrun/hpcrun:ro
)
for hpcrun_folder in "$HPCRUN_DATA_IMAGENET" ; do
  [ ! -e "$hpcrun_folder" ] || hpcrun_binds+=("$hpcrun_folder:$hpcrun_folder")
done
hpcrun_variables=(  # inside the container alone
  PYTHONNOUSERSITE=1  # packages in the home folder are the host's
  PYTHONPATH=/hpcrun
  PYTHONPATH=/hpcrun:/keys/packages
  KEY='it'"'"'s'
)
hpcrun_container=(apptainer exec --pwd=/submitted/from --rocm --no-home)
for hpcrun_bind in "${hpcrun_binds[@]}"; do hpcrun_container+=(--bind "$hpcrun_bind"); done
# Every rank starts in the container through this, which knows what its launcher has told it.
{ declare -p hpcrun_container hpcrun_variables hpcrun_image; cat <<'CONTAINER'; } >"$HPCRUN_RUN_DIR/container.sh"
for hpcrun_name in PYTHONUNBUFFERED XLA_FLAGS TF_CPP_MIN_LOG_LEVEL ROCR_VISIBLE_DEVICES "${!HPCRUN_@}" "${!SLURM_@}" "${!PMI@}" "${!PALS_@}" "${!OMPI_@}" "${!PRTE_@}" "${!MPI@}" "${!I_MPI_@}" "${!NCCL_@}" "${!RCCL_@}" "${!UCX_@}" "${!FI_@}" "${!OMP_@}"; do
  [ -z "${!hpcrun_name+set}" ] || hpcrun_variables=("$hpcrun_name=${!hpcrun_name}" "${hpcrun_variables[@]}")
done
export APPTAINER_NO_EVAL=1 "${hpcrun_variables[@]/#/APPTAINERENV_}"  # $ and ` are no more than that
[ ! -d "${PMIX_SERVER_TMPDIR-}" ] || hpcrun_container+=(--bind "$PMIX_SERVER_TMPDIR:$PMIX_SERVER_TMPDIR")
exec "${hpcrun_container[@]}" "$hpcrun_image" "$@"
CONTAINER
hpcrun_answer=$(bash "$HPCRUN_RUN_DIR/container.sh" python3 -c 'from importlib.util import find_spec as f; print(f("tomllib") and f("hpcrun") and "hpcrun")') \
  || hpcrun_fail 'python3 does not start in the container (site key container.python); what apptainer says is in the log'
[ "${hpcrun_answer##*$'\n'}" = hpcrun ] || echo "hpcrun: WARNING: "python3" in $hpcrun_image is no Python 3.11 or later that finds hpcrun: programs cannot import hpcrun.train" >&2

# ---- What this job is made of, written down beside all else at the lowest priority --------------------------------
mkdir -p "$HPCRUN_RUN_DIR/provenance"
( exec >/dev/null 2>&1
  tr : '\n' <<<"${LOADEDMODULES-}" >"$HPCRUN_RUN_DIR/provenance/modules.txt"
  [ -z "${SLURM_JOB_ID-}" ] || scontrol show job "$SLURM_JOB_ID" >"$HPCRUN_RUN_DIR/provenance/slurm.txt"
  exec nice -n 19 timeout 60 bash "$HPCRUN_RUN_DIR/container.sh" python3 -m hpcrun.provenance.packages >"$HPCRUN_RUN_DIR/provenance/packages.txt"
) {HPCRUN_ALIVE}>&- & hpcrun_provenance=$!

# ---- Where the ranks go ----------------------------------------------------------------------------------------
/venv/bin/python -m hpcrun hostfile --format plain --output "$HPCRUN_RUN_DIR/hostfile" --nodes 2 --ntasks-per-node 4 \
  || hpcrun_fail "the hostfile could not be made: is hpcrun installed for this Python (site key python)?"

# Each rank starts through this: it takes its own GPUs and its own log file, and rank 0 also writes to the job's log.
cat >"$HPCRUN_RUN_DIR/rank.sh" <<'RANK'
export HPCRUN_RANK=$SLURM_PROCID HPCRUN_LOCAL_RANK=$SLURM_LOCALID
IFS=, read -ra hpcrun_gpus <<<"${ROCR_VISIBLE_DEVICES-0,1,2,3}"
if [ ${#hpcrun_gpus[@]} -gt 1 ]; then
  hpcrun_gpus=("${hpcrun_gpus[@]:HPCRUN_LOCAL_RANK * 1 % ${#hpcrun_gpus[@]}:1}")
fi
ROCR_VISIBLE_DEVICES=$(IFS=,; echo "${hpcrun_gpus[*]-}")
export ROCR_VISIBLE_DEVICES
echo "[rank $HPCRUN_RANK] host $(uname -n), ROCR_VISIBLE_DEVICES=${ROCR_VISIBLE_DEVICES-unset}"
if [ "$HPCRUN_RANK" = 0 ] && ! [ -n "${PMI_RANK-}${PMI_FD-}${PMIX_RANK-}" ]; then
  echo "hpcrun: WARNING: srun gave the ranks no PMI or PMIx: MPI programs would run as 8 worlds of one rank; set mpi.type in site $HPCRUN_SITE_NAME" >&2
fi
if [ "$HPCRUN_RANK" = 0 ]; then
  exec > >(trap "" TERM INT HUP USR1 USR2; exec tee -a "$HPCRUN_RUN_DIR/logs/rank-0.log") 2>&1
else
  exec >>"$HPCRUN_RUN_DIR/logs/rank-$HPCRUN_RANK.log" 2>&1
fi
exec bash "$HPCRUN_RUN_DIR/container.sh" "$@"
RANK

# ---- Launch ----------------------------------------------------------------------------------------------------
srun --ntasks=8 --nodes=2 --ntasks-per-node=4 --mpi=pmi2 --kill-on-bad-exit=1 bash "$HPCRUN_RUN_DIR/rank.sh" \
  python3 /hpcrun/workloads/resnet50/train.py --synthetic-data {HPCRUN_ALIVE}>&- &
hpcrun_launcher=$!
wait "$hpcrun_launcher"; hpcrun_code=$?
while kill -0 "$hpcrun_launcher" 2>/dev/null; do wait "$hpcrun_launcher"; hpcrun_code=$?; done  # a signal ends wait early
hpcrun_over=yes  # what comes now stops nothing
hpcrun_said=$(hpcrun_log | grep '^srun: ')
if [ "$hpcrun_code" = 0 ]; then
  [[ $hpcrun_said != *"Job step aborted"* ]] || hpcrun_code=1  # srun did not hear how all ranks ended
elif [ "$hpcrun_code" -gt 128 ] && [[ $hpcrun_said != *"Node failure"* ]]; then
  # the highest code of all, which may be that of ranks that srun ended because another had failed: find that one's
  hpcrun_first=$(sed -nE <<<"$hpcrun_said" '/^srun: error: /{
    s/.*: tasks? [^:]*: //; s/^Exited with exit code //; s/^Killed$/137/; s/^User defined signal 2$/140/
    s/^Segmentation fault.*/139/; s/^Aborted.*/134/; s/^Bus error.*/135/; s/^Illegal instruction.*/132/
    /^[0-9]+$/p; q
  }')
  hpcrun_code=${hpcrun_first:-$hpcrun_code}
fi
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
