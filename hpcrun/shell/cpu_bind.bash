# Binds a rank to its part of the node's cores.
#
# hpcrun_tasks_on_node LIST                      prints the number of tasks on this node; LIST: of all nodes, such as 2(x3),1
# hpcrun_cpu_bind KIND LOCAL_RANK LOCAL_RANKS    binds this process, which becomes the rank, to its part of the allowed cores:
#                      in the order of sockets, and with all hardware threads of each core
#
# Parameters of hpcrun_cpu_bind:
#   KIND                 cores, or sockets, which binds the rank to all allowed cores of the sockets of its part
#   LOCAL_RANK           the local rank number on the node
#   LOCAL_RANKS          the number of ranks on the node
# It does not change the binding of a single rank, nor if Slurm has bound the ranks, if there are more ranks than cores, or if
# taskset or lscpu is missing.
#
# Environment: SLURM_NODEID, SLURM_STEP_TASKS_PER_NODE, SLURM_CPU_BIND_TYPE, SLURM_CPUS_ON_NODE, all optional
hpcrun_expand_ranges() {  # RANGES: expand 0-2,5 to 0,1,2,5
  local part number numbers=()
  for part in ${1//,/ }; do
    for ((number = ${part%-*}; number <= ${part#*-}; number++)); do numbers+=("$number"); done
  done
  local IFS=,
  echo "${numbers[*]}"
}
hpcrun_tasks_on_node() {
  local part times nodes=${SLURM_NODEID:-0}
  for part in ${1//,/ }; do
    times=1
    if [[ $part == *\(x* ]]; then times=${part#*\(x} times=${times%\)}; fi
    if [ "$nodes" -lt "$times" ]; then echo "${part%%\(*}"; return; fi
    nodes=$((nodes - times))
  done
}
hpcrun_cpu_bind() {
  local kind=$1 rank=$2 ranks=$3 tasks mask cpu node socket core key own='' sockets=' ' cores=()
  local -A cpus=() socket_of=()
  [[ $rank =~ ^[0-9]+$ && $ranks =~ ^[0-9]+$ ]] && [ "$ranks" -gt 1 ] || return 0
  tasks=$(hpcrun_tasks_on_node "${SLURM_STEP_TASKS_PER_NODE-}")
  [ "$tasks" = "$ranks" ] || tasks=  # Slurm's tasks are the job script, or the processes by which mpiexec starts the ranks of a node
  [ -z "$tasks" ] || [ "${SLURM_CPU_BIND_TYPE:-none}" = none ] || return 0
  mask=$(command taskset -pc $$ 2>/dev/null) || return 0
  mask=$(hpcrun_expand_ranges "${mask##*: }")
  IFS=, read -ra cores <<<"$mask"
  # if the rank has fewer cores than the job has on this node, Slurm has bound it without reporting this
  [ -z "$tasks" ] || [ $((${#cores[@]} * ranks)) -gt "${SLURM_CPUS_ON_NODE:-0}" ] || return 0
  cores=()
  while IFS=, read -r node socket core cpu; do
    [[ ,$mask, == *",$cpu,"* ]] || continue
    key=$node/$socket/$core
    [ -n "${cpus[$key]-}" ] || cores+=("$key")
    cpus[$key]+=${cpus[$key]:+,}$cpu socket_of[$key]=$socket
  done < <(command lscpu -p=NODE,SOCKET,CORE,CPU 2>/dev/null | command sed '/^#/d' | command sort -t, -k2,2n -k1,1n -k3,3n -k4,4n)
  [ ${#cores[@]} -ge "$ranks" ] || return 0
  local first=$((rank * ${#cores[@]} / ranks)) end=$(((rank + 1) * ${#cores[@]} / ranks))
  for key in "${cores[@]:first:end - first}"; do own+=${own:+,}${cpus[$key]} sockets+="${socket_of[$key]} "; done
  if [ "$kind" = sockets ]; then
    own=
    for key in "${cores[@]}"; do
      [[ $sockets != *" ${socket_of[$key]} "* ]] || own+=${own:+,}${cpus[$key]}
    done
  fi
  command taskset -pc "$own" $$ >/dev/null 2>&1 || true
}
