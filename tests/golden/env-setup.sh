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

: >"$error_file"

# The lines of --setup, unchanged
setup_ended() {
  refuse 'the setup ended before the command began, with exit code '"$1" 'job.out in the run'"'"'s folder has its output'
}
trap 'setup_ended $?' EXIT
export NCCL_DEBUG=INFO
ulimit -l unlimited
trap - EXIT

version=$(/home/ada/gpt/.venv/bin/python -ISc 'import sys; print("%d.%d" % sys.version_info[:2]); sys.exit(9 * (sys.version_info < (3, 10)))' 2>&1)
case $? in
  0) ;;
  9) refuse '/home/ada/gpt/.venv/bin/python in this node is Python '"$version"', and 3.10 is needed' '--python PATH names another one; Python 3.10 and torch are needed' ;;
  *) echo "$version" >>"$error_file" && refuse 'cannot run /home/ada/gpt/.venv/bin/python in this node' '--python PATH names another one; Python 3.10 and torch are needed' ;;
esac
rm -f "$error_file"
exec "$@"
