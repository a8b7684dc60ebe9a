# Starts the record of a job. Every job script loads this file first:
#
#   . job.bash VERSION SCHEDULER [OPTION...] || exit 1
#
# It records the end of the job, whatever the cause, in exit.json in the run directory, forwards signals to the ranks, and
# loads the other files. It copies these files to the run directory, so that an upgrade of hpcrun does not affect a job that
# has started. For a script that was submitted by hand, job.bash also creates the run directory.
#
#   VERSION              the version of hpcrun that rendered the script, which must be the version of these files
#   SCHEDULER            slurm or local, to load slurm.bash or local.bash; or the path of the bash file of another scheduler,
#                        with the same functions. The scheduler's file documents further options, which only it has
#   --python PROGRAM     the job's Python interpreter, in which hpcrun is installed
#   --python-key KEY     the site key that sets the job's Python, for messages; default: python
#   --share-runs         other users may read the run directory
#   --sweep              the job is a task of a sweep: its run directory is in that of the sweep, which has the copied files
# Environment:
#   HPCRUN_RUN_DIR       the run directory; HPCRUN_TASK: the number of the task in a sweep
# Variables:
#   hpcrun_library       the folder of these files; result: the run's own copy, if there is one
#   hpcrun_run           result: the run directory, or that of the sweep; hpcrun_started: the start time in s since 1970
#   hpcrun_python, hpcrun_python_key, hpcrun_mode, hpcrun_sweep    result: values of the options; hpcrun_mode is a umask
# shellcheck disable=SC2034,SC2154  # these files share variables
hpcrun_version=0.1.0
hpcrun_scheduler=${2-} hpcrun_python=python3 hpcrun_python_key=python hpcrun_mode='go=' hpcrun_sweep=''
# shellcheck source=/dev/null
builtin source "$hpcrun_library/protect.bash" || return 1
hpcrun_protect
if [[ ${1-} != "$hpcrun_version" ]]; then
  echo "hpcrun: $hpcrun_library is of hpcrun $hpcrun_version, but this script of ${1:-no version}: submit the job again" >&2
  return 1
fi
shift 2
for hpcrun_file in record signals environment stage container world outcome launch; do
  # shellcheck source=/dev/null
  source "$hpcrun_library/$hpcrun_file.bash" || return 1
