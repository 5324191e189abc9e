#!/usr/bin/env bash
# locked_build.sh [--rebuild] IMAGE WORK COMMAND...: COMMAND makes a file with the image's name in the directory WORK, and only
# a whole one gets its place. One run at a time builds an image: any other is refused, and touches nothing of it. Without
# --rebuild, an image that another run has built meanwhile stays.
set -euo pipefail

rebuild=''
if [ "$1" = --rebuild ]; then rebuild=yes && shift; fi
image=$1 work=$2
shift 2
new=$work/${image##*/}

# The lock is on the directory itself, so it leaves no file. Who holds the lock may have removed the directory since.
while :; do
  mkdir -p "$work"
  exec 9< "$work" || continue
  if ! flock -n 9; then
    echo "cannot build $image: another run is building it in $work; wait for that run, and run again" >&2
    exit 1
  fi
  [ "$work" -ef /dev/fd/9 ] && break
done

# The command has the lock, too: the directory goes only once all of its programs have ended.
interrupted() {
  trap '' TERM INT HUP
  jobs -p | xargs -r kill -KILL || true # unshare ignores other signals
  exec 9<&-
  exec 9< "$work" && flock -w 20 9 && [ "$work" -ef /dev/fd/9 ] || trap - EXIT
  exit 143
}
trap 'rm -rf "$work"' EXIT
trap interrupted TERM INT HUP

if [ -e "$image" ] && [ -z "$rebuild" ]; then
  echo "built by another run"
  exit
fi

# What interrupted runs have left, here and of their programs.
find "$work" -mindepth 1 -maxdepth 1 -exec rm -rf {} +
find "${image%/*}" -maxdepth 1 -name ".${image##*/}.run.*" -mmin +1440 -exec rm -rf {} +

# The command keeps the lock, should this script be killed. Signals interrupt only a wait.
"$@" &
wait $!
sync "$new"
mv -f "$new" "$image"
