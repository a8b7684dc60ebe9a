# Functions for jobs on this machine, without a scheduler.
#
# hpcrun_await_turn N             waits, in a task of a sweep, until fewer than N other tasks run
#
# Each scheduler's file defines these functions:
#   hpcrun_scheduler_option NAME WORD    parses an option of job.bash that only this scheduler has; if its value is WORD, the
#                                 next word, also sets hpcrun_option_words to 2; returns 1 if there is no such option
#   hpcrun_set_job_id             sets HPCRUN_JOB_ID to the job id, and hpcrun_nodes to the job's nodes, if the scheduler names them
#   hpcrun_submission_edit        prints a further sed command for submitted.json when the script is started as another job
#   hpcrun_end_orphans            ends ranks that are left after the job script was killed
#   hpcrun_record_scheduler       writes what the scheduler knows about the job to provenance/ in the run directory
#   hpcrun_trap_scheduler_signals    installs the handlers of further signals, such as that before the time limit
#   hpcrun_before_end             changes hpcrun_reason and hpcrun_requeued before the end of the job is recorded
#   hpcrun_after_end              requeues or cancels the job after its end was recorded
# and, if the scheduler has several nodes, hpcrun_on_each_node (stage.bash).
#
# Options of job.bash, for jobs on this machine:
#   --timeout               the ranks run under timeout(1), in a separate process group
# Variables:
#   hpcrun_run, HPCRUN_TASK         the run directory of the sweep; the number of the task
#   hpcrun_slot                     result: the descriptor of the task's lock, which launch.bash closes in the ranks
# shellcheck disable=SC2034,SC2154  # these files share variables
hpcrun_timeout=''
hpcrun_scheduler_option() {
  case $1 in
    --timeout) hpcrun_timeout=yes ;;
    *) return 1 ;;
  esac
}
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
