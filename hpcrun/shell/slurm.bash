# What a job does because it is Slurm's: its id, signals, node failures, preemption, going back to the queue.
#
# Options of job.bash:
#   --own-slurm-conf        the SLURM_CONF of the login node may name a file that this node has elsewhere
#   --max-requeue N         how often the job goes back to the queue before its time limit, to go on from its checkpoint
#   --resubmit              where the site forbids requeueing, the script is submitted again instead
# Variables: those of record.bash and signals.bash, and of hpcrun_launch
# shellcheck disable=SC2034,SC2154  # variables are those of all these files
hpcrun_cancelled='' hpcrun_back='' hpcrun_told=''
hpcrun_identify() {
  HPCRUN_JOB_ID=${SLURM_JOB_ID-} hpcrun_nodes=${SLURM_JOB_NODELIST-}
  [ -z "$hpcrun_sweep" ] || HPCRUN_JOB_ID=${SLURM_ARRAY_JOB_ID-}_${SLURM_ARRAY_TASK_ID-}
  export SLURM_EXPORT_ENV=ALL  # also after --export=NONE, the ranks get the script's environment
  [ -z "$hpcrun_own_slurm_conf" ] || [ -e "${SLURM_CONF-/}" ] || unset SLURM_CONF
}
hpcrun_resubmitted() { :; }  # what else of submitted.json changes when the script is started again
hpcrun_end_orphans() { :; }
hpcrun_record_scheduler() {
  [ -z "${SLURM_JOB_ID-}" ] || command scontrol show job "$SLURM_JOB_ID" >"$HPCRUN_RUN_DIR/provenance/slurm.txt"
}
hpcrun_trap_more() {
  trap '[[ -n $hpcrun_over ]] || { hpcrun_cancelled=yes; hpcrun_stop TERM 15; }' USR1  # hpcrun cancel
  trap '[[ $hpcrun_reason == "stopped by SIGTERM" ]] || hpcrun_stop USR2 12' USR2      # the time limit is near
  # what is in the log by now is an earlier start's
  hpcrun_told=$(command stat -Lc %s "$HPCRUN_RUN_DIR/${HPCRUN_JOB_ID}_0_log.err" 2>/dev/null)
}
hpcrun_ask() {
  case $hpcrun_launcher_name in
    srun)  # the ranks get it, and time to write a checkpoint; on SIGTERM srun itself would kill them
      if [ "$1" = USR2 ] || ! command scancel --signal=TERM "$HPCRUN_JOB_ID" 2>/dev/null; then
        kill -s "$hpcrun_stop_signal" "$hpcrun_launcher" 2>/dev/null
      fi
      ;;
    none) kill -s "$1" "$hpcrun_launcher" 2>/dev/null ;;
    *) kill -s "$hpcrun_stop_signal" "$hpcrun_launcher" 2>/dev/null ;;
  esac
}
hpcrun_requeues() {
  [ -n "$HPCRUN_JOB_ID" ] && [[ $(command scontrol show job "$HPCRUN_JOB_ID" 2>/dev/null) == *Requeue=1*$1* ]]
}
hpcrun_log() { command tail -c "+$((hpcrun_told + 1))" "$HPCRUN_RUN_DIR/${HPCRUN_JOB_ID}_0_log.err" 2>/dev/null; }  # this start's
hpcrun_node_failed() {  # the ranks, and srun, hear of it before the script does
  hpcrun_log | command grep '^srun: error: Node failure' && return 0
  [ "$hpcrun_max_requeue" -gt 0 ] || return 1  # in a trap, a bare return has the status of before it
  hpcrun_step=(timeout --signal=KILL 60 srun --overlap --quiet --mpi=none --mem=0 --cpus-per-task=1 --ntasks-per-node=1 --chdir=/)
  [ "${SLURM_JOB_NUM_NODES:-1}" -gt 1 ] &&
    command "${hpcrun_step[@]}" --nodes=1 --ntasks=1 --nodelist="$SLURMD_NODENAME" true &&
    ! command "${hpcrun_step[@]}" --nodes="$SLURM_JOB_NUM_NODES" --ntasks="$SLURM_JOB_NUM_NODES" true
} >/dev/null 2>&1
hpcrun_await_slurm() {  # CODE: when Slurm finds out, it ends this script and starts the job again
  hpcrun_before=$hpcrun_reason
  hpcrun_requeued=true hpcrun_reason='stopped by the failure of a node; requeued'
  hpcrun_record "$1" "$hpcrun_reason" "$(command date +%s)"
  echo 'hpcrun: a node of this job does not answer; Slurm starts the job again when it finds that out' >&2
  hpcrun_seconds=$(command scontrol show config 2>/dev/null | command sed -n 's/^SlurmdTimeout *= \([0-9]*\).*/\1/p')
  hpcrun_until=$((SECONDS + ${hpcrun_seconds:-300} + 60))
  trap 'hpcrun_until=' TERM
  while [ "$SECONDS" -lt "${hpcrun_until:-0}" ]; do command sleep 1; done
  trap '' TERM
  [ -z "$hpcrun_until" ] || hpcrun_requeued=false hpcrun_reason=$hpcrun_before
}
hpcrun_requeue() {  # back to the queue, to go on from the checkpoint
  hpcrun_count=$(command grep -c '"requeued": true' "$HPCRUN_RUN_DIR/starts.jsonl")
  hpcrun_reason='stopped by SIGUSR2 before its time limit'
  if [ "$hpcrun_count" -ge "$hpcrun_max_requeue" ]; then
    hpcrun_reason+=", and requeued as often as --max-requeue=$hpcrun_max_requeue allows"
    return 0
  fi
  if [ -n "$hpcrun_resubmit" ]; then
    hpcrun_submit_again
    return 0
  fi
  hpcrun_requeued=true hpcrun_back=yes
  hpcrun_reason+="; requeued, $((hpcrun_count + 1)) of at most $hpcrun_max_requeue times"
}
hpcrun_submit_again() {
  hpcrun_script=$0 hpcrun_logs=()
  if [ -e "$HPCRUN_RUN_DIR/${HPCRUN_JOB_ID}_0_log.out" ]; then  # not where this script was given to sbatch by hand
    hpcrun_script=$HPCRUN_RUN_DIR/job.sh
    hpcrun_logs=("--output=$HPCRUN_RUN_DIR/${HPCRUN_JOB_ID}_0_log.out" "--error=$HPCRUN_RUN_DIR/${HPCRUN_JOB_ID}_0_log.err")
    if [ ! -O "$hpcrun_script" ] || [ -n "$(command find "$hpcrun_script" -perm /022 2>&1)" ]; then
      hpcrun_reason+="; not submitted again: others can write $hpcrun_script"
      return 0
    fi
  fi
  hpcrun_answer=$(
    for hpcrun_name in "${!SLURM_@}" "${!SBATCH_@}"; do [ "$hpcrun_name" = SLURM_CONF ] || unset "$hpcrun_name"; done
    command sbatch --parsable --open-mode=append --dependency="afterany:$HPCRUN_JOB_ID" "${hpcrun_logs[@]}" "$hpcrun_script" 2>&1
  ) || {
    hpcrun_answer=${hpcrun_answer//$'\n'/ }
    hpcrun_reason+="; sbatch refuses to go on: ${hpcrun_answer:0:300}"
    return 0
  }
  hpcrun_answer=${hpcrun_answer##*$'\n'}
  hpcrun_answer=${hpcrun_answer%%;*}
  hpcrun_requeued=true
  hpcrun_reason+="; job $hpcrun_answer goes on with it, $((hpcrun_count + 1)) of at most $hpcrun_max_requeue times"
  hpcrun_become "$hpcrun_answer" &&
    command ln -sfn "${hpcrun_answer}_0_result.pkl" "$HPCRUN_RUN_DIR/${HPCRUN_JOB_ID}_0_result.pkl"
}
hpcrun_before_end() {
  case $hpcrun_launcher_name/$hpcrun_reason in
    mpirun/completed | */the\ ranks*)
      if hpcrun_requeues 'PreemptTime=[0-9]'; then  # in its grace time Slurm tells the ranks alone, and would not requeue a job that ends
        hpcrun_requeued=true hpcrun_back=yes hpcrun_reason='stopped by preemption; requeued'
      elif hpcrun_node_failed && hpcrun_requeues ''; then
        hpcrun_await_slurm "$hpcrun_code"
      fi
      ;;
  esac
  [ "$hpcrun_max_requeue" -gt 0 ] || return 0
  case $hpcrun_reason/$hpcrun_code in 'stopped by SIGUSR2'/* | the\ ranks*/140) hpcrun_requeue ;; esac
}
hpcrun_after_end() {
  if [ -n "$hpcrun_back" ] && ! hpcrun_answer=$(command scontrol requeue "$HPCRUN_JOB_ID" 2>&1); then
    hpcrun_answer=${hpcrun_answer//$'\n'/ } hpcrun_requeued=false
    hpcrun_record "$hpcrun_code" "${hpcrun_reason%%; *}; scontrol requeue fails: ${hpcrun_answer:0:300}" "$(command date +%s)"
  fi
  [ -z "$hpcrun_cancelled" ] || command scancel "$HPCRUN_JOB_ID"  # for Slurm, too, it did not fail
}
hpcrun_read_launcher() {  # the exit code of the rank that failed first, where the launcher tells another
  [ "$hpcrun_launcher_name" = srun ] || return 0
  hpcrun_said=$(hpcrun_log | command grep '^srun: ')
  if [ "$hpcrun_code" = 0 ]; then
    [[ $hpcrun_said != *"Job step aborted"* ]] || hpcrun_code=1  # srun did not hear how all ranks ended
  elif [ -z "$hpcrun_who" ] && [ "$hpcrun_code" -gt 128 ] && [[ $hpcrun_said != *"Node failure"* ]]; then
    # the highest code of all, which may be that of ranks that srun ended because another had failed: find that one's
    hpcrun_first=$(command sed -nE <<<"$hpcrun_said" '/^srun: error: /{
      s/.*: tasks? [^:]*: //; s/^Exited with exit code //; s/^Killed$/137/; s/^User defined signal 2$/140/
      s/^Segmentation fault.*/139/; s/^Aborted.*/134/; s/^Bus error.*/135/; s/^Illegal instruction.*/132/
      /^[0-9]+$/p; q
    }')
    hpcrun_code=${hpcrun_first:-$hpcrun_code}
  fi
}
