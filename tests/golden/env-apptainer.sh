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
    9) refuse 'python3 in the image /data/torch.sif is Python '"$version"', and 3.10 is needed' '--python PATH names another one; Python 3.10 and torch are needed in the image' ;;
    *) echo "$version" >>"$words" && refuse 'the image /data/torch.sif has no python3 that could be run' '--python PATH names another one; Python 3.10 and torch are needed in the image' ;;
  esac
  [ -n "${ECHELON_FOLDER-}" ] || [ -d /home/ada/gpt ] || refuse 'the image /data/torch.sif has no folder /home/ada/gpt' '--mount /home/ada/gpt:/home/ada/gpt, or --container-workdir DIR'
  rm -f "$words"
  exec "$@"
fi

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
load apptainer

# The container
tool=$(type -P apptainer || type -P singularity) || refuse 'this node has neither apptainer nor singularity' '--modules NAME that brings one along'
source=/data/images
[ -e "$source" ] || refuse 'this node has no '"$source"' to mount' 'another --mount'
source=/home/ada/gpt/scratch
[ -e "$source" ] || refuse 'this node has no '"$source"' to mount' 'another --mount'
[ -r /data/torch.sif ] || refuse 'this node has no image /data/torch.sif' 'another --image'
run=${0%/*}
mounts=()
[ ! -d /home/ada/gpt ] || mounts+=(--bind /home/ada/gpt:/home/ada/gpt)
mounts+=(--bind "$run":"$run")
[ -z "${ECHELON_FOLDER-}" ] || mounts+=(--bind "$ECHELON_FOLDER":"$ECHELON_FOLDER")
mounts+=(--bind /data/images:/images:ro)
mounts+=(--bind /home/ada/gpt/scratch:/scratch)
unset PYTHONHOME # everything else that is exported comes along
gpus=()
if [ -e /dev/kfd ] && ! [ -e /dev/nvidiactl ]; then gpus=(--rocm); else gpus=(--nv); fi
exec "$tool" exec "${gpus[@]}" "${mounts[@]}" --pwd /home/ada/gpt /data/torch.sif /bin/sh "$0" "$words" --inside "$@"
