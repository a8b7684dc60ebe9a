# Functions for ranks that srun starts; see launch.bash.
# shellcheck disable=SC2034,SC2154  # these files share variables
hpcrun_request_stop() {  # signal the ranks, which then have time to write a checkpoint; srun would kill them on SIGTERM
  if [ "$1" = USR2 ] || ! command scancel --signal=TERM "$HPCRUN_JOB_ID" 2>/dev/null; then
    kill -s "$hpcrun_stop_signal" "$hpcrun_launcher" 2>/dev/null
  fi
}
hpcrun_restore_output() {  # print the end of rank 0's output if srun has lost it: Slurm's step daemon may end too early
  local log=$HPCRUN_RUN_DIR/${HPCRUN_JOB_ID}_0_log.out rank_log=$HPCRUN_RUN_DIR/logs/rank-0.log end
  [[ -z ${hpcrun_output_on_all_ranks-} && -s $log && -s $rank_log ]] || return 0
  end=$(command tail -c 4096 "$rank_log" | command tr -d '\0' | command grep '[^[:space:]]' | command tail -n 1 | command tail -c 200)
  [ -n "$end" ] && ! command tail -c 262144 "$log" | command grep -aqF -e "$end" || return 0
  echo "hpcrun: WARNING: srun lost the end of rank 0's output: its last lines follow; all of it is in $rank_log" >&2
  printf '\n'
  command tail -n 40 "$rank_log"
}
hpcrun_read_launcher() {
  hpcrun_restore_output
  hpcrun_srun_messages=$(hpcrun_log | command grep '^srun: ')
  if [ "$hpcrun_code" = 0 ]; then
    [[ $hpcrun_srun_messages != *"Job step aborted"* ]] || hpcrun_code=1  # srun has not received the exit codes of all ranks
  elif [ -z "$hpcrun_failed_rank" ] && [ "$hpcrun_code" -gt 128 ] && [[ $hpcrun_srun_messages != *"Node failure"* ]]; then
    # srun returns the highest exit code, which may be that of ranks that it killed after the first failure
    hpcrun_first=$(command sed -nE <<<"$hpcrun_srun_messages" '/^srun: error: /{
      s/.*: tasks? [^:]*: //; s/^Exited with exit code //; s/^Killed$/137/; s/^User defined signal 2$/140/
      s/^Segmentation fault.*/139/; s/^Aborted.*/134/; s/^Bus error.*/135/; s/^Illegal instruction.*/132/
      /^[0-9]+$/p; q
    }')
    hpcrun_code=${hpcrun_first:-$hpcrun_code}
  fi
}
