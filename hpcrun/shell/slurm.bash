# Functions for Slurm jobs: job id, signals, node failures, preemption, requeueing.
#
# Options of job.bash, for Slurm jobs:
#   --own-slurm-conf        ignore SLURM_CONF of the login node if the file does not exist on this node
#   --max-requeue N         maximum number of times that the job requeues itself before its time limit; default: 0
#   --resubmit              submit the script again instead of requeueing, because the site forbids requeueing
#   --memory-retries N      maximum number of times that the job submits itself with 1.5 times its memory after it ran out of it
# Variables:
#   hpcrun_signal_seconds   result: the time from SIGUSR2 to the time limit, in s; empty if the script requests no SIGUSR2
# and those of record.bash and signals.bash, and of hpcrun_launch. local.bash describes the functions of all schedulers.
# shellcheck disable=SC2034,SC2154  # these files share variables
hpcrun_own_slurm_conf='' hpcrun_max_requeue=0 hpcrun_memory_retries=0 hpcrun_resubmit=''
hpcrun_cancelled='' hpcrun_requeue_at_end='' hpcrun_memory=()
hpcrun_signal_seconds=$(command sed -n 's/^#SBATCH --signal=B:USR2@\([0-9]\{1,6\}\)$/\1/p; 100q' "$0" 2>/dev/null)
hpcrun_scheduler_option() {
  case $1 in
    --own-slurm-conf) hpcrun_own_slurm_conf=yes ;;
    --max-requeue) hpcrun_max_requeue=$2 hpcrun_option_words=2 ;;
    --resubmit) hpcrun_resubmit=yes ;;
    --memory-retries) hpcrun_memory_retries=$2 hpcrun_option_words=2 ;;
    *) return 1 ;;
  esac
}
hpcrun_set_job_id() {
  HPCRUN_JOB_ID=${SLURM_JOB_ID-} hpcrun_nodes=${SLURM_JOB_NODELIST-}
  [ -z "$hpcrun_sweep" ] || HPCRUN_JOB_ID=${SLURM_ARRAY_JOB_ID-}_${SLURM_ARRAY_TASK_ID-}
  export SLURM_EXPORT_ENV=ALL  # the ranks get the script's environment even after --export=NONE
  [ -z "$hpcrun_own_slurm_conf" ] || [ -e "${SLURM_CONF-/}" ] || unset SLURM_CONF
}
hpcrun_submission_edit() { :; }
hpcrun_end_orphans() { :; }
hpcrun_record_scheduler() {
  [ -z "${SLURM_JOB_ID-}" ] || command scontrol show job "$SLURM_JOB_ID" >"$HPCRUN_RUN_DIR/provenance/slurm.txt"
}
hpcrun_trap_scheduler_signals() {
  trap '[[ -n $hpcrun_ranks_ended ]] || { hpcrun_cancelled=yes; hpcrun_stop TERM 15; }' USR1  # hpcrun cancel
  trap '[[ $hpcrun_reason == "stopped by SIGTERM" ]] || hpcrun_stop USR2 12' USR2      # the time limit is near
}
hpcrun_may_requeue() {
  [ -n "$HPCRUN_JOB_ID" ] && [[ $(command scontrol show job "$HPCRUN_JOB_ID" 2>/dev/null) == *Requeue=1*$1* ]]
}
hpcrun_step() {  # NODES [OPTION...] COMMAND...: run a command once on each of NODES nodes, for at most a minute
  command timeout --signal=KILL 60 srun --overlap --quiet --mpi=none --mem=0 --cpus-per-task=1 --ntasks-per-node=1 --chdir=/ \
    --nodes="$1" --ntasks="$1" "${@:2}"
}
hpcrun_on_each_node() { hpcrun_step "${SLURM_JOB_NUM_NODES:-1}" "$@"; }
hpcrun_node_failed() {  # return whether a node has failed; ranks and srun detect this before the script ends
  hpcrun_log | command grep '^srun: error: Node failure' && return 0
  [ "$hpcrun_max_requeue" -gt 0 ] || return 1  # in a trap, return without a number returns the status before the trap
  [ "${SLURM_JOB_NUM_NODES:-1}" -gt 1 ] && hpcrun_step 1 --nodelist="$SLURMD_NODENAME" true && ! hpcrun_on_each_node true
} >/dev/null 2>&1
hpcrun_await_slurm() {  # CODE: wait until Slurm detects the node failure, ends this script and requeues the job
  hpcrun_before=$hpcrun_reason
  hpcrun_requeued=true hpcrun_reason='stopped by the failure of a node; requeued'
  hpcrun_record "$1" "$hpcrun_reason" "$(command date +%s)"
  echo 'hpcrun: a node of this job does not answer; Slurm requeues the job when it detects that' >&2
  hpcrun_seconds=$(command scontrol show config 2>/dev/null | command sed -n 's/^SlurmdTimeout *= \([0-9]*\).*/\1/p')
  hpcrun_until=$((SECONDS + ${hpcrun_seconds:-300} + 60))
  trap 'hpcrun_until=' TERM
  while [ "$SECONDS" -lt "${hpcrun_until:-0}" ]; do command sleep 1; done
  trap '' TERM
  [ -z "$hpcrun_until" ] || hpcrun_requeued=false hpcrun_reason=$hpcrun_before
}
hpcrun_requeue() {  # requeue the job, which then continues from its checkpoint
  hpcrun_count=$(command grep -c '"requeued": true' "$HPCRUN_RUN_DIR/starts.jsonl")
  hpcrun_reason='stopped by SIGUSR2 before its time limit'
  if [ "$hpcrun_count" -ge "$hpcrun_max_requeue" ]; then
    hpcrun_reason+=", and requeued as often as --max-requeue=$hpcrun_max_requeue allows"
    return 0
  fi
  if [ -n "$hpcrun_resubmit" ]; then
    [ "$hpcrun_memory_retries" = 0 ] || hpcrun_set_memory 100  # keep the memory of an earlier retry
    hpcrun_submit_again "$hpcrun_max_requeue" it
    return 0
  fi
  hpcrun_requeued=true hpcrun_requeue_at_end=yes
  hpcrun_reason+="; requeued, $((hpcrun_count + 1)) of at most $hpcrun_max_requeue times"
}
hpcrun_ran_out_of_memory() {  # return whether the kernel or Slurm has killed ranks because of their memory
  hpcrun_log | command grep -qE '^slurmstepd.*(\boom[-_]kill\b|[Ee]xceeded (job |step )?memory limit( \(|$))|^srun: error: .*Out Of Memory' && return 0
  [ "$hpcrun_code" = 137 ] || return 1  # srun reports a lack of memory, other launchers do not
  command sed -nE -e 's|^0::(/.*)|/sys/fs/cgroup\1/memory.events|p' \
    -e 's|^[0-9]+:memory:(/.*)|/sys/fs/cgroup/memory\1/memory.oom_control|p' /proc/self/cgroup |
    command xargs -rd '\n' grep -qs '^oom_kill [1-9]'
}
hpcrun_set_memory() {  # PERCENT: set hpcrun_memory to the sbatch option for PERCENT of the job's memory; empty if that is unknown
  hpcrun_memory=()
  for hpcrun_name in GPU=--mem-per-gpu CPU=--mem-per-cpu NODE=--mem; do
    hpcrun_size=SLURM_MEM_PER_${hpcrun_name%%=*}
    [[ ${!hpcrun_size-} =~ ^[1-9][0-9]*$ ]] || continue
    hpcrun_memory=("${hpcrun_name#*=}=$(((${!hpcrun_size} * $1 + 99) / 100))M")
    return 0
  done
}
hpcrun_retry_with_more_memory() {
  hpcrun_ran_out_of_memory || return 0
  hpcrun_count=$(command grep -c '"more_memory": true' "$HPCRUN_RUN_DIR/starts.jsonl")
  if [ "$hpcrun_count" -ge "$hpcrun_memory_retries" ]; then
    hpcrun_reason+="; it ran out of memory as often as --memory-retries=$hpcrun_memory_retries allows"
    return 0
  fi
  hpcrun_set_memory 150
  if [ "${#hpcrun_memory[@]}" = 0 ]; then
    hpcrun_reason+='; it ran out of memory, and has all of the node'
    return 0
  fi
  hpcrun_end=$hpcrun_reason hpcrun_reason='stopped by the lack of memory'
  hpcrun_submit_again "$hpcrun_memory_retries" "${hpcrun_memory[0]}"
  [ "$hpcrun_requeued" = true ] || hpcrun_reason=$hpcrun_end${hpcrun_reason#stopped by the lack of memory}
}
hpcrun_submit_again() {  # MAXIMUM TEXT: submit this job again; the maximum number of times and a text are for the message
  hpcrun_script=$0 hpcrun_logs=()
  if [ -e "$HPCRUN_RUN_DIR/${HPCRUN_JOB_ID}_0_log.out" ]; then  # a script that was submitted by hand has no such log
    hpcrun_script=$hpcrun_run/job.sh  # the tasks of a sweep have one script, by which hpcrun recognizes their jobs
    hpcrun_logs=("--output=$HPCRUN_RUN_DIR/${HPCRUN_JOB_ID}_0_log.out" "--error=$HPCRUN_RUN_DIR/${HPCRUN_JOB_ID}_0_log.err")
    if [ ! -O "$hpcrun_script" ] || [ -n "$(command find -L "$hpcrun_script" -perm /022 2>&1)" ]; then
      hpcrun_reason+="; not submitted again: others can write $hpcrun_script"
      return 0
    fi
  fi
  hpcrun_answer=$(
    for hpcrun_name in "${!SLURM_@}" "${!SBATCH_@}"; do [ "$hpcrun_name" = SLURM_CONF ] || unset "$hpcrun_name"; done
    command sbatch --parsable --open-mode=append --dependency="afterany:$HPCRUN_JOB_ID" "${hpcrun_logs[@]}" \
      "${hpcrun_memory[@]}" ${hpcrun_sweep:+"--array=$HPCRUN_TASK"} "$hpcrun_script" 2>&1
  ) || {
    hpcrun_answer=${hpcrun_answer//$'\n'/ }
    hpcrun_reason+="; sbatch fails: ${hpcrun_answer:0:300}"
    return 0
  }
  hpcrun_answer=${hpcrun_answer##*$'\n'}
  hpcrun_answer=${hpcrun_answer%%;*}${hpcrun_sweep:+_$HPCRUN_TASK}
  hpcrun_requeued=true
  hpcrun_reason+="; job $hpcrun_answer goes on with $2, $((hpcrun_count + 1)) of at most $1 times"
  hpcrun_continue_as "$hpcrun_answer" &&
    command ln -sfn "${hpcrun_answer}_0_result.pkl" "$HPCRUN_RUN_DIR/${HPCRUN_JOB_ID}_0_result.pkl"
}
hpcrun_before_end() {
  case $hpcrun_hides_signals/$hpcrun_reason in
    yes/completed | */the\ ranks*)
      if hpcrun_may_requeue 'PreemptTime=[0-9]'; then  # in the grace time of preemption, Slurm signals only the ranks, and does not requeue a job that has ended
        hpcrun_requeued=true hpcrun_requeue_at_end=yes hpcrun_reason='stopped by preemption; requeued'
      elif hpcrun_node_failed && hpcrun_may_requeue ''; then
        hpcrun_await_slurm "$hpcrun_code"
      fi
      ;;
  esac
  case $hpcrun_memory_retries/$hpcrun_reason in [1-9]*/the\ ranks*) hpcrun_retry_with_more_memory ;; esac
  [ "$hpcrun_max_requeue" -gt 0 ] || return 0
  case $hpcrun_reason/$hpcrun_code in 'stopped by SIGUSR2'/* | the\ ranks*/140) hpcrun_requeue ;; esac
}
hpcrun_after_end() {
  if [ -n "$hpcrun_requeue_at_end" ] && ! hpcrun_answer=$(command scontrol requeue "$HPCRUN_JOB_ID" 2>&1); then
    hpcrun_answer=${hpcrun_answer//$'\n'/ } hpcrun_requeued=false
    hpcrun_record "$hpcrun_code" "${hpcrun_reason%%; *}; scontrol requeue fails: ${hpcrun_answer:0:300}" "$(command date +%s)"
  fi
  [ -z "$hpcrun_cancelled" ] || command scancel "$HPCRUN_JOB_ID"  # sets the job's state in Slurm to CANCELLED instead of FAILED
}
