# Functions for jobs of one process, which the job script starts itself; see launch.bash.
# shellcheck disable=SC2154  # these files share variables
hpcrun_request_stop() {  # signal the process, but not with SIGINT, which background processes of bash ignore
  [ "$1" = USR2 ] || set -- "$hpcrun_stop_signal"
  kill -s "$1" "$hpcrun_launcher" 2>/dev/null
}
