# Determines how the ranks of a launch ended.
#
# hpcrun_count_failures    sets hpcrun_failures to the number of ranks that have failed in this job
# hpcrun_describe_end      sets hpcrun_reason and hpcrun_code to the way in which the ranks ended, and prints failures
# hpcrun_log               prints the lines of the job's error log since the start of the ranks
#
# Variables: HPCRUN_RUN_DIR, HPCRUN_JOB_ID, hpcrun_mode, and those of hpcrun_launch (launch.bash), with the launcher's exit
# code in hpcrun_code; the launcher defines hpcrun_read_launcher
# shellcheck disable=SC2034,SC2154  # these files share variables
hpcrun_log() {
  command tail -c "+$((hpcrun_log_start + 1))" "$HPCRUN_RUN_DIR/${HPCRUN_JOB_ID}_0_log.err" 2>/dev/null
}
hpcrun_count_failures() {
  local lines=()
  mapfile -t lines 2>/dev/null <"$HPCRUN_RUN_DIR/failed.jsonl"
  hpcrun_failures=${#lines[@]}
}
hpcrun_read_failure() {  # set hpcrun_code and hpcrun_failed_rank to the exit code and name of the rank that failed first
  # The first line of failed.jsonl is of the rank whose failure made the launcher end the other ranks. If a rank is killed
  # by SIGKILL, other ranks may notice the lost connection, and write their lines, before the wrapper of that rank does.
  hpcrun_failed_rank='' hpcrun_first='' hpcrun_first_time=''
  while IFS='' read -r hpcrun_line; do
    [[ $hpcrun_line =~ ^.\"rank\":\ ([0-9]+),\ \"host\":\ \"([^\"]*)\",\ \"exit_code\":\ ([0-9]+),\ \"time\":\ ([0-9]+) ]] || continue
    if [ -z "$hpcrun_first_time" ]; then
      hpcrun_first_time=${BASH_REMATCH[4]}
    elif [ "${BASH_REMATCH[3]}" != 137 ] || ((BASH_REMATCH[4] > hpcrun_first_time + 1)); then
      continue
    fi
    hpcrun_code=${BASH_REMATCH[3]} hpcrun_failed_rank="rank ${BASH_REMATCH[1]} on ${BASH_REMATCH[2]}"
    [ "$hpcrun_code" != 137 ] || break
  done 2>/dev/null <"$HPCRUN_RUN_DIR/failed.jsonl"
  # If a rank is killed by SIGKILL, Open MPI ends the other ranks with code 14, maybe before any line is in failed.jsonl.
  if [ "$hpcrun_code" = 14 ] && read -r hpcrun_first 2>/dev/null <"$HPCRUN_RUN_DIR/killed"; then
    hpcrun_code=137 hpcrun_failed_rank=$hpcrun_first
  fi
  if [ -z "$hpcrun_failed_rank" ] && [ "$hpcrun_code" != 0 ]; then  # MPI_Abort may kill all ranks before they write to failed.jsonl; with MPICH, a log then ends with a message about it
    IFS=$' \t\n' read -r hpcrun_first hpcrun_number < <(
      command find "$HPCRUN_RUN_DIR/logs" -name 'rank-*.log' -newer "$HPCRUN_RUN_DIR/starts.jsonl" -exec tail -vn 5 {} + |
        command sed -nE '
      /^==> .*rank-([0-9]+)\.log <==$/ { s//\1/; h }
      /.*application called MPI_Abort\(.*, (-?[0-9]+)\) - process.*/ { s//\1/; G; s/\n/ /; p }'
    )
    if [ -n "$hpcrun_first" ]; then
      hpcrun_code=$((hpcrun_first & 255)) hpcrun_failed_rank="rank $hpcrun_number, which called MPI_Abort"
      [ "$hpcrun_code" != 0 ] || hpcrun_code=1
    fi
  fi
}
hpcrun_describe_end() {
  hpcrun_read_failure
  hpcrun_read_launcher
  hpcrun_failed_rank_text=''
  [ "$hpcrun_ranks" = 1 ] || hpcrun_failed_rank_text=${hpcrun_failed_rank:+, that of $hpcrun_failed_rank}
  case $hpcrun_reason/$hpcrun_code in
    'stopped by SIGUSR2/0') hpcrun_reason=completed ;;  # it completed before its time limit
    stopped*) ;;
    */0)
      hpcrun_reason=completed
      [ "$hpcrun_ranks" = 1 ] || hpcrun_check_completed_ranks
      ;;
    */137) hpcrun_reason="the ranks ended with exit code 137${hpcrun_failed_rank:+: $hpcrun_failed_rank was killed by SIGKILL, usually because memory ran out}" ;;
    *)
      hpcrun_reason="the ranks ended with exit code $hpcrun_code$hpcrun_failed_rank_text"
      if [ -z "$hpcrun_failed_rank" ] || [ "$hpcrun_code" = 14 ]; then  # no rank failed by itself
        hpcrun_count_completed_ranks
        [ "$hpcrun_completed_ranks" = 0 ] || hpcrun_reason+=", after $hpcrun_completed_ranks of $hpcrun_ranks ranks had completed"
      fi
      ;;
  esac
  case $hpcrun_reason in *rank\ *) echo "hpcrun: $hpcrun_reason; its log is in $HPCRUN_RUN_DIR/logs" >&2 ;; esac
  [ "$hpcrun_ranks" = 1 ] || [ "$hpcrun_reason" != completed ] || hpcrun_check_world
}
hpcrun_count_completed_ranks() {  # set hpcrun_completed_ranks; NFS lists the files of other nodes after a change of the folder
  hpcrun_completed_ranks=$(
    umask "$hpcrun_mode"
    shopt -s nullglob
    { : >"$HPCRUN_RUN_DIR/completed/.refresh"; } 2>/dev/null
    set -- "$HPCRUN_RUN_DIR"/completed/rank-*
    echo $#
  )
}
hpcrun_check_completed_ranks() {  # fail if only some ranks have completed: mpiexec may return 0 if a rank leaves without MPI_Finalize, but kills the others
  local rank=0
  for _ in {1..10}; do
    hpcrun_count_completed_ranks
    # Without any, the ranks could not write.
    ((0 < hpcrun_completed_ranks && hpcrun_completed_ranks < hpcrun_ranks)) && hpcrun_has_space || return 0
    command sleep 0.2
  done
  while [ -e "$HPCRUN_RUN_DIR/completed/rank-$rank" ]; do ((rank++)); done
  hpcrun_reason="the ranks did not all complete: ${hpcrun_words[0]##*/} returned 0, but only $hpcrun_completed_ranks of $hpcrun_ranks ranks did, and not rank $rank"
  hpcrun_code=1
}
hpcrun_check_world() {  # warn, or fail with --strict, if rank 0 was not in a world of all ranks (file alone instead of met, from sitecustomize.py)
  local why='the script uses neither hpcrun.train nor another library for distributed training'
  if [[ -e $HPCRUN_RUN_DIR/met || ! -e $HPCRUN_RUN_DIR/alone && -z $hpcrun_trains_separate_models ]]; then
    command rm -f "$HPCRUN_RUN_DIR/alone"
    return
  fi
  [ -n "$hpcrun_trains_separate_models" ] || why=$(command head -c 1000 "$HPCRUN_RUN_DIR/alone")
  (
    umask "$hpcrun_mode"
    : >>"$HPCRUN_RUN_DIR/alone"
  )
  [[ $why == "rank 0 was in a world of "* ]] || why="each of the $hpcrun_ranks ranks worked alone: $why"
  echo "hpcrun: WARNING: $why" >&2
  [ -z "$hpcrun_strict" ] || hpcrun_code=1 hpcrun_reason="${why%%: *} (--strict)"
}
