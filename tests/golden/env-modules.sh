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

# The modules; a non-login shell has to define `module` first
for init in "${MODULESHOME-}/init/bash" "${LMOD_PKG-}/init/bash" /etc/profile.d/modules.sh /etc/profile.d/lmod.sh /usr/share/modules/init/bash /usr/share/lmod/lmod/init/bash; do
  type module >/dev/null 2>&1 && break
  # shellcheck disable=SC1090  # the path depends on the site
  [ -r "$init" ] && . "$init"
done
type module >/dev/null 2>&1 || refuse 'this node has no `module`' 'MODULESHOME=DIR, or a line of --setup that defines `module`'
load() {
  name=$1 before=${LOADEDMODULES-}
  run_logged module load "$name" || refuse 'the module '"$name"' cannot be loaded' 'module avail '"$name"', on a node'
  # old versions always return 0: after a failure stderr is not empty and the loaded modules are unchanged
  case ":${LOADEDMODULES-}:" in
    *":$name:"* | *":$name/"*) ;;
    ":$before:") [ ! -s "$error_file" ] || refuse 'the module '"$name"' cannot be loaded' 'module avail '"$name"', on a node' ;;
  esac
}
load cuda/12.4
load gcc

version=$(/home/ada/gpt/.venv/bin/python -ISc 'import sys; print("%d.%d" % sys.version_info[:2]); sys.exit(9 * (sys.version_info < (3, 10)))' 2>&1)
case $? in
  0) ;;
  9) refuse '/home/ada/gpt/.venv/bin/python in this node is Python '"$version"', and 3.10 is needed' '--python PATH names another one; Python 3.10 and torch are needed' ;;
  *) echo "$version" >>"$error_file" && refuse 'cannot run /home/ada/gpt/.venv/bin/python in this node' '--python PATH names another one; Python 3.10 and torch are needed' ;;
esac
rm -f "$error_file"
exec "$@"
