# What a script's lines on modules, secrets and CUDA call.
#
# hpcrun_secrets FILE N             sets hpcrun_secret_1 to hpcrun_secret_N from the file, which is for its owner alone;
#                                   where it is not there, they are to be in the environment
# hpcrun_module WORD...             calls module with these words
# hpcrun_xla_flags                  whether the site's flags may be added to XLA_FLAGS; not where these name a file of flags
# hpcrun_cuda [OPTION...]           looks for CUDA's files as `hpcrun cuda --shell` does with these options; true where
#                                   XLA_FLAGS is to name $HPCRUN_RUN_DIR/cuda, which then links to them
# shellcheck disable=SC2034,SC2154  # variables are those of all these files
hpcrun_secrets() {
  # shellcheck source=/dev/null
  [[ ! -O $1 ]] || source "$1"
  for ((hpcrun_number = 1; hpcrun_number <= $2; hpcrun_number++)); do
    hpcrun_name=hpcrun_secret_$hpcrun_number
    [[ -n ${!hpcrun_name-} ]] || hpcrun_fail "$hpcrun_name is not set: there is no $1"
  done
}
hpcrun_module() {
  case $1 in
    purge) module purge || true ;;
    reset) module reset || hpcrun_fail 'modules cannot be reset (site key modules.reset)' ;;
    use) module use "$2" || hpcrun_fail "modules in $2 cannot be used (site key modules.use)" ;;
    load) module load "$2" || hpcrun_fail "module $2 cannot be loaded (site key modules.load)" ;;
  esac
}
hpcrun_xla=''
hpcrun_xla_flags() {
  if [[ -z $hpcrun_xla ]]; then  # before the first of the site's flags is added
    hpcrun_xla=takes
    if [[ ${XLA_FLAGS-} =~ ^[[:space:]]*[^-[:space:]] ]]; then
      hpcrun_xla=none
      echo "hpcrun: WARNING: XLA_FLAGS=$XLA_FLAGS names a file of flags, to which those of the site (cuda.xla_flags) are not added" >&2
    fi
  fi
  [[ $hpcrun_xla == takes ]]
}
hpcrun_cuda() {
  hpcrun_plain
  hpcrun_cuda=$(command "$hpcrun_python" -m hpcrun cuda --shell --link "$@") || {
    [ $# = 0 ] || hpcrun_fail 'the site keys of cuda do not fit this job'
    hpcrun_cuda=''
  }
  hpcrun_linked=''
  eval "$hpcrun_cuda"
  hpcrun_restore
  [[ -n $hpcrun_linked ]]
}
