# Handles the signals of a job: forwards them to the ranks, so that the ranks have time to write a checkpoint.
#
# hpcrun_stop SIGNAL NUMBER   records the signal, because there may be no time later, and then requests the ranks to stop
# hpcrun_trap_signals         installs the signal handlers, and a process that handles the death of the script by SIGKILL
#
# Variables:
#   hpcrun_launcher           the pid of the launcher; empty before the ranks start
#   hpcrun_ranks_ended        not empty if the ranks have ended; signals are then ignored
#   HPCRUN_ALIVE              a pipe that closes when this script ends; hpcrun_alive_reader: the pid of its reader
# and those of record.bash.
# slurm.bash and local.bash define hpcrun_trap_scheduler_signals and hpcrun_end_orphans; launchers define hpcrun_request_stop
# (launch.bash).
# shellcheck disable=SC2034,SC2154  # these files share variables
hpcrun_stop() {
  [[ -z $hpcrun_ranks_ended && $hpcrun_reason != "stopped by SIG$1" ]] || return 0
  hpcrun_protect
  hpcrun_reason="stopped by SIG$1"
  hpcrun_record $((128 + $2)) "$hpcrun_reason" null
  [ -n "$hpcrun_launcher" ] || exit $((128 + $2))
  hpcrun_request_stop "$1"
  return 0
}
hpcrun_trap_signals() {
  trap 'hpcrun_stop HUP 1' HUP
  trap 'hpcrun_stop INT 2' INT
  trap 'hpcrun_stop TERM 15' TERM
  trap 'hpcrun_finish $?' EXIT
  hpcrun_trap_scheduler_signals
  hpcrun_write_record ''  # reserve space with a blank record, because the disk may be full later; signals are handled from here on
  # SIGKILL cannot be trapped, but it closes this pipe: the reader then writes the record and ends the ranks.
  exec {HPCRUN_ALIVE}> >(
    trap '' HUP INT TERM
    exec >/dev/null 2>&1
    read -r _
    read -r hpcrun_text <"$HPCRUN_RUN_DIR/exit.json"
    case $hpcrun_text in
      *'"ended": '[0-9]*) exit ;;
      *'"ended": null'*) hpcrun_write_record "${hpcrun_text/'"ended": null'/"\"ended\": $(command date +%s)"}" ;;  # it was being stopped
      *) hpcrun_record 137 'the job script was killed by SIGKILL' "$(command date +%s)" ;;
    esac
    kill -s TERM -- "-$$"
    hpcrun_end_orphans
  )
  hpcrun_alive_reader=$!
}
