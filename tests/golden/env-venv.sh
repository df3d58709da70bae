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

# The virtual environment
[ -x /home/ada/gpt/.venv/bin/python ] || refuse 'no virtual environment at /home/ada/gpt/.venv' 'python3 -m venv /home/ada/gpt/.venv, in a folder visible to this node; or another --venv'
export VIRTUAL_ENV=/home/ada/gpt/.venv
export PATH=/home/ada/gpt/.venv/bin:"$PATH"
unset PYTHONHOME

version=$(/home/ada/gpt/.venv/bin/python -ISc 'import sys; print("%d.%d" % sys.version_info[:2]); sys.exit(9 * (sys.version_info < (3, 10)))' 2>&1)
case $? in
  0) ;;
  9) refuse '/home/ada/gpt/.venv/bin/python in the virtual environment /home/ada/gpt/.venv is Python '"$version"', and 3.10 is needed' '--python PATH names another one; Python 3.10 and torch are needed' ;;
  *) echo "$version" >>"$error_file" && refuse 'cannot run /home/ada/gpt/.venv/bin/python in the virtual environment /home/ada/gpt/.venv' '--python PATH names another one; Python 3.10 and torch are needed' ;;
esac
rm -f "$error_file"
exec "$@"
