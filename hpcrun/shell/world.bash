# The environment variables with which frameworks find the other ranks: MASTER_ADDR and others; see docs/frameworks.md.
#
# hpcrun_choose_world [FRAMEWORK]   in the job script, before the ranks start: sets hpcrun_master and hpcrun_port, the host of
#                        rank 0 and the first of the ports that the ranks may use, which are free on this host; and for
#                        tensorflow hpcrun_workers, the list of workers in TF_CONFIG
# hpcrun_rendezvous      the same, for a program such as torchrun, which starts the ranks and gets both as arguments
# hpcrun_export_world    in each rank: exports those of the variables that are not set yet. Slurm's variables get the values
#                        that srun would give the rank: with mpirun and mpiexec, they have those of their processes on the nodes
# Variables: HPCRUN_RUN_DIR with its hostfile, hpcrun_ranks and hpcrun_hostfile_options; for ranks also
#            hpcrun_master, hpcrun_port, hpcrun_workers, hpcrun_local_ranks, HPCRUN_RANK, HPCRUN_LOCAL_RANK, HPCRUN_NTASKS
# shellcheck disable=SC2034,SC2154  # these files share variables
hpcrun_world_names=(MASTER_ADDR MASTER_PORT WORLD_SIZE RANK LOCAL_RANK LOCAL_WORLD_SIZE NODE_RANK)
hpcrun_world_names+=(JAX_COORDINATOR_ADDRESS JAX_NUM_PROCESSES JAX_PROCESS_ID TF_CONFIG)
hpcrun_read_hosts() {  # set hpcrun_hosts to the hosts in the hostfile, in order; its lines are such as n1, n1:2, n1 slots=2
  local line
  local -A seen=()
  hpcrun_hosts=()
  while IFS=$' \t\n' read -r line _; do
    line=${line%:*}
    [ -n "$line" ] && [ -z "${seen[$line]-}" ] || continue
    seen[$line]=yes
    hpcrun_hosts+=("$line")
  done 2>/dev/null <"$HPCRUN_RUN_DIR/hostfile"
}
hpcrun_deal_hosts() {  # reorder the ranks' hosts cyclically over the nodes, instead of node by node
  local host left=("${hosts[@]}") rest=()
  local -A seen
  hosts=()
  while [ ${#left[@]} != 0 ]; do
    seen=() rest=()
    for host in "${left[@]}"; do
      if [ -n "${seen[$host]-}" ]; then rest+=("$host"); else hosts+=("$host") seen[$host]=yes; fi
    done
    left=("${rest[@]}")
  done
}
hpcrun_choose_world() {
  local taken=' ' tables=() port number hex host hosts=() ports=2
  local -A count=()
  hpcrun_workers=''
  if [ "${1-}" = tensorflow ]; then  # the host of each rank, one per line
    mapfile -t hosts < <(PYTHONSAFEPATH=1 command "$hpcrun_python" -m hpcrun hostfile --format ranks "${hpcrun_hostfile_options[@]}")
    [ ${#hosts[@]} = "$hpcrun_ranks" ] || hpcrun_fail "TF_CONFIG needs the hosts of $hpcrun_ranks ranks, but ${#hosts[@]} are known"
    [ -z "${hpcrun_cyclic-}" ] || hpcrun_deal_hosts
    for host in "${hosts[@]}"; do count[$host]=$((${count[$host]:-0} + 1)); done
    ports=$((2 + ${count[${hosts[0]}]}))
  fi
  hpcrun_read_hosts
  hpcrun_master=${hpcrun_hosts[0]-$(command uname -n)}
  [ ${#hpcrun_hosts[@]} -gt 1 ] || hpcrun_master=127.0.0.1  # works even if the host's name has no address
  # The kernel uses no ports below 32768 for outgoing connections. Jobs on the same host begin at different ports, because
  # programs open their ports only some seconds after this check.
  IFS=$' \t\n' read -r number _ < <(command cksum <<<"$HPCRUN_RUN_DIR ${SLURM_JOB_ID-}")
  for port in /proc/net/{tcp,tcp6}; do [ ! -r "$port" ] || tables+=("$port"); done
  [ ${#tables[@]} = 0 ] || taken=" $(command sed -nE 's/^ *[0-9]+: [0-9A-F]+:([0-9A-F]{4}) .*/\1/p' "${tables[@]}" | command tr '\n' ' ')"
  for _ in {1..100}; do
    hpcrun_port=$((10000 + number % 22000))
    for ((port = hpcrun_port; port < hpcrun_port + ports; port++)); do
      printf -v hex %04X "$port"
      [[ $taken == *" $hex "* ]] && number=$((number + 7919)) && continue 2
    done
    break
  done
  count=()
  for host in "${hosts[@]}"; do
    number=$((hpcrun_port + 2 + ${count[$host]:-0}))
    count[$host]=$((${count[$host]:-0} + 1))
    [ "$hpcrun_master" != 127.0.0.1 ] || host=127.0.0.1
    hpcrun_workers+="${hpcrun_workers:+, }\"$host:$number\""
  done
}
hpcrun_require_host() {  # end this rank if TF_CONFIG names another host for it: TensorFlow would wait forever
  local workers expected own
  IFS=', ' read -ra workers <<<"${hpcrun_workers//\"/}"
  expected=${workers[HPCRUN_RANK]%:*} own=$(command uname -n)
  [ -z "${TF_CONFIG-}" ] && [ "$expected" != 127.0.0.1 ] && [ "${expected%%.*}" != "${own%%.*}" ] || return 0
  [[ " ${hpcrun_hosts[*]} " == *" $own "* ]] || return 0  # Slurm may know this host by another name
  echo "hpcrun: ERROR: rank $HPCRUN_RANK runs on $own, and its TF_CONFIG would say $expected: the launcher places ranks in an order" \
    "that hpcrun does not know; remove the option that orders them from the site key launcher_args" >&2
  exit 1
}
hpcrun_rendezvous() {
  hpcrun_protect
  hpcrun_choose_world
  hpcrun_restore
}
hpcrun_export_world() {
  local node='' host number values=()
  hpcrun_read_hosts
  host=$(command uname -n)
  for number in "${!hpcrun_hosts[@]}"; do
    [ "${hpcrun_hosts[number]%%.*}" != "${host%%.*}" ] || node=$number
  done
  # Slurm may use another name for this host. SLURM_NODEID is valid only in ranks that Slurm started itself, which have the
  # same number in SLURM_PROCID.
  [ -n "$node" ] || [ "${SLURM_PROCID-}" != "$HPCRUN_RANK" ] || node=${SLURM_NODEID-}
  [[ $hpcrun_local_ranks =~ ^[1-9][0-9]*$ ]] || hpcrun_local_ranks=''
  if [ -z "$node" ] && [ -n "$hpcrun_local_ranks" ]; then
    node=$(((HPCRUN_RANK - HPCRUN_LOCAL_RANK) / hpcrun_local_ranks))
  fi
  values=("$hpcrun_master" "$hpcrun_port" "$HPCRUN_NTASKS" "$HPCRUN_RANK" "$HPCRUN_LOCAL_RANK" "$hpcrun_local_ranks" "$node")
  values+=("$hpcrun_master:$((hpcrun_port + 1))" "$HPCRUN_NTASKS" "$HPCRUN_RANK")
  if [ -n "$hpcrun_workers" ]; then
    hpcrun_require_host
    values+=("{\"cluster\": {\"worker\": [$hpcrun_workers]}, \"task\": {\"type\": \"worker\", \"index\": $HPCRUN_RANK}}")
  fi
  for number in "${!values[@]}"; do
    host=${hpcrun_world_names[number]}
    [ -n "${!host-}" ] || [ -z "${values[number]}" ] || export "$host=${values[number]}"
  done
  # A process that Slurm started itself has the right variables.
  [ "${SLURM_TASK_PID-}" = $$ ] || [ -z "${SLURM_JOB_ID-}" ] || hpcrun_export_slurm "$node"
}
hpcrun_export_slurm() {  # NODE
  local IFS=, nodes=${#hpcrun_hosts[@]}
  export SLURM_PROCID="$HPCRUN_RANK" SLURM_LOCALID="$HPCRUN_LOCAL_RANK"
  export SLURM_NTASKS="$HPCRUN_NTASKS" SLURM_NPROCS="$HPCRUN_NTASKS" SLURM_STEP_NUM_TASKS="$HPCRUN_NTASKS"
  [ -z "$1" ] || export SLURM_NODEID="$1"
  [ "$nodes" != 0 ] || return 0
  export SLURM_NNODES="$nodes" SLURM_STEP_NUM_NODES="$nodes" SLURM_STEP_NODELIST="${hpcrun_hosts[*]}"
  [ "$HPCRUN_NTASKS" = "$((${hpcrun_local_ranks:-0} * nodes))" ] || return 0
  export SLURM_TASKS_PER_NODE="$hpcrun_local_ranks(x$nodes)" SLURM_STEP_TASKS_PER_NODE="$hpcrun_local_ranks(x$nodes)"
  [ -z "${SLURM_NTASKS_PER_NODE-}" ] || export SLURM_NTASKS_PER_NODE="$hpcrun_local_ranks"
}
