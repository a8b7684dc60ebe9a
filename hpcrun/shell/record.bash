# Records the end of a job in its run directory: in exit.json, and in the pickle that submitit's Job.results() reads.
#
# hpcrun_has_space               returns whether the disk has space for a record
# hpcrun_record CODE REASON END  writes exit.json; END: the time in s since 1970, or null while the ranks are being stopped
# hpcrun_write_record TEXT       writes a text to exit.json, in place
# hpcrun_fail REASON             prints and records why the job cannot continue, and ends the job script
# hpcrun_continue_as JOB         makes JOB the job id of this run, with the same log; returns 1 if it is already the job id
# hpcrun_finish STATUS           the EXIT trap: records how the ranks ended; a job whose ranks never started has failed
#
# Variables:
#   HPCRUN_RUN_DIR, HPCRUN_JOB_ID, hpcrun_mode
#   hpcrun_started               the start time of the job in s since 1970
#   hpcrun_reason, hpcrun_code   how the job ended, and its exit code, which is empty if no rank has ended
#   hpcrun_requeued              whether the job is requeued: true or false
# slurm.bash and local.bash define hpcrun_before_end, hpcrun_after_end, and hpcrun_submission_edit.
# shellcheck disable=SC2034,SC2154  # these files share variables
hpcrun_has_space() {
  printf '%4096s' '' >"$HPCRUN_RUN_DIR/.room"
  set -- "$?"
  command rm -f "$HPCRUN_RUN_DIR/.room"
  return "$1"
} 2>/dev/null
hpcrun_write_record() { printf '%-1023s\n' "$1" 1<>"$HPCRUN_RUN_DIR/exit.json"; }  # overwrites the file in place, which needs no disk space
hpcrun_record() {
  printf -v hpcrun_text '{"exit_code": %d, "reason": "%s", "host": "%s", "job_id": "%s", "started": %d, "ended": %s, "requeued": %s}' \
    "$1" "${2//[\'\"\\]/}" "$(command uname -n)" "$HPCRUN_JOB_ID" "$hpcrun_started" "$3" "$hpcrun_requeued"
  hpcrun_write_record "$hpcrun_text"
}
hpcrun_fail() {
  hpcrun_protect
  hpcrun_reason=$1
  echo "hpcrun: $1" >&2
  exit 1
}
hpcrun_continue_as() {
  hpcrun_before=$(command sed -n 's/.*"job_id": "\([^"]*\)".*/\1/p' "$HPCRUN_RUN_DIR/submitted.json" 2>/dev/null)
  [ -n "$hpcrun_before" ] && [ "$hpcrun_before" != "$1" ] || return 1
  command ln -sfn "${hpcrun_before}_0_log.out" "$HPCRUN_RUN_DIR/${1}_0_log.out"
  command ln -sfn "${hpcrun_before}_0_log.err" "$HPCRUN_RUN_DIR/${1}_0_log.err"
  command sed -e "s/\"job_id\": \"[^\"]*\"/\"job_id\": \"$1\"/" -e "$(hpcrun_submission_edit)" "$HPCRUN_RUN_DIR/submitted.json" \
    >"$HPCRUN_RUN_DIR/.submitted.json" && command mv "$HPCRUN_RUN_DIR/.submitted.json" "$HPCRUN_RUN_DIR/submitted.json"
}
hpcrun_finish() {
  hpcrun_protect
  hpcrun_code=${hpcrun_code:-$(($1 ? $1 : 1))}
  trap '' HUP INT TERM USR1 USR2
  hpcrun_before_end
  case $hpcrun_reason in
    stopped* | completed) ;;
    *) hpcrun_has_space || hpcrun_reason+='; the disk of the run directory is full' ;;
  esac
  printf -v hpcrun_ended '%(%s)T' -1  # without a program, which may not start if PATH is wrong or the user has too many processes
  hpcrun_record "$hpcrun_code" "$hpcrun_reason" "$hpcrun_ended"
  # A stopped job gets no result, because the scheduler may start it again.
  case $hpcrun_code/$hpcrun_reason in
    */stopped*) ;;
    0/*) printf "(S'success'\nI0\nt." >"$HPCRUN_RUN_DIR/${HPCRUN_JOB_ID}_0_result.pkl" ;;
    *)
      printf "(S'error'\nS'exit code %d: %s'\nt." "$hpcrun_code" "${hpcrun_reason//[\'\"\\]/}" \
        >"$HPCRUN_RUN_DIR/${HPCRUN_JOB_ID}_0_result.pkl"
      ;;
  esac
  hpcrun_after_end
  [ -z "${HPCRUN_ALIVE-}" ] || exec {HPCRUN_ALIVE}>&-
  for _ in {1..50}; do  # Slurm waits for a second if it finds a process of an ended script
    kill -0 "$hpcrun_alive_reader" 2>/dev/null || break
    command sleep 0.01
  done
  exit "$hpcrun_code"
}
