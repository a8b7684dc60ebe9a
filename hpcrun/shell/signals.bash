# Stops a job's ranks when the job is told to stop, so that they have time to write a checkpoint.
#
# hpcrun_stop SIGNAL NUMBER   records it now, there may be no time later; then lets the ranks end by themselves
# hpcrun_trap_signals         from here on signals are handled, also SIGKILL
#
# Variables:
#   hpcrun_launcher           the launcher's process; empty before the ranks start
#   hpcrun_over               not empty: the ranks have ended; what comes now stops nothing
#   HPCRUN_ALIVE              a pipe that closes with this script
# The functions hpcrun_ask SIGNAL, which tells the launcher, and hpcrun_end_orphans are the scheduler's.
# shellcheck disable=SC2034,SC2154  # variables are those of all these files
hpcrun_stop() {
  [[ -z $hpcrun_over && $hpcrun_reason != "stopped by SIG$1" ]] || return 0
  hpcrun_plain
  hpcrun_reason="stopped by SIG$1"
  hpcrun_record $((128 + $2)) "$hpcrun_reason" null
  [ -n "$hpcrun_launcher" ] || exit $((128 + $2))
  hpcrun_ask "$1"
  return 0
}
hpcrun_trap_signals() {
  trap 'hpcrun_stop HUP 1' HUP
  trap 'hpcrun_stop INT 2' INT
  trap 'hpcrun_stop TERM 15' TERM
  trap 'hpcrun_end $?' EXIT
  hpcrun_trap_more
  hpcrun_write ''  # blank, until there is something to say: the disk may be full by then; and all signals are handled now
  # Nothing can trap SIGKILL, but it closes this pipe: the reader then writes the record and ends the ranks.
  exec {HPCRUN_ALIVE}> >(
    trap '' HUP INT TERM
    exec >/dev/null 2>&1
    read -r _
    command grep -q '"ended": [0-9]' "$HPCRUN_RUN_DIR/exit.json" || {
      hpcrun_record 137 'the job script was killed by SIGKILL' "$(command date +%s)"
      kill -s TERM -- "-$$"
      hpcrun_end_orphans
    }
  )
}
