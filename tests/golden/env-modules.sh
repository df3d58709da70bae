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

# The modules, with the shell's own way to load them
for init in "${MODULESHOME-}/init/bash" "${LMOD_PKG-}/init/bash" /etc/profile.d/modules.sh /etc/profile.d/lmod.sh /usr/share/modules/init/bash /usr/share/lmod/lmod/init/bash; do
  type module >/dev/null 2>&1 && break
  # shellcheck disable=SC1090  # wherever the site has it
  [ -r "$init" ] && . "$init"
done
type module >/dev/null 2>&1 || refuse 'this node has no `module`' 'MODULESHOME=DIR, or a line of --setup that brings `module` along'
load() {
  name=$1 before=${LOADEDMODULES-}
  heard module load "$name" || refuse 'the module '"$name"' cannot be loaded' 'module avail '"$name"', on a node'
  # old versions say 0 whatever happens: then they complained, and nothing is loaded that was not before
  case ":${LOADEDMODULES-}:" in
    *":$name:"* | *":$name/"*) ;;
    ":$before:") [ ! -s "$words" ] || refuse 'the module '"$name"' cannot be loaded' 'module avail '"$name"', on a node' ;;
  esac
}
load cuda/12.4
load gcc

version=$(/home/ada/gpt/.venv/bin/python -ISc 'import sys; print("%d.%d" % sys.version_info[:2]); sys.exit(9 * (sys.version_info < (3, 10)))' 2>&1)
case $? in
  0) ;;
  9) refuse '/home/ada/gpt/.venv/bin/python in this node is Python '"$version"', and 3.10 is needed' '--python PATH names another one; Python 3.10 and torch are needed' ;;
  *) echo "$version" >>"$words" && refuse 'this node has no /home/ada/gpt/.venv/bin/python that could be run' '--python PATH names another one; Python 3.10 and torch are needed' ;;
esac
rm -f "$words"
exec "$@"
