#!/bin/bash
# gpt: enters the environment on a node, then runs the given command
error_file=$1 # the file that gets the reason if this node cannot start
shift
run_logged() { # runs a command and keeps its stderr for the verdict
  "$@" 2>"$error_file"
  set -- $?
  cat "$error_file" >&2
  return "$1"
}
refuse() { # prints what is wrong and what to type next, and exits
  printf 'error: %s\n  try   %s\n' "$1" "$2" >>"$error_file"
  printf 'error: %s\n  try   %s\n' "$1" "$2" >&2
  trap - EXIT
  exit 78
}

if [ "$1" = --inside ]; then # this is the second run, in the container
  shift
  version=$(python3 -ISc 'import sys; print("%d.%d" % sys.version_info[:2]); sys.exit(9 * (sys.version_info < (3, 10)))' 2>&1)
  case $? in
    0) ;;
    9) refuse 'python3 in the container of my box is Python '"$version"', and 3.10 is needed' '--python PATH names another one; Python 3.10 and torch are needed in the image' ;;
    *) echo "$version" >>"$error_file" && refuse 'cannot run python3 in the container of my box' '--python PATH names another one; Python 3.10 and torch are needed in the image' ;;
  esac
  [ -n "${ECHELON_FOLDER-}" ] || [ -d /home/ada/gpt ] || refuse 'the container of my box has no folder /home/ada/gpt' '--mount /home/ada/gpt:/home/ada/gpt, or --container-workdir DIR'
  rm -f "$error_file"
  exec "$@"
fi

: >"$error_file"

# The container
run=${ECHELON_FOLDER:-${0%/*}} cwd=/home/ada/gpt
[ -d "$cwd" ] || cwd=$run # over ssh it may be missing
exec 'my box' '$HOME' '`id`' 'it'"'"'s' "$cwd":"$run" /bin/sh "$0" "$error_file" --inside "$@"
