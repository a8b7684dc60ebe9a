# Copies data to the node-local disk, once on each node, before its ranks start the program.
#
# hpcrun_stage FOLDER [--copy PATH | --unpack NAME ARCHIVE]...   in the job script: sets the data that the ranks of hpcrun_launch
#                        copy to $HPCRUN_STAGED (FOLDER/RUN/staged): PATH keeps its name, ARCHIVE is unpacked into the folder NAME
# hpcrun_stage_in        in a rank (rank.bash): copies the data, or waits for the copy of another rank on the node; ends the rank
#                        if copying fails
# hpcrun_unstage         in a rank: removes the copy if no other rank of the node uses it
# hpcrun_unstage_nodes   in the job script: removes the copies of killed ranks on all nodes
# hpcrun_on_each_node COMMAND...  runs a command once on each node of the job; without a function of the scheduler, on this host
#
# The ranks of a node take an exclusive lock on FOLDER/RUN in turn. The first rank makes the copy. While its program runs, each
# rank holds a shared lock on the file FOLDER/RUN/.users. A rank that can lock this file exclusively at its end is the last one,
# and removes the copy. Locks of a killed rank are released. A rank that starts after the removal, or in another launch, makes a
# new copy.
#
# Variables:
#   HPCRUN_STAGED                             the folder of the copies; not set if the job stages no data
#   hpcrun_stage_paths, hpcrun_stage_names    the paths to copy; the folder name for each archive, empty for other paths
#   hpcrun_stage_id                           the id of the launch; the file .staged contains it when the copy is complete
#   hpcrun_stage_lock, hpcrun_stage_use       descriptors of the two locks
#   hpcrun_stage_command                      the pid of the running command, which ends if the rank gets a signal
# and the variables of rank.bash.
# shellcheck disable=SC2034,SC2154  # these files share variables
hpcrun_stage() {
  hpcrun_protect
  hpcrun_stage_paths=() hpcrun_stage_names=()
  [[ $1 == /* ]] || hpcrun_fail "the node-local folder ${1:-''} is not an absolute path (site key local_scratch)"
  command mkdir -p -m 700 -- "$1" || hpcrun_fail "there is no node-local folder $1 on $(command uname -n) (site key local_scratch)"
  export HPCRUN_STAGED=${1%/}/${HPCRUN_RUN_DIR##*/}/staged
  shift
  while [ $# -gt 0 ]; do
    case $1 in
      --copy) hpcrun_stage_names+=('') hpcrun_stage_paths+=("$2") && shift 2 ;;
      --unpack) hpcrun_stage_names+=("$2") hpcrun_stage_paths+=("$3") && shift 3 ;;
      *) hpcrun_fail "hpcrun_stage has no option $1" ;;
    esac
  done
  hpcrun_restore
}
hpcrun_write_staging() {  # print the variables of the ranks
  hpcrun_stage_id=$(command date +%s%N)
  declare -p HPCRUN_STAGED hpcrun_stage_paths hpcrun_stage_names hpcrun_stage_id hpcrun_python
}
hpcrun_on_each_node() { "$@"; }
hpcrun_unstage_nodes() {
  [ -n "${HPCRUN_STAGED-}" ] || return 0
  # shellcheck disable=SC2016  # sh expands it
  hpcrun_on_each_node sh -c 'cd -P -- "$1" && [ ! -L "$1" ] && [ -O . ] || exit
    flock -w 10 -x . flock -nx .users rm -rf -- staged .staged .users
    rmdir -- "$1"' sh "${HPCRUN_STAGED%/*}"
} >/dev/null 2>&1

