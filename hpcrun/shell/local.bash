# Functions for jobs on this machine, without a scheduler.
#
# hpcrun_await_turn N     waits, in a task of a sweep, until fewer than N other tasks run
#
# Options of job.bash:
#   --timeout               the ranks run under timeout(1), in a separate process group
# shellcheck disable=SC2034,SC2154  # these files share variables
hpcrun_set_job_id() { HPCRUN_JOB_ID=$$ hpcrun_nodes=; }
hpcrun_submission_edit() { echo "s/\"start_time\": [0-9]*/\"start_time\": $(command cut -d ' ' -f 22 <"/proc/$$/stat")/"; }
hpcrun_end_orphans() {
  [ -n "$hpcrun_timeout" ] || return 0
  for hpcrun_file in /proc/[0-9]*/environ; do
    hpcrun_pid=${hpcrun_file:6:-8}
    [ "$hpcrun_pid" = "$BASHPID" ] || ! command grep -qzxF "HPCRUN_RUN_DIR=$HPCRUN_RUN_DIR" "$hpcrun_file" ||
      kill -s TERM "$hpcrun_pid"
  done
}
hpcrun_record_scheduler() { :; }
hpcrun_trap_scheduler_signals() { :; }
hpcrun_before_end() { :; }
hpcrun_after_end() { :; }
hpcrun_await_turn() {
  hpcrun_protect
  exec {hpcrun_slot}>>"$hpcrun_run/.place-$((HPCRUN_TASK % $1))"
  command flock "$hpcrun_slot" &
  wait $!
  hpcrun_started=$(command date +%s)
  hpcrun_restore
}
