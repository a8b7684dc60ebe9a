# What a job does because it runs on this machine, without a scheduler.
#
# hpcrun_await_turn N     a task of a sweep waits until fewer than N others run
#
# Options of job.bash:
#   --timeout               the ranks run under timeout(1), in a process group of their own
# shellcheck disable=SC2034,SC2154  # variables are those of all these files
hpcrun_identify() { HPCRUN_JOB_ID=$$ hpcrun_nodes=; }
hpcrun_resubmitted() { echo "s/\"start_time\": [0-9]*/\"start_time\": $(command cut -d ' ' -f 22 <"/proc/$$/stat")/"; }
hpcrun_end_orphans() {
  [ -n "$hpcrun_timeout" ] || return 0
  for hpcrun_file in /proc/[0-9]*/environ; do
    hpcrun_pid=${hpcrun_file:6:-8}
    [ "$hpcrun_pid" = "$BASHPID" ] || ! command grep -qzxF "HPCRUN_RUN_DIR=$HPCRUN_RUN_DIR" "$hpcrun_file" ||
      kill -s TERM "$hpcrun_pid"
  done
}
hpcrun_record_scheduler() { :; }
hpcrun_trap_more() { :; }
hpcrun_ask() { kill -s "$hpcrun_stop_signal" "$hpcrun_launcher" 2>/dev/null; }
hpcrun_before_end() { :; }
hpcrun_after_end() { :; }
hpcrun_read_launcher() { :; }
hpcrun_await_turn() {
  hpcrun_plain
  exec {hpcrun_place}>>"$hpcrun_run/.place-$((HPCRUN_TASK % $1))"
  command flock "$hpcrun_place" &
  wait $!
  hpcrun_started=$(command date +%s)
  hpcrun_restore
}
