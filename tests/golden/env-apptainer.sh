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
    9) refuse 'python3 in the image /data/torch.sif is Python '"$version"', and 3.10 is needed' '--python PATH names another one; Python 3.10 and torch are needed in the image' ;;
    *) echo "$version" >>"$error_file" && refuse 'cannot run python3 in the image /data/torch.sif' '--python PATH names another one; Python 3.10 and torch are needed in the image' ;;
  esac
  [ -n "${ECHELON_FOLDER-}" ] || [ -d /home/ada/gpt ] || refuse 'the image /data/torch.sif has no folder /home/ada/gpt' '--mount /home/ada/gpt:/home/ada/gpt, or --container-workdir DIR'
  rm -f "$error_file"
  exec "$@"
fi

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
load apptainer

# The container
tool=$(type -P apptainer || type -P singularity) || refuse 'this node has neither apptainer nor singularity' '--modules NAME that provides one'
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
unset PYTHONHOME # the container inherits all other exported variables
gpus=()
if [ -e /dev/kfd ] && ! [ -e /dev/nvidiactl ]; then gpus=(--rocm); else gpus=(--nv); fi
exec "$tool" exec "${gpus[@]}" "${mounts[@]}" --pwd /home/ada/gpt /data/torch.sif /bin/sh "$0" "$error_file" --inside "$@"
