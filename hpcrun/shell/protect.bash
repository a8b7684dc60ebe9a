# Protects hpcrun's own commands from functions and options that modules, sites and users set in the same shell.
#
# hpcrun_protect          removes functions that replace bash's own commands, switches off options that a site's setup may set
#                         (set -eu, pipefail, nullglob, ...), sets hpcrun's umask, and adds the system's folders to a PATH
#                         without them
# hpcrun_drop_functions   only removes functions that replace bash's own commands; rank.sh contains its source (launch.bash)
# hpcrun_restore          restores the options and the umask; returns 0
#
# Variables:
#   hpcrun_mode     the symbolic umask of hpcrun's files: go= or go-w
#   hpcrun_umask    set by hpcrun_protect: the original umask
: "${hpcrun_mode:=go=}"
hpcrun_saved_options='' hpcrun_umask=''
hpcrun_drop_functions() {  # setting POSIXLY_CORRECT needs no command, and in POSIX mode functions cannot replace special builtins such as unset
  hpcrun_posix=${POSIXLY_CORRECT+yes} POSIXLY_CORRECT=${POSIXLY_CORRECT-1}
  set +e
  unset -f unset builtin command
  [[ -n $hpcrun_posix ]] || unset POSIXLY_CORRECT
  builtin unset -f . : '[' break continue declare echo eval exec exit export false hash kill local printf read return set \
    shift shopt source test trap true type ulimit umask wait 2>/dev/null  # functions may be read-only
}
hpcrun_protect() {
  [[ -n $hpcrun_saved_options ]] || hpcrun_saved_options=:$SHELLOPTS:$BASHOPTS: hpcrun_umask=
  hpcrun_drop_functions
  set +aefuC +o pipefail
  export -n hpcrun_saved_options hpcrun_umask hpcrun_posix  # set -a exports them
  shopt -u nullglob failglob nocasematch
  shopt -u inherit_errexit 2>/dev/null  # POSIX mode sets it; old versions do not have it
  [[ -n $hpcrun_umask ]] || hpcrun_umask=$(umask)
  umask "$hpcrun_umask"  # reset the umask of an earlier call, because go-w only removes bits
  umask "$hpcrun_mode"
  if ! type -P rm >/dev/null; then  # neither these files nor a launcher could start a program
    echo "hpcrun: WARNING: PATH=${PATH-} lacks the folders of the system; /usr/bin:/bin is added" >&2
    PATH=${PATH:+$PATH:}/usr/bin:/bin
  fi
}
hpcrun_restore() {
  [[ -n $hpcrun_saved_options ]] || return 0
  umask "$hpcrun_umask"
  for hpcrun_option in nullglob failglob nocasematch expand_aliases inherit_errexit; do
    [[ $hpcrun_saved_options != *:$hpcrun_option:* ]] || shopt -s "$hpcrun_option"
  done
  hpcrun_option=$hpcrun_saved_options hpcrun_saved_options=''
  [[ $hpcrun_option != *:pipefail:* ]] || set -o pipefail
  [[ $hpcrun_option != *:noglob:* ]] || set -f
  [[ $hpcrun_option != *:noclobber:* ]] || set -C
  [[ $hpcrun_option != *:allexport:* ]] || set -a
  [[ $hpcrun_option != *:nounset:* ]] || set -u
  [[ $hpcrun_option != *:errexit:* ]] || set -e
  return 0
}
