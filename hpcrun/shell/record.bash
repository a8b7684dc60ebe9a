# Writes what becomes of a job into its run directory: exit.json, and the pickle that submitit's Job.results() reads.
#
# hpcrun_room                    whether the disk has room for a record
# hpcrun_record CODE REASON END  writes exit.json; END: seconds since 1970, or null while the ranks are still being stopped
# hpcrun_fail REASON             says why the job cannot go on, records it and ends the job
# hpcrun_become JOB              from here on this run is that job, with the log that it has; false where it is already
# hpcrun_end STATUS              the EXIT trap: what counts is how the ranks ended; without ranks there is no success
#
# Variables:
#   HPCRUN_RUN_DIR, HPCRUN_JOB_ID, hpcrun_mode
#   hpcrun_started               when the job began, in seconds since 1970
#   hpcrun_reason, hpcrun_code   how it ended; the code is empty where no rank has
#   hpcrun_requeued              true where the job goes back to the queue, else false
# A scheduler's file defines what it does at the end: hpcrun_before_end, hpcrun_after_end, and hpcrun_resubmitted.
# shellcheck disable=SC2034,SC2154  # variables are those of all these files
hpcrun_room() {
  printf '%4096s' '' >"$HPCRUN_RUN_DIR/.room"
  set -- "$?"
  command rm -f "$HPCRUN_RUN_DIR/.room"
  return "$1"
} 2>/dev/null
hpcrun_write() { printf '%-1023s\n' "$1" 1<>"$HPCRUN_RUN_DIR/exit.json"; }  # in place, where it takes no more room
hpcrun_record() {
  printf -v hpcrun_text '{"exit_code": %d, "reason": "%s", "host": "%s", "job_id": "%s", "started": %d, "ended": %s, "requeued": %s}' \
    "$1" "${2//[\'\"\\]/}" "$(command uname -n)" "$HPCRUN_JOB_ID" "$hpcrun_started" "$3" "$hpcrun_requeued"
  hpcrun_write "$hpcrun_text"
}
hpcrun_fail() {
  hpcrun_plain
  hpcrun_reason=$1
  echo "hpcrun: $1" >&2
  exit 1
}
hpcrun_become() {
  hpcrun_before=$(command sed -n 's/.*"job_id": "\([^"]*\)".*/\1/p' "$HPCRUN_RUN_DIR/submitted.json" 2>/dev/null)
  [ -n "$hpcrun_before" ] && [ "$hpcrun_before" != "$1" ] || return 1
  command ln -sfn "${hpcrun_before}_0_log.out" "$HPCRUN_RUN_DIR/${1}_0_log.out"
  command ln -sfn "${hpcrun_before}_0_log.err" "$HPCRUN_RUN_DIR/${1}_0_log.err"
  command sed -e "s/\"job_id\": \"[^\"]*\"/\"job_id\": \"$1\"/" -e "$(hpcrun_resubmitted)" "$HPCRUN_RUN_DIR/submitted.json" \
    >"$HPCRUN_RUN_DIR/.submitted.json" && command mv "$HPCRUN_RUN_DIR/.submitted.json" "$HPCRUN_RUN_DIR/submitted.json"
}
hpcrun_end() {
  hpcrun_plain
  hpcrun_code=${hpcrun_code:-$(($1 ? $1 : 1))}
  trap '' HUP INT TERM USR1 USR2
  hpcrun_before_end
  case $hpcrun_reason in
    stopped* | completed) ;;
    *) hpcrun_room || hpcrun_reason+='; the disk of the run directory is full' ;;
  esac
  hpcrun_record "$hpcrun_code" "$hpcrun_reason" "$(command date +%s)"
  # A stopped job gets no result, for its scheduler may start it again.
  case $hpcrun_code/$hpcrun_reason in
    */stopped*) ;;
    0/*) printf "(S'success'\nI0\nt." >"$HPCRUN_RUN_DIR/${HPCRUN_JOB_ID}_0_result.pkl" ;;
    *)
      printf "(S'error'\nS'exit code %d: %s'\nt." "$hpcrun_code" "${hpcrun_reason//[\'\"\\]/}" \
        >"$HPCRUN_RUN_DIR/${HPCRUN_JOB_ID}_0_result.pkl"
      ;;
  esac
  hpcrun_after_end
  exit "$hpcrun_code"
}
