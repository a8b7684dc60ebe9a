# Functions for one process that the job script starts itself; see launch.bash.
# shellcheck disable=SC2154  # these files share variables
hpcrun_request_stop() {  # a background process of bash ignores SIGINT
  [ "$1" = USR2 ] || set -- "$hpcrun_stop_signal"
  kill -s "$1" "$hpcrun_launcher" 2>/dev/null
}
