# Prepares the container in which each rank starts.
#
# hpcrun_enter_container OPTION... -- COMMAND...   writes container.sh in the run directory, which starts any program in the
#                        container; COMMAND: the runtime's command and options before the binds and the image
# hpcrun_enter_pyxis OPTION... -- WORD...          sets srun's options for the launch line, with which srun starts the container
#
# Options:
#   --image-file         images are files: an image that begins with / must exist
#   --bind-hpcrun        bind the host's hpcrun into the container
#   --bind WORD          the runtime's option for a bind
#   --prefix NAME        the prefix of the runtime's variables that set variables in the container; default: use options
#   --python PROGRAM     the container's Python, if the program needs it
#   --runtime NAME       the runtime, for messages
# Variables:
#   hpcrun_image, hpcrun_binds, hpcrun_variables    the image; SOURCE:TARGET[:ro]...; NAME=VALUE... only for the container
#   hpcrun_data                                     folders of data, which are bound only if they exist
#   hpcrun_names, hpcrun_families                   names and prefixes of variables that the container gets unchanged
#   hpcrun_container                                result: the command that starts the container
# shellcheck disable=SC2034,SC2154  # these files share variables
hpcrun_read_container() {  # OPTION... -- WORD...
  hpcrun_image_file='' hpcrun_bind_hpcrun='' hpcrun_bind='' hpcrun_prefix='' hpcrun_inner_python='' hpcrun_runtime=''
  while [[ $# -gt 0 && $1 != -- ]]; do
    case $1 in
      --image-file) hpcrun_image_file=yes ;;
      --bind-hpcrun) hpcrun_bind_hpcrun=yes ;;
      --bind) hpcrun_bind=$2 && shift ;;
      --prefix) hpcrun_prefix=$2 && shift ;;
      --python) hpcrun_inner_python=$2 && shift ;;
      --runtime) hpcrun_runtime=$2 && shift ;;
      *) hpcrun_fail "the container has no option $1" ;;
    esac
    shift
  done
  shift
  hpcrun_container=("$@")
  [ -z "$hpcrun_image_file" ] || [[ $hpcrun_image != /* || -e $hpcrun_image ]] ||
    hpcrun_fail "there is no image $hpcrun_image (site key container.image, or --container)"
  if [ -n "$hpcrun_bind_hpcrun" ]; then
    hpcrun_binds+=("$(PYTHONSAFEPATH=1 command "$hpcrun_python" -c 'import hpcrun; print(*hpcrun.__path__)'):/hpcrun/hpcrun:ro")
  fi
  for hpcrun_folder in ${hpcrun_data[@]+"${hpcrun_data[@]}"}; do
    [ ! -e "$hpcrun_folder" ] || hpcrun_binds+=("$hpcrun_folder:$hpcrun_folder")
  done
}
hpcrun_enter_container() {
  hpcrun_protect
  hpcrun_read_container "$@"
  type -P "${hpcrun_container[0]}" >/dev/null ||
    hpcrun_fail "there is no command ${hpcrun_container[0]} (site key container.runtime); load a module that provides it"
  for hpcrun_bind_value in "${hpcrun_binds[@]}"; do hpcrun_container+=("$hpcrun_bind" "$hpcrun_bind_value"); done
  (
    umask go=
    : >"$HPCRUN_RUN_DIR/container.sh"
  )
  {
    echo "# Starts a program in the job's container: bash container.sh PROGRAM [ARGUMENT...]"
    declare -p hpcrun_container hpcrun_variables hpcrun_image hpcrun_names hpcrun_families hpcrun_prefix hpcrun_bind
    printf 'source %q\n' "$hpcrun_library/enter.bash"
  } >"$HPCRUN_RUN_DIR/container.sh"
  if [ -n "$hpcrun_inner_python" ]; then
    hpcrun_answer=$(
      command bash "$HPCRUN_RUN_DIR/container.sh" "$hpcrun_inner_python" -c \
        'from importlib.util import find_spec as f; print(f("tomllib") and f("hpcrun") and "hpcrun")'
    ) || hpcrun_fail "$hpcrun_inner_python does not start in the container (site key container.python); the messages of $hpcrun_runtime are in the log"
    [ "${hpcrun_answer##*$'\n'}" = hpcrun ] ||
      echo "hpcrun: WARNING: $hpcrun_inner_python in $hpcrun_image is not Python 3.11 or later with hpcrun: programs cannot import hpcrun.train" >&2
  fi
  hpcrun_restore
}
hpcrun_enter_pyxis() {
  hpcrun_protect
  [[ $(command srun --help 2>&1) == *--container-image* ]] ||
    hpcrun_fail 'srun has no option --container-image: this Slurm has no pyxis (site key container.runtime)'
  hpcrun_read_container "$@"
  hpcrun_mounts=''
  for hpcrun_bind_value in "${hpcrun_binds[@]}"; do hpcrun_mounts+=${hpcrun_mounts:+,}$hpcrun_bind_value; done
  hpcrun_environment=$(printf ',%s' "${hpcrun_names[@]}" "${hpcrun_variables[@]%%=*}")
  hpcrun_container=(
    --container-image="$hpcrun_image" --container-mounts="$hpcrun_mounts" --container-env="${hpcrun_environment:1}"
    "${hpcrun_container[@]}"
  )
  hpcrun_restore
}
