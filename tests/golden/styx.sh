#!/bin/bash
#SBATCH --job-name=resnet50
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --gpus-per-node=4
#SBATCH --chdir=/submitted/from
# resnet50 on site styx, rendered by hpcrun VERSION. This is the whole job: nothing else runs behind it.

run_dir=/runs/RUN
job_id=$SLURM_JOB_ID
mkdir -p "$run_dir/logs" && rm -f "$run_dir/exit.json" "$run_dir/${job_id}_0_result.pkl"

# ---- However this job ends, exit.json says how -----------------------------------------------------------------
started=$(date +%s) reason="the job script stopped before the ranks started" launcher=
record() {  # CODE REASON
  local reason=${2//[\'\"\\]/}
  printf '{"exit_code": %d, "reason": "%s", "host": "%s", "job_id": "%s", "started": %d, "ended": %d}\n' \
    "$1" "$reason" "$(uname -n)" "$job_id" "$started" "$(date +%s)" >"$run_dir/.exit.json"
  mv "$run_dir/.exit.json" "$run_dir/exit.json"
  # the same for submitit's Job.results(), which reads a pickle
  if [ "$1" = 0 ]; then printf "(S'success'\nI0\nt."; else printf "(S'error'\nS'exit code %d: %s'\nt." "$1" "$reason"; fi \
    >"$run_dir/${job_id}_0_result.pkl"
}
fail() { reason=$1; echo "hpcrun: $1" >&2; exit 1; }
stopped() {  # SIGNAL NUMBER: record it now, in case there is no time later, and let the launcher end the ranks
  reason="stopped by SIG$1"
  record $((128 + $2)) "$reason"
  [ -n "$launcher" ] || exit $((128 + $2))
  kill -s TERM "$launcher" 2>/dev/null
}
trap 'stopped HUP 1' HUP
trap 'stopped INT 2' INT
trap 'stopped TERM 15' TERM
trap 'record $? "$reason"' EXIT
# Nothing can trap SIGKILL, but it closes this pipe: the reader then writes the record and ends the ranks.
exec {alive}> >(
  trap "" HUP INT TERM
  exec >/dev/null 2>&1
  read -r _ || [ -e "$run_dir/exit.json" ] || { record 137 "the job script was killed by SIGKILL"; kill -s TERM -- "-$$"; }
)

set -u

# ---- Environment -----------------------------------------------------------------------------------------------
export PATH=/venv/bin${PATH:+:$PATH}
export LD_LIBRARY_PATH=/opt/GPI/lib64${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
[ -z "${GASPICXX_INSTALLATION_PATH-}" ] || export LD_LIBRARY_PATH="${GASPICXX_INSTALLATION_PATH}"${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
[ -z "${CONDA_PREFIX-}" ] || export LD_LIBRARY_PATH="${CONDA_PREFIX}"/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export MPIR_CVAR_CH4_NETMOD=ofi
export HPCRUN_RUN_DIR=/runs/RUN
export HPCRUN_NTASKS=8
export HPCRUN_SITE_NAME=styx
export HPCRUN_LAUNCHER=mpiexec
export HPCRUN_MPI_TYPE=''
export HPCRUN_GPUS_PER_NODE=4
export HPCRUN_LOG_LEVEL=WARNING
export HPCRUN_DATA_IMAGENET=/home/DATA/PUBLIC_DATA/ImageNet
export PYTHONUNBUFFERED=1 TF_CPP_MIN_LOG_LEVEL="${TF_CPP_MIN_LOG_LEVEL:-1}"

# XLA looks for nvvm/libdevice/libdevice.10.bc below its data dir: link the first that exists where it looks.
for libdevice in "${CONDA_PREFIX-}"/nvvm/libdevice/libdevice.10.bc "${CONDA_PREFIX-}"/lib/nvvm/libdevice/libdevice.10.bc "${CONDA_PREFIX-}"/lib/libdevice.10.bc ; do
  if [ -e "$libdevice" ]; then
    mkdir -p "$run_dir/cuda/nvvm/libdevice" && ln -sfn "$libdevice" "$run_dir/cuda/nvvm/libdevice/libdevice.10.bc"
    export XLA_FLAGS="${XLA_FLAGS:+$XLA_FLAGS }--xla_gpu_cuda_data_dir=$run_dir/cuda"
    break
  fi
done
export KEY='it'"'"'s'


# ---- Where the ranks go ----------------------------------------------------------------------------------------
/venv/bin/python -m hpcrun hostfile --format hydra --output "$run_dir/hostfile" --ntasks-per-node 4 \
  || fail "the hostfile could not be made"

# Each rank starts through this: it takes its own GPUs and its own log file, and rank 0 also writes to the job's log.
cat >"$run_dir/rank.sh" <<'RANK'
rank=$PMI_RANK local_rank=$MPI_LOCALRANKID
IFS=, read -ra gpus <<<"${CUDA_VISIBLE_DEVICES-0,1,2,3}"
if [ ${#gpus[@]} -gt 1 ]; then
  gpus=("${gpus[@]:local_rank * 1 % ${#gpus[@]}:1}")
fi
CUDA_VISIBLE_DEVICES=$(IFS=,; echo "${gpus[*]-}")
export CUDA_VISIBLE_DEVICES
log=/runs/RUN/logs/rank-$rank.log
echo "[rank $rank] host $(uname -n), CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES-unset}"
if [ "$rank" = 0 ]; then exec > >(trap "" TERM INT HUP; exec tee -a "$log") 2>&1; else exec >>"$log" 2>&1; fi
exec "$@"
RANK

# ---- Launch ----------------------------------------------------------------------------------------------------
mpiexec -launcher slurm -f /runs/RUN/hostfile -n 8 bash "$run_dir/rank.sh" \
  /venv/bin/python /hpcrun/workloads/resnet50/train.py --synthetic-data {alive}>&- &
launcher=$!
wait "$launcher"; code=$?
while kill -0 "$launcher" 2>/dev/null; do wait "$launcher"; code=$?; done  # a trapped signal ends wait early
case $code/$reason in
  0/*) reason="completed" ;;
  */stopped*) ;;
  *) reason="the ranks ended with exit code $code" ;;
esac

exit "$code"
