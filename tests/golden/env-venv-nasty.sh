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
load 'a b'
load '$(id)'

# The lines of --setup, unchanged
setup_ended() {
  refuse 'the setup ended before the command began, with exit code '"$1" 'job.out in the run'"'"'s folder has its output'
}
trap 'setup_ended $?' EXIT
echo "it's $HOME"
trap - EXIT

# The virtual environment
[ -x '/home/ada/it'"'"'s $HOME/bin/python' ] || refuse 'no virtual environment at /home/ada/it'"'"'s $HOME' 'python3 -m venv '"'"'/home/ada/it'"'"'"'"'"'"'"'"'s $HOME'"'"', in a folder visible to this node; or another --venv'
export VIRTUAL_ENV='/home/ada/it'"'"'s $HOME'
export PATH='/home/ada/it'"'"'s $HOME/bin':"$PATH"
unset PYTHONHOME

version=$('/home/ada/it'"'"'s $HOME/bin/python' -ISc 'import sys; print("%d.%d" % sys.version_info[:2]); sys.exit(9 * (sys.version_info < (3, 10)))' 2>&1)
case $? in
  0) ;;
  9) refuse '/home/ada/it'"'"'s $HOME/bin/python in the virtual environment /home/ada/it'"'"'s $HOME is Python '"$version"', and 3.10 is needed' '--python PATH names another one; Python 3.10 and torch are needed' ;;
  *) echo "$version" >>"$error_file" && refuse 'cannot run /home/ada/it'"'"'s $HOME/bin/python in the virtual environment /home/ada/it'"'"'s $HOME' '--python PATH names another one; Python 3.10 and torch are needed' ;;
esac
rm -f "$error_file"
exec "$@"
