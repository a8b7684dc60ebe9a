# Starts a job's ranks, waits for them, and finds out how they ended.
#
# hpcrun_hostfile FORMAT [OPTION...]     writes the run directory's hostfile: where the ranks go; see hpcrun hostfile --help
# hpcrun_launch OPTION... -- WORD...     the launcher's words and the program's, with @rank between the two, in whose place
#                                        comes what starts one rank (rank.bash). Its end is recorded, and it returns 0, so that
#                                        what the site does at the end is done; the job then ends with the ranks' exit code.
#
# Options of hpcrun_launch:
#   --launcher NAME            srun, mpirun, mpiexec, none or another
#   --ranks N                  how many ranks there are in all
#   --stop-signal SIGNAL       what the launcher passes on to its ranks, and waits for them to end
#   --rank "NAME..."           variables that hold a rank's number, of which the first that is set counts; or the number itself
#   --local-rank "NAME..."     the same for its number on its node
#   --local-ranks "NAME..."    the same for how many are on its node
#   --wired "NAME..."          variables of which a rank has one if its MPI finds the others
#   --cpu-bind KIND            cores or sockets: what each rank is bound to
#   --visible NAME             the variable by which programs find their GPUs
#   --gpus N,N...              the node's GPUs
#   --gpus-per-rank N          how many of them a rank takes
#   --gpu-order N,N...         the node's GPUs, the nearest to each rank's cores
#   --output-on-all-ranks      all ranks write to the job's log, each line with its rank
#   --in-container PYTHON      the program starts through container.sh; the container's Python lists its packages
#   --no-packages              no Python lists its packages in provenance/
#   --trains-alone             the program trains, and names nothing through which its ranks meet: warn where they have not
# Variables: HPCRUN_RUN_DIR, hpcrun_library, and those of record.bash and signals.bash
# shellcheck disable=SC2034,SC2154  # variables are those of all these files
hpcrun_hostfile() {
  hpcrun_plain
  command "$hpcrun_python" -m hpcrun hostfile --format "$1" --output "$HPCRUN_RUN_DIR/hostfile" "${@:2}" ||
    hpcrun_fail "the hostfile could not be made: is hpcrun installed for this Python (site key $hpcrun_python_key)?"
  hpcrun_restore
}
hpcrun_value() {  # "NAME...": bash for the value of the first variable that is set; a number is itself
  local IFS=' ' name begin='' end=''
  [[ $1 == *[!0-9]* || -z $1 ]] || { echo "$1"; return; }
  # shellcheck disable=SC2086  # names
  for name in $1; do begin+="\${$name-" end+='}'; done
  echo "\"$begin$end\""
}
hpcrun_write_rank() {
  {
    echo '# Starts one rank of this job: bash rank.sh PROGRAM [ARGUMENT...]'
    echo '# No function of the environment stands in for what follows.'
    declare -f hpcrun_unshadow
    echo hpcrun_unshadow
    echo "export HPCRUN_RANK=$(hpcrun_value "$hpcrun_rank") HPCRUN_LOCAL_RANK=$(hpcrun_value "$hpcrun_local_rank")"
    echo "hpcrun_local_ranks=$(hpcrun_value "$hpcrun_local_ranks")"
    printf '%s=%q\n' hpcrun_cpu_bind "$hpcrun_cpu_bind" hpcrun_mode "$hpcrun_mode" hpcrun_wired "$hpcrun_wired" \
      hpcrun_visible "$hpcrun_visible" hpcrun_gpus "$hpcrun_gpus" hpcrun_gpus_per_rank "$hpcrun_gpus_per_rank" \
      hpcrun_gpu_order "$hpcrun_gpu_order" hpcrun_output_on_all_ranks "$hpcrun_output_on_all_ranks" \
      hpcrun_in_container "$hpcrun_in_container"
    printf 'source %q\n' "$hpcrun_library/rank.bash"
  } >"$HPCRUN_RUN_DIR/rank.sh"
}
hpcrun_close() {  # in a subshell: what must end with this script, or with the ranks, does not stay open in others
  exec {HPCRUN_ALIVE}>&-
  [ -z "$hpcrun_place" ] || exec {hpcrun_place}>&-
}
hpcrun_record_provenance() {  # what this job is made of, at the lowest priority
  hpcrun_close
  exec >/dev/null 2>&1
  command tr : '\n' <<<"${LOADEDMODULES-}" >"$HPCRUN_RUN_DIR/provenance/modules.txt"
  hpcrun_record_scheduler
  hpcrun_words=("$hpcrun_python")
  [ -z "$hpcrun_in_container" ] || hpcrun_words=(bash "$HPCRUN_RUN_DIR/container.sh" "$hpcrun_container_python")
  [ -n "$hpcrun_no_packages" ] ||
    exec nice -n 19 timeout 60 "${hpcrun_words[@]}" -m hpcrun.provenance.packages >"$HPCRUN_RUN_DIR/provenance/packages.txt"
}
hpcrun_watch_failures() {  # MPICH's mpiexec may not notice a rank that fails when it has left MPI: the others would wait for ever
  hpcrun_close
  trap '' USR1 USR2
  while read -rt 3; kill -0 "$hpcrun_launcher"; do
    [ ! -s "$HPCRUN_RUN_DIR/failed.jsonl" ] || { read -rt 3; kill -s TERM "$hpcrun_launcher"; break; }
  done
}
hpcrun_read_failure() {  # the exit code of the rank that failed first, and which it is
  hpcrun_who=''  # failed.jsonl is the ranks' own: its first line is of the one whose end made the launcher end the others
  hpcrun_first=''
  read -r hpcrun_first 2>/dev/null <"$HPCRUN_RUN_DIR/failed.jsonl"
  if [[ ${hpcrun_first-} =~ ^.\"rank\":\ ([0-9]+),\ \"host\":\ \"([^\"]*)\",\ \"exit_code\":\ ([0-9]+), ]]; then
    hpcrun_code=${BASH_REMATCH[3]} hpcrun_who="rank ${BASH_REMATCH[1]} on ${BASH_REMATCH[2]}"
  elif [ "$hpcrun_code" != 0 ]; then  # MPI_Abort may kill all ranks before one writes that line; its log ends with MPICH's
    IFS=$' \t\n' read -r hpcrun_first hpcrun_number < <(
      command find "$HPCRUN_RUN_DIR/logs" -name 'rank-*.log' -newer "$HPCRUN_RUN_DIR/starts.jsonl" -exec tail -vn 5 {} + |
        command sed -nE '
      /^==> .*rank-([0-9]+)\.log <==$/ { s//\1/; h }
      /.*application called MPI_Abort\(.*, (-?[0-9]+)\) - process.*/ { s//\1/; G; s/\n/ /; p }'
    )
    if [ -n "$hpcrun_first" ]; then
      hpcrun_code=$((hpcrun_first & 255)) hpcrun_who="rank $hpcrun_number, which called MPI_Abort"
      [ "$hpcrun_code" != 0 ] || hpcrun_code=1
    fi
  fi
}
hpcrun_explain() {  # says how the ranks ended
  hpcrun_read_failure
  hpcrun_read_launcher
  hpcrun_whose=''
  [ "$hpcrun_ranks" = 1 ] || hpcrun_whose=${hpcrun_who:+, that of $hpcrun_who}
  case $hpcrun_reason/$hpcrun_code in
    'stopped by SIGUSR2/0') hpcrun_reason=completed ;;  # it was done before its time limit
    stopped*) ;;
    */0) hpcrun_reason=completed ;;
    */137) hpcrun_reason="the ranks ended with exit code 137${hpcrun_who:+: $hpcrun_who was killed by SIGKILL, most often for want of memory}" ;;
    *) hpcrun_reason="the ranks ended with exit code $hpcrun_code$hpcrun_whose" ;;
  esac
  case $hpcrun_reason in *rank\ *) echo "hpcrun: $hpcrun_reason; its last words are in $HPCRUN_RUN_DIR/logs" >&2 ;; esac
  if [ -n "$hpcrun_trains_alone" ] && [ "$hpcrun_reason" = completed ] && [ ! -e "$HPCRUN_RUN_DIR/met" ]; then  # hpcrun.train leaves it where ranks met
    (
      umask "$hpcrun_mode"
      : >"$HPCRUN_RUN_DIR/alone"
    )
    echo "hpcrun: WARNING: each of the $hpcrun_ranks ranks trained alone: the script names neither hpcrun.train nor anything else through which they meet" >&2
  fi
}
hpcrun_read_launch() {  # OPTION... -- WORD...
  hpcrun_ranks=1 hpcrun_rank=0 hpcrun_local_rank=0 hpcrun_local_ranks=1 hpcrun_wired='' hpcrun_cpu_bind=''
  hpcrun_visible=CUDA_VISIBLE_DEVICES hpcrun_gpus='' hpcrun_gpus_per_rank='' hpcrun_gpu_order=''
  hpcrun_output_on_all_ranks='' hpcrun_in_container='' hpcrun_no_packages='' hpcrun_trains_alone=''
  while [[ $# -gt 0 && $1 != -- ]]; do
    case $1 in
      --launcher) hpcrun_launcher_name=$2 && shift ;;
      --ranks) hpcrun_ranks=$2 && shift ;;
      --stop-signal) hpcrun_stop_signal=$2 && shift ;;
      --rank) hpcrun_rank=$2 && shift ;;
      --local-rank) hpcrun_local_rank=$2 && shift ;;
      --local-ranks) hpcrun_local_ranks=$2 && shift ;;
      --wired) hpcrun_wired=$2 && shift ;;
      --cpu-bind) hpcrun_cpu_bind=$2 && shift ;;
      --visible) hpcrun_visible=$2 && shift ;;
      --gpus) hpcrun_gpus=$2 && shift ;;
      --gpus-per-rank) hpcrun_gpus_per_rank=$2 && shift ;;
      --gpu-order) hpcrun_gpu_order=$2 && shift ;;
      --output-on-all-ranks) hpcrun_output_on_all_ranks=yes ;;
      --in-container) hpcrun_in_container=yes hpcrun_container_python=$2 && shift ;;
      --no-packages) hpcrun_no_packages=yes ;;
      --trains-alone) hpcrun_trains_alone=yes ;;
      *) hpcrun_fail "hpcrun_launch has no option $1" ;;
    esac
    shift
  done
  hpcrun_words=() hpcrun_first=''
  for hpcrun_word in "${@:2}"; do
    if [ "$hpcrun_word" = @rank ] && [ -z "$hpcrun_first" ]; then
      hpcrun_words+=(bash "$HPCRUN_RUN_DIR/rank.sh") hpcrun_first=yes
    else
      hpcrun_words+=("$hpcrun_word")
    fi
  done
  [ -n "$hpcrun_first" ] || hpcrun_fail 'the launch line has no @rank, in whose place comes what starts one rank'
}
hpcrun_launch() {
  hpcrun_plain
  hpcrun_read_launch "$@"
  hpcrun_write_rank
  # Each child of this script closes what hpcrun_close closes.
  hpcrun_record_provenance & hpcrun_provenance=$!
  umask "$hpcrun_umask"
  unset -f -- "${hpcrun_words[0]}"  # a program of this name runs, no function
  if [ -n "$hpcrun_place" ]; then
    "${hpcrun_words[@]}" {HPCRUN_ALIVE}>&- {hpcrun_place}>&- &
  else
    "${hpcrun_words[@]}" {HPCRUN_ALIVE}>&- &
  fi
  hpcrun_launcher=$! hpcrun_watch=''
  if [ "$hpcrun_launcher_name" = mpiexec ] && [ "$hpcrun_ranks" -gt 1 ]; then
    hpcrun_watch_failures <> <(:) >/dev/null 2>&1 & hpcrun_watch=$!
  fi
  wait "$hpcrun_launcher"
  hpcrun_code=$?
  while kill -0 "$hpcrun_launcher" 2>/dev/null; do  # a signal ends wait early
    wait "$hpcrun_launcher"
    hpcrun_code=$?
  done
  hpcrun_over=yes  # what comes now stops nothing
  [ -z "$hpcrun_watch" ] || kill "$hpcrun_watch" 2>/dev/null
  hpcrun_explain
  case $hpcrun_reason in stopped*) kill "$hpcrun_provenance" 2>/dev/null ;; esac  # it may take longer than is left
  # Nothing is to write here when the job has ended. Of a child that ends just as a signal comes, bash forgets that it
  # has ended, and would wait for ever.
  kill -0 "$hpcrun_provenance" 2>/dev/null && wait "$hpcrun_provenance"
  hpcrun_restore
}
