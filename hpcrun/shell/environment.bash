# Functions for modules, secrets and CUDA, which job scripts call.
#
# hpcrun_load_secrets FILE N        sets hpcrun_secret_1 to hpcrun_secret_N from the file, which only its owner can read;
#                                   without the file, these variables must be in the environment
# hpcrun_module WORD...             runs the command module with these words; force-purge also unloads sticky modules
# hpcrun_accepts_xla_flags          returns whether flags may be added to XLA_FLAGS: not if it is the name of a file with flags
# hpcrun_cuda [OPTION...]           evaluates the output of `hpcrun cuda --shell` with these options; returns 0 if it has created
#                                   links to CUDA's files in $HPCRUN_RUN_DIR/cuda, which XLA_FLAGS must then name
# Variables:
#   hpcrun_python                     the job's Python interpreter
#   hpcrun_secrets_file, hpcrun_secrets    result: the file with secrets, empty if there is none, and their number
# shellcheck disable=SC2034,SC2154  # these files share variables
hpcrun_secrets_file='' hpcrun_secrets=0
hpcrun_load_secrets() {
  if [[ -O $1 ]]; then
    # shellcheck source=/dev/null
    source "$1"
    hpcrun_secrets_file=$1 hpcrun_secrets=$2
  fi
  for ((hpcrun_number = 1; hpcrun_number <= $2; hpcrun_number++)); do
    hpcrun_name=hpcrun_secret_$hpcrun_number
    [[ -n ${!hpcrun_name-} ]] || hpcrun_fail "$hpcrun_name is not set: there is no $1"
  done
}
hpcrun_module() {
  case $1 in
    purge) module purge || true ;;
    force-purge) module --force purge || true ;;
    reset) module reset || hpcrun_fail 'modules cannot be reset (site key modules.reset)' ;;
    use) module use "$2" || hpcrun_fail "modules in $2 cannot be used (site key modules.use)" ;;
    load) module load "$2" || hpcrun_fail "module $2 cannot be loaded (site key modules.load)" ;;
  esac
}
hpcrun_xla_flags_accepted=''
hpcrun_accepts_xla_flags() {
  if [[ -z $hpcrun_xla_flags_accepted ]]; then  # before the first of the site's flags is added
    hpcrun_xla_flags_accepted=takes
    if [[ ${XLA_FLAGS-} =~ ^[[:space:]]*[^-[:space:]] ]]; then
      hpcrun_xla_flags_accepted=none
      echo "hpcrun: WARNING: XLA_FLAGS=$XLA_FLAGS is a file of flags, so the site's flags (cuda.xla_flags) are not added" >&2
    fi
  fi
  [[ $hpcrun_xla_flags_accepted == takes ]]
}
hpcrun_cuda() {
  hpcrun_protect
  hpcrun_cuda=$(PYTHONSAFEPATH=1 command "$hpcrun_python" -m hpcrun cuda --shell --link "$@") || {
    [ $# = 0 ] || hpcrun_fail 'the site keys of cuda are not valid in this job'
    hpcrun_cuda=''
  }
  hpcrun_linked=''
  eval "$hpcrun_cuda"
  hpcrun_restore
  [[ -n $hpcrun_linked ]]
}
