#!/bin/bash
#SBATCH --job-name=resnet50
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --gpus-per-node=4
#SBATCH --chdir=/submitted/from
# resnet50 on site styx, rendered by hpcrun VERSION. This is the whole job: nothing else runs behind it.

export HPCRUN_RUN_DIR=/runs/RUN
export HPCRUN_JOB_ID=$SLURM_JOB_ID
export SLURM_EXPORT_ENV=ALL  # also after --export=NONE, the ranks get the environment below
mkdir -p "$HPCRUN_RUN_DIR/logs"
rm -f "$HPCRUN_RUN_DIR"/{exit.json,result.json,metrics.jsonl,"${HPCRUN_JOB_ID}_0_result.pkl"}

# ---- However this job ends, exit.json says how -----------------------------------------------------------------
hpcrun_started=$(date +%s) hpcrun_reason="the job script ended before the ranks started" hpcrun_launcher= hpcrun_code=
hpcrun_record() {  # CODE REASON ENDED: seconds since 1970, or null while the ranks are still being stopped
  printf '{"exit_code": %d, "reason": "%s", "host": "%s", "job_id": "%s", "started": %d, "ended": %s}\n' \
    "$1" "${2//[\'\"\\]/}" "$(uname -n)" "$HPCRUN_JOB_ID" "$hpcrun_started" "$3" >"$HPCRUN_RUN_DIR/.exit.json"
  mv "$HPCRUN_RUN_DIR/.exit.json" "$HPCRUN_RUN_DIR/exit.json"
}
hpcrun_fail() { hpcrun_reason=$1; echo "hpcrun: $1" >&2; exit 1; }
hpcrun_stopped() {  # SIGNAL NUMBER: record it now, there may be no time later; then let the launcher end the ranks
  hpcrun_reason="stopped by SIG$1"
  hpcrun_record $((128 + $2)) "$hpcrun_reason" null
  [ -n "$hpcrun_launcher" ] || exit $((128 + $2))
  kill -s TERM "$hpcrun_launcher" 2>/dev/null
}
hpcrun_ended() {  # STATUS: what counts is how the ranks ended; without ranks there is no success
  local code=${hpcrun_code:-$(($1 ? $1 : 1))}
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
export LD_LIBRARY_PATH=/opt/GPI/lib64${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
[ -z "${GASPICXX_INSTALLATION_PATH-}" ] || export LD_LIBRARY_PATH="${GASPICXX_INSTALLATION_PATH}"${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
[ -z "${CONDA_PREFIX-}" ] || export LD_LIBRARY_PATH="${CONDA_PREFIX}"/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export MPIR_CVAR_CH4_NETMOD=ofi
export HPCRUN_DATA_IMAGENET=/home/DATA/PUBLIC_DATA/ImageNet
export HPCRUN_NTASKS=8
export HPCRUN_SITE_NAME=styx
export HPCRUN_LAUNCHER=mpiexec
export HPCRUN_MPI_TYPE=''
export HPCRUN_GPUS_PER_NODE=4
export HPCRUN_LOG_LEVEL=WARNING
export PYTHONUNBUFFERED=1 TF_CPP_MIN_LOG_LEVEL="${TF_CPP_MIN_LOG_LEVEL:-1}"

# XLA looks for nvvm/libdevice/libdevice.10.bc below its data dir: link the first that exists where it looks.
for hpcrun_file in "${CONDA_PREFIX-}"/nvvm/libdevice/libdevice.10.bc "${CONDA_PREFIX-}"/lib/nvvm/libdevice/libdevice.10.bc "${CONDA_PREFIX-}"/lib/libdevice.10.bc ; do
  if [ -e "$hpcrun_file" ]; then
    mkdir -p "$HPCRUN_RUN_DIR/cuda/nvvm/libdevice"
    ln -sfn "$hpcrun_file" "$HPCRUN_RUN_DIR/cuda/nvvm/libdevice/libdevice.10.bc"
    export XLA_FLAGS="${XLA_FLAGS:+$XLA_FLAGS }--xla_gpu_cuda_data_dir=$HPCRUN_RUN_DIR/cuda"
    break
  fi
done
export KEY='it'"'"'s'


# ---- Where the ranks go ----------------------------------------------------------------------------------------
/venv/bin/python -m hpcrun hostfile --format hydra --output "$HPCRUN_RUN_DIR/hostfile" --nodes 2 --ntasks-per-node 4 \
  || hpcrun_fail "the hostfile could not be made: is hpcrun installed for this Python (site key python)?"

# Each rank starts through this: it takes its own GPUs and its own log file, and rank 0 also writes to the job's log.
cat >"$HPCRUN_RUN_DIR/rank.sh" <<'RANK'
export HPCRUN_RANK=$PMI_RANK HPCRUN_LOCAL_RANK=$MPI_LOCALRANKID
IFS=, read -ra hpcrun_gpus <<<"${CUDA_VISIBLE_DEVICES-0,1,2,3}"
if [ ${#hpcrun_gpus[@]} -gt 1 ]; then
  hpcrun_gpus=("${hpcrun_gpus[@]:HPCRUN_LOCAL_RANK * 1 % ${#hpcrun_gpus[@]}:1}")
fi
CUDA_VISIBLE_DEVICES=$(IFS=,; echo "${hpcrun_gpus[*]-}")
export CUDA_VISIBLE_DEVICES
echo "[rank $HPCRUN_RANK] host $(uname -n), CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES-unset}"
if [ "$HPCRUN_RANK" = 0 ]; then
  exec > >(trap "" TERM INT HUP USR1 USR2; exec tee -a "$HPCRUN_RUN_DIR/logs/rank-0.log") 2>&1
else
  exec >>"$HPCRUN_RUN_DIR/logs/rank-$HPCRUN_RANK.log" 2>&1
fi
exec "$@"
RANK

# ---- Launch ----------------------------------------------------------------------------------------------------
mpiexec -launcher slurm -f /runs/RUN/hostfile -n 8 bash "$HPCRUN_RUN_DIR/rank.sh" \
  /venv/bin/python /hpcrun/workloads/resnet50/train.py --synthetic-data {HPCRUN_ALIVE}>&- &
hpcrun_launcher=$!
wait "$hpcrun_launcher"; hpcrun_code=$?
while kill -0 "$hpcrun_launcher" 2>/dev/null; do wait "$hpcrun_launcher"; hpcrun_code=$?; done  # a signal ends wait early
case $hpcrun_reason/$hpcrun_code in
  stopped*) ;;
  */0) hpcrun_reason="completed" ;;
  *) hpcrun_reason="the ranks ended with exit code $hpcrun_code" ;;
esac

