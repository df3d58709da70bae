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

: >"$words"

# The virtual environment
[ -x /home/ada/gpt/.venv/bin/python ] || refuse 'no virtual environment at /home/ada/gpt/.venv' 'python3 -m venv /home/ada/gpt/.venv, where this node sees it; or another --venv'
export VIRTUAL_ENV=/home/ada/gpt/.venv
export PATH=/home/ada/gpt/.venv/bin:"$PATH"
unset PYTHONHOME

version=$(/home/ada/gpt/.venv/bin/python -ISc 'import sys; print("%d.%d" % sys.version_info[:2]); sys.exit(9 * (sys.version_info < (3, 10)))' 2>&1)
case $? in
  0) ;;
  9) refuse '/home/ada/gpt/.venv/bin/python in the virtual environment /home/ada/gpt/.venv is Python '"$version"', and 3.10 is needed' '--python PATH names another one; Python 3.10 and torch are needed' ;;
  *) echo "$version" >>"$words" && refuse 'the virtual environment /home/ada/gpt/.venv has no /home/ada/gpt/.venv/bin/python that could be run' '--python PATH names another one; Python 3.10 and torch are needed' ;;
esac
rm -f "$words"
exec "$@"
