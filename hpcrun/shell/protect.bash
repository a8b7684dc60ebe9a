# Keeps what hpcrun does in a job apart from what modules, sites and users have made of the same shell.
#
# hpcrun_plain      from here on bash is as the library needs it: no function stands in for one of bash's own commands, and
#                   options that a site's setup may set (set -eu, pipefail, nullglob, ...) are off; files get hpcrun's mode
# hpcrun_unshadow   the first half of that; ranks get its text (launch.bash)
# hpcrun_restore    the options and the umask are again as they were; returns 0
#
# Variables:
#   hpcrun_mode     the umask under which hpcrun writes: go= or go-w
#   hpcrun_umask    set by hpcrun_plain: the umask that it has found
: "${hpcrun_mode:=go=}"
hpcrun_kept='' hpcrun_umask=''
hpcrun_unshadow() {  # in POSIX mode no function wins over a special builtin, such as unset, and it takes no command to get there
  hpcrun_posix=${POSIXLY_CORRECT+yes} POSIXLY_CORRECT=${POSIXLY_CORRECT-1}
  set +e
  unset -f unset builtin command
  [[ -n $hpcrun_posix ]] || unset POSIXLY_CORRECT
  builtin unset -f . : '[' break continue declare echo eval exec exit export false hash kill local printf read return set \
    shift shopt source test trap true type ulimit umask wait 2>/dev/null  # but for those that are read-only
}
hpcrun_plain() {
  [[ -n $hpcrun_kept ]] || hpcrun_kept=:$SHELLOPTS:$BASHOPTS: hpcrun_umask=
  hpcrun_unshadow
  set +aefuC +o pipefail
  export -n hpcrun_kept hpcrun_umask hpcrun_posix  # as set -a would
  shopt -u nullglob failglob nocasematch
  shopt -u inherit_errexit 2>/dev/null  # which POSIX mode has set, and old ones do not know
  [[ -n $hpcrun_umask ]] || hpcrun_umask=$(umask)
  umask "$hpcrun_umask"  # another mode may have come before, and go-w only takes away
  umask "$hpcrun_mode"
}
hpcrun_restore() {
  [[ -n $hpcrun_kept ]] || return 0
  umask "$hpcrun_umask"
  for hpcrun_option in nullglob failglob nocasematch expand_aliases inherit_errexit; do
    [[ $hpcrun_kept != *:$hpcrun_option:* ]] || shopt -s "$hpcrun_option"
  done
  hpcrun_option=$hpcrun_kept hpcrun_kept=''
  [[ $hpcrun_option != *:pipefail:* ]] || set -o pipefail
  [[ $hpcrun_option != *:noglob:* ]] || set -f
  [[ $hpcrun_option != *:noclobber:* ]] || set -C
  [[ $hpcrun_option != *:allexport:* ]] || set -a
  [[ $hpcrun_option != *:nounset:* ]] || set -u
  [[ $hpcrun_option != *:errexit:* ]] || set -e
  return 0
}
