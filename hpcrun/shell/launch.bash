# Starts the ranks of a job, waits for them, and records how they ended.
#
# hpcrun_hostfile FORMAT [OPTION...]     writes the hostfile to the run directory; see hpcrun hostfile --help
# hpcrun_launch OPTION... -- WORD...     runs the launch line: the launcher's words, @rank, and the program's words. The command
#                                        that starts a rank (rank.bash) replaces @rank. The function records how the ranks ended,
#                                        and returns 0, so that the site's teardown runs; the job ends with the ranks' exit code.
#
# Options of hpcrun_launch:
#   --launcher NAME            load NAME.bash, with functions of the launcher; or the path of such a file of another package
#   --ignores-failures         end the launcher after a rank has failed, because it may wait for the other ranks forever
#   --hides-signals            the launcher may exit with 0 after the scheduler has ended its ranks
#   --ranks N                  the number of ranks
#   --stop-signal SIGNAL       the signal that the launcher forwards to its ranks before it waits for them to exit
#   --rank "NAME..."           variables with the rank number, of which the first that is set is used; or the number itself
#   --local-rank "NAME..."     variables with the local rank number on the node, or the number itself
#   --local-ranks "NAME..."    variables with the number of ranks on the node, or the number itself
#   --wired "NAME..."          variables of PMI and PMIx, of which a rank needs one to find the other ranks
#   --cpu-bind KIND            bind each rank to cores or sockets
#   --visible NAME             the environment variable that selects the GPUs that a program sees
#   --gpus N,N...              the node's GPUs
#   --gpus-per-rank N          the number of GPUs that each rank sees: its own, or all GPUs of the node
#   --gpu-order N,N...         the node's GPUs in the order of the ranks whose cores are nearest to them
#   --output-on-all-ranks      all ranks write to the job's log, each line with its rank
#   --in-container PYTHON      the program starts through container.sh; the container's Python lists its packages
#   --no-packages              do not list Python packages in provenance/
#   --framework NAME           tensorflow: the ranks also get TF_CONFIG; none: they get none, or from torchrun; torch and jax:
#                              a single rank gets them, too (world.bash)
#   --cyclic                   the launcher places ranks on the nodes in turn, which TF_CONFIG has to know
#   --strict                   the job fails if its ranks have not communicated, although the program trains or uses MPI
#   --trains-separate-models             the program trains, but its code uses no library for distributed training: warn if its ranks
#                              have not communicated
# Variables: HPCRUN_RUN_DIR, hpcrun_library, and those of record.bash and signals.bash
#
# The file of a launcher may replace two functions:
#   hpcrun_request_stop SIGNAL     requests the ranks to stop: SIGTERM, SIGINT and SIGHUP must end the job, and SIGUSR2
#                                  announces its time limit; the launcher's pid is hpcrun_launcher
#   hpcrun_read_launcher           sets hpcrun_code to the exit code of the rank that failed first, if the launcher
#                                  returned another; hpcrun_failed_rank is not empty if the code is certainly that of this rank
# shellcheck disable=SC2034,SC2154  # these files share variables
hpcrun_request_stop() { kill -s "$hpcrun_stop_signal" "$hpcrun_launcher" 2>/dev/null; }
hpcrun_read_launcher() { :; }
hpcrun_load_launcher() {  # FILE: load the functions of a launcher; a file of another package is copied to the run directory
  hpcrun_file=${1##*/}
  hpcrun_file=$hpcrun_library/${hpcrun_file%.bash}.bash
  if [[ ! -e $hpcrun_file && $1 == */* ]]; then
    [ "$hpcrun_library" != "$hpcrun_run/shell" ] ||
      { command cp "$1" "$hpcrun_file.$$" && command mv -f "$hpcrun_file.$$" "$hpcrun_file"; }
    [ -e "$hpcrun_file" ] || hpcrun_file=$1
  fi
  # shellcheck source=/dev/null
  source "$hpcrun_file" || hpcrun_fail "the functions of the launcher could not be loaded: $hpcrun_file"
}
hpcrun_hostfile_options=()
hpcrun_hostfile() {
  hpcrun_protect
  hpcrun_hostfile_options=("${@:2}")
  PYTHONSAFEPATH=1 command "$hpcrun_python" -m hpcrun hostfile --format "$1" --output "$HPCRUN_RUN_DIR/hostfile" "${@:2}" ||
    hpcrun_fail "the hostfile could not be written: is hpcrun installed for this Python (site key $hpcrun_python_key)?"
  hpcrun_restore
}
hpcrun_variable_value() {  # "NAME...": print the bash expansion of the first variable that is set, or the number itself
  local IFS=' ' name begin='' end=''
  [[ $1 == *[!0-9]* || -z $1 ]] || { echo "$1"; return; }
  # shellcheck disable=SC2086  # names
  for name in $1; do begin+="\${$name-" end+='}'; done
  echo "\"$begin$end\""
}
hpcrun_quote_with_secrets() {  # WORD: append the quoted word to hpcrun_quoted; variables replace the secrets in it
  local number name piece
  for ((number = 1; number <= hpcrun_secrets; number++)); do
    name=hpcrun_secret_$number
    [[ $1 == *"${!name}"* ]] || continue
    [[ $1 == "${!name}"* ]] || hpcrun_quote_with_secrets "${1%%"${!name}"*}"
    hpcrun_quoted+="\"\$$name\""
    [[ $1 == *"${!name}" ]] || hpcrun_quote_with_secrets "${1#*"${!name}"}"
    return
  done
  LC_ALL=C printf -v piece %q "$1"
  hpcrun_quoted+=$piece
}
hpcrun_write_rank() {  # write rank.sh atomically, because another start of this script in the same run directory may read it
  hpcrun_file=$HPCRUN_RUN_DIR/.rank.$(command uname -n).$$
  {
    echo '# Starts one rank of this job: bash rank.sh PROGRAM [ARGUMENT...]'
    echo '# Functions in the environment must not replace the following commands.'
    declare -f hpcrun_drop_functions
    echo hpcrun_drop_functions
    echo "export HPCRUN_RANK=$(hpcrun_variable_value "$hpcrun_rank") HPCRUN_LOCAL_RANK=$(hpcrun_variable_value "$hpcrun_local_rank")"
    echo "hpcrun_local_ranks=$(hpcrun_variable_value "$hpcrun_local_ranks")"
    printf '%s=%q\n' hpcrun_cpu_bind "$hpcrun_cpu_bind" hpcrun_mode "$hpcrun_mode" hpcrun_wired "$hpcrun_wired" \
      hpcrun_visible "$hpcrun_visible" hpcrun_gpus "$hpcrun_gpus" hpcrun_gpus_per_rank "$hpcrun_gpus_per_rank" \
      hpcrun_gpu_order "$hpcrun_gpu_order" hpcrun_output_on_all_ranks "$hpcrun_output_on_all_ranks" \
      hpcrun_in_container "$hpcrun_in_container" hpcrun_ignores_failures "$hpcrun_ignores_failures" \
      hpcrun_earlier_failures "$hpcrun_earlier_failures" hpcrun_master "$hpcrun_master" hpcrun_port "$hpcrun_port" \
      hpcrun_workers "$hpcrun_workers" hpcrun_ranks "$hpcrun_ranks" hpcrun_stop_seconds "$((${hpcrun_signal_seconds:-120} * 3 / 4))"
    [ -z "${HPCRUN_STAGED-}" ] || hpcrun_write_staging
    if [[ ${#hpcrun_rank_words[@]} != 0 ]]; then
      printf 'source %q\nset --' "$hpcrun_secrets_file"
      for hpcrun_word in "${hpcrun_rank_words[@]}"; do
        hpcrun_quoted=' '
        hpcrun_quote_with_secrets "$hpcrun_word"
        printf %s "$hpcrun_quoted"
      done
      echo
    fi
    printf 'source %q\n' "$hpcrun_library/rank.bash"
  } >"$hpcrun_file"
  command mv -f "$hpcrun_file" "$HPCRUN_RUN_DIR/rank.sh"
}
hpcrun_close_descriptors() {  # in a subshell: close the descriptors that must close when this script or the ranks end
  exec {HPCRUN_ALIVE}>&-
  [ -z "$hpcrun_slot" ] || exec {hpcrun_slot}>&-
}
hpcrun_record_provenance() {  # record modules, packages and the job in Slurm, at the lowest priority
  hpcrun_close_descriptors
  exec >/dev/null 2>&1
  command tr : '\n' <<<"${LOADEDMODULES-}" >"$HPCRUN_RUN_DIR/provenance/modules.txt"
  hpcrun_record_scheduler
  hpcrun_words=("$hpcrun_python")
  [ -z "$hpcrun_in_container" ] || hpcrun_words=(bash "$HPCRUN_RUN_DIR/container.sh" "$hpcrun_container_python")
  [ -n "$hpcrun_no_packages" ] ||
    PYTHONSAFEPATH=1 exec nice -n 19 timeout 60 "${hpcrun_words[@]}" -m hpcrun.provenance.packages >"$HPCRUN_RUN_DIR/provenance/packages.txt"
}
hpcrun_watch_failures() {  # end a launcher that does not notice a failed rank, because the other ranks would wait forever
  hpcrun_close_descriptors
  trap '' USR1 USR2
  while read -rt 3; kill -0 "$hpcrun_launcher"; do
    hpcrun_count_failures
    [ "$hpcrun_failures" = "$hpcrun_earlier_failures" ] || { read -rt 3; kill -s TERM "$hpcrun_launcher"; break; }
  done
}
hpcrun_read_launch() {  # OPTION... -- WORD...
  hpcrun_ranks=1 hpcrun_rank=0 hpcrun_local_rank=0 hpcrun_local_ranks=1 hpcrun_wired='' hpcrun_cpu_bind=''
  hpcrun_visible=CUDA_VISIBLE_DEVICES hpcrun_gpus='' hpcrun_gpus_per_rank='' hpcrun_gpu_order=''
  hpcrun_output_on_all_ranks='' hpcrun_in_container='' hpcrun_no_packages='' hpcrun_trains_separate_models='' hpcrun_strict=''
  hpcrun_framework='' hpcrun_cyclic=''
  hpcrun_ignores_failures=''
  while [[ $# -gt 0 && $1 != -- ]]; do
    case $1 in
      --launcher) hpcrun_load_launcher "$2" && shift ;;
      --ignores-failures) hpcrun_ignores_failures=yes ;;
      --hides-signals) hpcrun_hides_signals=yes ;;
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
      --trains-separate-models) hpcrun_trains_separate_models=yes ;;
      --strict) hpcrun_strict=yes ;;
      --framework) hpcrun_framework=$2 && shift ;;
      --cyclic) hpcrun_cyclic=yes ;;
      *) hpcrun_fail "hpcrun_launch has no option $1" ;;
    esac
    shift
  done
  hpcrun_words=() hpcrun_first='' hpcrun_rank_words=()
  for hpcrun_word in "${@:2}"; do
    if [ -n "$hpcrun_first" ] && [ -n "$hpcrun_secrets_file" ]; then  # other users can see the command line of a Slurm step
      hpcrun_rank_words+=("$hpcrun_word")
    elif [ "$hpcrun_word" = @rank ] && [ -z "$hpcrun_first" ]; then
      hpcrun_words+=(bash "$HPCRUN_RUN_DIR/rank.sh") hpcrun_first=yes
    else
      hpcrun_words+=("$hpcrun_word")
    fi
  done
  [ -n "$hpcrun_first" ] || hpcrun_fail 'the launch line has no @rank, the place of the command that starts a rank'
}
hpcrun_launch() {
  hpcrun_protect
  hpcrun_read_launch "$@"
  hpcrun_count_failures
  hpcrun_earlier_failures=$hpcrun_failures  # a template may start several programs in turn
  command rm -rf "$HPCRUN_RUN_DIR"/{killed,completed,stopped}
  hpcrun_master='' hpcrun_port='' hpcrun_workers=''
  case $hpcrun_ranks:$hpcrun_framework in
    *:none | 1:) ;;
    *) hpcrun_choose_world "$hpcrun_framework" ;;
  esac
  hpcrun_write_rank
  hpcrun_log_start=$(command stat -Lc %s "$HPCRUN_RUN_DIR/${HPCRUN_JOB_ID}_0_log.err" 2>/dev/null)
  # The launcher closes the same descriptors as hpcrun_close_descriptors.
  hpcrun_record_provenance & hpcrun_provenance=$!
  umask "$hpcrun_umask"
  unset -f -- "${hpcrun_words[0]}"  # run the launcher's program, not a function of this name
  if [ -n "$hpcrun_slot" ]; then
    "${hpcrun_words[@]}" {HPCRUN_ALIVE}>&- {hpcrun_slot}>&- &
  else
    "${hpcrun_words[@]}" {HPCRUN_ALIVE}>&- &
  fi
  hpcrun_launcher=$! hpcrun_watch=''
  if [ -n "$hpcrun_ignores_failures" ]; then
    hpcrun_watch_failures <> <(:) >/dev/null 2>&1 & hpcrun_watch=$!
  fi
  wait "$hpcrun_launcher"
  hpcrun_code=$?
  while kill -0 "$hpcrun_launcher" 2>/dev/null; do  # a signal ends wait early
    wait "$hpcrun_launcher"
    hpcrun_code=$?
  done
  hpcrun_ranks_ended=yes  # signals are ignored from here on
  [ -z "$hpcrun_watch" ] || kill "$hpcrun_watch" 2>/dev/null
  hpcrun_describe_end
  [ "$hpcrun_code" = 0 ] || hpcrun_unstage_nodes  # ranks that MPI_Abort or the launcher has killed cannot remove their copies
  case $hpcrun_reason in stopped*) kill "$hpcrun_provenance" 2>/dev/null ;; esac  # the remaining time may be too short for recording provenance
  # No process may write to the run directory after the end of the job. If a child ends while a signal arrives, bash may
  # not notice its end, and wait would block forever.
  kill -0 "$hpcrun_provenance" 2>/dev/null && wait "$hpcrun_provenance"
  hpcrun_restore
}
