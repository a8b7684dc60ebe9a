# Functions for jobs of the spool: as on this host, but the spool gives the job id.
# shellcheck disable=SC2034,SC2154  # hpcrun's library uses these variables
# shellcheck source=/dev/null
source "$hpcrun_library/local.bash"
hpcrun_set_job_id() { HPCRUN_JOB_ID=${SPOOL_JOB_ID:?submit the script by python -m hpcrun_spool} hpcrun_nodes=; }
hpcrun_submission_edit() { :; }
