#!/bin/bash
# gpt: what every node does before the command that it is given
words=$1 # the file that is told why this node cannot go on
shift
heard() { # a command, whose complaints are kept for the verdict
  "$@" 2>"$words"
  set -- $?
  cat "$words" >&2
  return "$1"
}
refuse() { # what is wrong, and what to type next
  printf 'error: %s\n  try   %s\n' "$1" "$2" >>"$words"
  printf 'error: %s\n  try   %s\n' "$1" "$2" >&2
  trap - EXIT
  exit 78
}

if [ "$1" = --inside ]; then # we are in the container by now
  shift
  version=$(python3 -ISc 'import sys; print("%d.%d" % sys.version_info[:2]); sys.exit(9 * (sys.version_info < (3, 10)))' 2>&1)
  case $? in
    0) ;;
    9) refuse 'python3 in the container of ch-run is Python '"$version"', and 3.10 is needed' '--python PATH names another one; Python 3.10 and torch are needed in the image' ;;
    *) echo "$version" >>"$words" && refuse 'the container of ch-run has no python3 that could be run' '--python PATH names another one; Python 3.10 and torch are needed in the image' ;;
  esac
  [ -n "${ECHELON_FOLDER-}" ] || [ -d /home/ada/gpt ] || refuse 'the container of ch-run has no folder /home/ada/gpt' '--mount /home/ada/gpt:/home/ada/gpt, or --container-workdir DIR'
  rm -f "$words"
  exec "$@"
fi

: >"$words"

# The container
run=${ECHELON_FOLDER:-${0%/*}} cwd=/home/ada/gpt
[ -d "$cwd" ] || cwd=$run # over ssh it may not be there
exec ch-run --bind="$run":"$run" --cd="$cwd" /var/tmp/image -- /bin/sh "$0" "$words" --inside "$@"