done
hpcrun_file=$hpcrun_library/$(command basename "$hpcrun_scheduler" .bash).bash
[[ -e $hpcrun_file || $hpcrun_scheduler != */* ]] || hpcrun_file=$hpcrun_scheduler
# shellcheck source=/dev/null
source "$hpcrun_file" || return 1
while [[ $# -gt 0 ]]; do
  hpcrun_option_words=1
  case $1 in
    --python) hpcrun_python=$2 hpcrun_option_words=2 ;;
    --python-key) hpcrun_python_key=$2 hpcrun_option_words=2 ;;
    --share-runs) hpcrun_mode=go-w ;;
    --sweep) hpcrun_sweep=yes ;;
    *) hpcrun_scheduler_option "$1" "${2-}" || { echo "hpcrun: job.bash has no option $1" >&2 && return 1; } ;;
  esac
  shift "$hpcrun_option_words" || { echo "hpcrun: option $1 of job.bash needs a value" >&2 && return 1; }
done
hpcrun_protect  # again, with the umask of --share-runs

# ---- The run directory -----------------------------------------------------------------------------------------------
hpcrun_run=$HPCRUN_RUN_DIR
[ -z "$hpcrun_sweep" ] || hpcrun_run=${HPCRUN_RUN_DIR%/*}
[ -n "$hpcrun_sweep" ] || unset HPCRUN_TASK  # set by an outer job
[ -z "${HPCRUN_RANK-}" ] || unset "${hpcrun_world_names[@]}"  # set by a rank that submitted this job
unset HPCRUN_RANK HPCRUN_LOCAL_RANK HPCRUN_MPI_TYPE HPCRUN_STAGED
hpcrun_set_job_id
export HPCRUN_JOB_ID
command mkdir -p "$HPCRUN_RUN_DIR/logs"
if [ ! -O "$HPCRUN_RUN_DIR" ] || [ ! -O "$hpcrun_run" ]; then
  echo "hpcrun: the run directory $HPCRUN_RUN_DIR belongs to another user" >&2
  exit 1
fi
hpcrun_exit_disk_full() {
  echo "hpcrun: no space for the record of this job in $HPCRUN_RUN_DIR: its disk is full" >&2
  exit 1
}
hpcrun_has_space || hpcrun_exit_disk_full
if [ "$hpcrun_library" != "$hpcrun_run/shell" ] && [ ! -e "$hpcrun_run/shell" ]; then  # another start of this script may do the same
  hpcrun_copy=$hpcrun_run/.shell.$(command uname -n).$$
  if ! command mkdir -p "$hpcrun_copy" || ! command cp "$hpcrun_library"/*.{bash,py} "$hpcrun_copy" 2>/dev/null ||
    { [ "$hpcrun_file" = "$hpcrun_scheduler" ] && ! command cp "$hpcrun_file" "$hpcrun_copy"; }; then
    command rm -rf "$hpcrun_copy"
    hpcrun_exit_disk_full
  fi
  command mv -nT "$hpcrun_copy" "$hpcrun_run/shell" 2>/dev/null
  command rm -rf "$hpcrun_copy"
fi
[ ! -O "$hpcrun_run/shell" ] || [ ! -O "$hpcrun_run/shell/job.bash" ] || hpcrun_library=$hpcrun_run/shell
command chmod "$hpcrun_mode" "$HPCRUN_RUN_DIR/${HPCRUN_JOB_ID}"_0_log.{out,err} 2>/dev/null  # the scheduler has created them
if hpcrun_continue_as "$HPCRUN_JOB_ID"; then  # this script was started again, as another job
  echo "hpcrun: the log continues in $HPCRUN_RUN_DIR/${HPCRUN_JOB_ID}_0_log.out"
  exec >>"$HPCRUN_RUN_DIR/${HPCRUN_JOB_ID}_0_log.out" 2>>"$HPCRUN_RUN_DIR/${HPCRUN_JOB_ID}_0_log.err"
fi

# ---- The record ------------------------------------------------------------------------------------------------------
hpcrun_started=$(command date +%s) hpcrun_requeued=false hpcrun_more_memory=false
command grep -qs 'time limit.*"requeued": true' "$HPCRUN_RUN_DIR/exit.json" && hpcrun_requeued=true
command grep -qs 'lack of memory.*"requeued": true' "$HPCRUN_RUN_DIR/exit.json" && hpcrun_more_memory=true
printf '{"job_id": "%s", "slurm_job": "%s", "host": "%s", "nodes": "%s", "started": %d, "requeued": %s, "more_memory": %s}\n' \
  "$HPCRUN_JOB_ID" "${SLURM_JOB_ID-}" "$(command uname -n)" "$hpcrun_nodes" "$hpcrun_started" "$hpcrun_requeued" \
  "$hpcrun_more_memory" >>"$HPCRUN_RUN_DIR/starts.jsonl"
# A restarted job continues with its checkpoints and metrics.jsonl; the records of its previous end are removed.
command rm -f "$HPCRUN_RUN_DIR"/{exit.json,result.json,failed.jsonl,heartbeats/*.json,"${HPCRUN_JOB_ID}_0_result.pkl"}
hpcrun_reason='the job script ended before the ranks started' hpcrun_code='' hpcrun_ranks_ended='' hpcrun_requeued=false
hpcrun_launcher='' hpcrun_stop_signal=TERM hpcrun_hides_signals='' hpcrun_slot=''
hpcrun_trap_signals
command mkdir -p "$HPCRUN_RUN_DIR/provenance"

# Remove the CUDA folder of an outer job from XLA_FLAGS, because it may not exist any more.
hpcrun_outer_cuda='--xla_gpu_cuda_data_dir=("([^"\]|\\.)*|[^" ]*)-[0-9]{8}-[0-9]{6}-[0-9a-f]{8}(\.[0-9]+)?/cuda"?( |$)'
while [[ ${XLA_FLAGS-} =~ $hpcrun_outer_cuda ]]; do
  XLA_FLAGS=${XLA_FLAGS/"${BASH_REMATCH[0]}"/}
  XLA_FLAGS=${XLA_FLAGS% }
done
hpcrun_restore
