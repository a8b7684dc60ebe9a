# Functions for jobs of the spool: as on this host, but the spool gives the job id.
#
# Options of job.bash, for jobs of the spool:
#   --queue NAME   the queue of the job, for its provenance
# shellcheck disable=SC2034,SC2154  # hpcrun's library uses these variables
# shellcheck source=/dev/null
source "$hpcrun_library/local.bash"
spool_queue=''
hpcrun_scheduler_option() {
  case $1 in
    --queue) spool_queue=$2 hpcrun_option_words=2 ;;
    *) return 1 ;;
  esac
}
hpcrun_set_job_id() { HPCRUN_JOB_ID=${SPOOL_JOB_ID:?submit the script by python -m hpcrun_spool} hpcrun_nodes=; }
hpcrun_submission_edit() { :; }
hpcrun_record_scheduler() { echo "$spool_queue" >"$HPCRUN_RUN_DIR/provenance/spool.txt"; }