# ---- In a rank ---------------------------------------------------------------------------------------------------
hpcrun_stage_fail() {  # REASON: end this rank; the other ranks find the failure in failed.jsonl
  echo "hpcrun: error: data cannot be staged on $hpcrun_host: $1" >&2
  hpcrun_record_failure 1
  hpcrun_unstage
  hpcrun_die_by_signal
  exit 1
}
hpcrun_stage_run() {  # COMMAND...: run a command and return its exit code; a signal to this rank ends the command and the rank
  local early code
  ( trap - "${hpcrun_signals[@]}"; exec {hpcrun_lifeline}>&-; exec "$@" ) &
  hpcrun_stage_command=$! early=$hpcrun_pending_signals  # a single command, because a trap may run between two commands
  [ -z "$early" ] || kill "$hpcrun_stage_command" 2>/dev/null
  while wait "$hpcrun_stage_command"; code=$?; [ -n "$hpcrun_pending_signals" ] && kill "$hpcrun_stage_command" 2>/dev/null; do
    command sleep 0.05
  done
  hpcrun_stage_command=''
  [ -z "$hpcrun_pending_signals" ] || hpcrun_exit_if_stopped
  return "$code"
}
hpcrun_find_untrusted_user() {  # FOLDER: print another user who could replace the folder, or a folder or link on its path
  local part number owner mode parts=(/) lines
  for part in "$1/." "$(cd -P -- "$1" && printf '%s/.' "$PWD")"; do
    while part=${part%/*} && [ -n "$part" ]; do parts+=("$part"); done
  done
  mapfile -t lines < <(command stat -c '%u %A' -- "${parts[@]}")
  for number in "${!parts[@]}"; do
    read -r owner mode <<<"${lines[number]-}"
    # the owner of / is root, even in a user namespace; uids below 1000 are system accounts
    if [ "$owner" != "$EUID" ] && [ "$owner" != "${lines[0]%% *}" ] && [ "${owner:-1000}" -ge 1000 ]; then
      echo "$(command id -nu "${owner:-?}" 2>/dev/null || echo "user ${owner:-?}") owns ${parts[number]}"
    elif [[ $mode == d???????w[x-] ]]; then
      echo "everybody may replace files in ${parts[number]} (chmod +t prevents it)"
    fi
  done | command head -n 1
}
hpcrun_stage_in() {
  local folder=${HPCRUN_STAGED%/*}
  until hpcrun_stage_try; do [ -z "$hpcrun_stage_lock" ] || exec {hpcrun_stage_lock}<&-; done
  command flock -u "$hpcrun_stage_lock"
}
hpcrun_stage_try() {  # return whether the copy is complete and this rank uses it
  local untrusted_user
  hpcrun_stage_lock=''
  command mkdir -p -m 700 -- "$folder" || hpcrun_stage_fail "no folder can be made in ${folder%/*} (site key local_scratch)"
  { exec {hpcrun_stage_lock}<"$folder"; } 2>/dev/null
  if [ -z "$hpcrun_stage_lock" ]; then
    [ ! -e "$folder" ] || hpcrun_stage_fail "$folder cannot be read"
    return 1
  fi
  [ ! -L "$folder" ] && [ -O "/proc/self/fd/$hpcrun_stage_lock" ] || hpcrun_stage_fail "$folder is not this user's own"
  untrusted_user=$(hpcrun_find_untrusted_user "${folder%/*}")
  [ -z "$untrusted_user" ] || hpcrun_stage_fail "$untrusted_user (site key local_scratch)"
  hpcrun_stage_run flock -x "$hpcrun_stage_lock" || hpcrun_stage_fail "$folder cannot be locked"
  [ "$folder" -ef "/proc/self/fd/$hpcrun_stage_lock" ] || return 1  # the last rank that used an earlier copy has removed the folder
  { exec {hpcrun_stage_use}>>"$folder/.users"; } 2>/dev/null
  command flock -s "$hpcrun_stage_use" || hpcrun_stage_fail "$folder cannot be locked"
  hpcrun_exit_if_stopped  # another rank may have failed to copy meanwhile
  [ "$(command cat "$folder/.staged" 2>/dev/null)" = "$hpcrun_stage_id" ] || hpcrun_stage_copy
}
hpcrun_stage_copy() {
  local path name size free number start nanoseconds rate
  for path in "${hpcrun_stage_paths[@]}"; do [ -e "$path" ] || hpcrun_stage_fail "there is no $(printf %q "$path")"; done
  # shellcheck disable=SC2016  # sh expands it; the descriptor avoids a folder that has replaced the locked one
  hpcrun_stage_run sh -c 'cd -P "/proc/self/fd/$1" && exec rm -rf -- staged .staged' sh "$hpcrun_stage_lock"  # the copy of an earlier start
  command mkdir -- "$HPCRUN_STAGED" || hpcrun_stage_fail "no folder can be made in $folder"
  # shellcheck disable=SC2016  # sh expands them
  hpcrun_stage_run sh -c 'out=$1; shift; exec du -skcL --apparent-size -- "$@" >"$out"' sh "$folder/.staged" "${hpcrun_stage_paths[@]}" ||
    hpcrun_stage_fail 'they cannot be read; the reason is above'
  size=$(command tail -n 1 "$folder/.staged") size=${size%%[!0-9]*}
  free=$(command df -k --output=avail -- "$folder" | command tail -n 1)
  [ "${size:-0}" -le "$((free))" ] ||
    hpcrun_stage_fail "they need $((size / 1024 + 1)) MiB, and ${folder%/*} has $((free / 1024)) MiB free"
  start=$(command date +%s%N)
  echo "[rank $HPCRUN_RANK] copies $((size / 1024 + 1)) MiB to ${folder%/*} on $hpcrun_host"
  for number in "${!hpcrun_stage_paths[@]}"; do
    path=${hpcrun_stage_paths[number]} name=${hpcrun_stage_names[number]}
    case ${name:+unpack}$path in
      unpack*.zip) hpcrun_stage_run env PYTHONSAFEPATH=1 "$hpcrun_python" -m zipfile -e "$path" "$HPCRUN_STAGED/$name" ;;
      unpack*)  # tar -C would read \n in a name as a line break
        # shellcheck disable=SC2016  # sh expands them
        hpcrun_stage_run sh -c 'mkdir -- "$1" && cd -- "$1" && exec tar --no-same-owner -xf "$2"' sh "$HPCRUN_STAGED/$name" "$path"
        ;;
      *) hpcrun_stage_run cp -RL --preserve=mode,timestamps,links -- "$path" "$HPCRUN_STAGED" ;;
    esac || hpcrun_stage_fail "$(printf %q "$path") could not be copied to $HPCRUN_STAGED; the reason is above"
  done
  hpcrun_stage_run chmod -R u+rwX -- "$HPCRUN_STAGED" || hpcrun_stage_fail "$HPCRUN_STAGED cannot be made writable"
  echo "$hpcrun_stage_id" >"$folder/.staged" || hpcrun_stage_fail "$folder is full"
  nanoseconds=$(($(command date +%s%N) - start + 1)) rate=$((${size:-0} * 1024 * 1000 / nanoseconds))
  echo "[rank $HPCRUN_RANK] staged data in $HPCRUN_STAGED on $hpcrun_host after $((nanoseconds / 1000000000)) s, $rate MB/s"
}
hpcrun_unstage() {
  [ -n "$hpcrun_stage_lock" ] || return 0
  (
    trap '' "${hpcrun_signals[@]}"
    [ -z "$hpcrun_stage_use" ] || ! command flock -w 10 -x "$hpcrun_stage_lock" || ! command flock -nx "$hpcrun_stage_use" ||
      { cd -P "/proc/self/fd/$hpcrun_stage_lock" && command rm -rf -- staged .staged .users; }
    command rmdir -- "${HPCRUN_STAGED%/*}"
  ) 2>/dev/null
}
