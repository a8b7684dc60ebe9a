# Starts a program in the job's container, on any node, with the launcher's variables: bash container.sh PROGRAM [ARGUMENT...].
# container.bash writes container.sh to the run directory; container.sh sets the following variables and loads this file.
#
# Variables: those of container.bash
# shellcheck disable=SC2034,SC2154  # these files share variables
# shellcheck source=/dev/null
source "${BASH_SOURCE[0]%/*}/world.bash"
hpcrun_names+=("${hpcrun_world_names[@]}")
for hpcrun_family in "${hpcrun_families[@]}"; do
  eval "hpcrun_names+=(\"\${!$hpcrun_family@}\")"
done
for hpcrun_name in "${hpcrun_names[@]}"; do
  [ -z "${!hpcrun_name+set}" ] || hpcrun_variables=("$hpcrun_name=${!hpcrun_name}" "${hpcrun_variables[@]}")
done
if [ -n "$hpcrun_prefix" ]; then
  export "${hpcrun_prefix}_NO_EVAL=1" "${hpcrun_variables[@]/#/${hpcrun_prefix}ENV_}"  # $ and ` are literal
else
  for hpcrun_variable in "${hpcrun_variables[@]}"; do hpcrun_container+=(--env "$hpcrun_variable"); done
  if [ -n "${PMI_FD-}" ]; then  # podman closes other file descriptors
    exec 3<&"$PMI_FD"
    hpcrun_container+=(--preserve-fds=1 --env PMI_FD=3)
  fi
fi
[ ! -d "${PMIX_SERVER_TMPDIR-}" ] || hpcrun_container+=("$hpcrun_bind" "$PMIX_SERVER_TMPDIR:$PMIX_SERVER_TMPDIR")
exec "${hpcrun_container[@]}" "$hpcrun_image" "$@"
