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
    9) refuse 'python3 in the image docker://pytorch/pytorch is Python '"$version"', and 3.10 is needed' '--python PATH names another one; Python 3.10 and torch are needed in the image' ;;
    *) echo "$version" >>"$words" && refuse 'the image docker://pytorch/pytorch has no python3 that could be run' '--python PATH names another one; Python 3.10 and torch are needed in the image' ;;
  esac
  [ -n "${ECHELON_FOLDER-}" ] || [ -d /scratch ] || refuse 'the image docker://pytorch/pytorch has no folder /scratch' '--mount /scratch:/scratch, or --container-workdir DIR'
  rm -f "$words"
  exec "$@"
fi

: >"$words"

# The container
tool=$(type -P singularity || type -P apptainer) || refuse 'this node has neither singularity nor apptainer' '--modules NAME that brings one along'
run=${0%/*}
mounts=()
[ ! -d /home/ada/gpt ] || mounts+=(--bind /home/ada/gpt:/home/ada/gpt)
mounts+=(--bind "$run":"$run")
[ -z "${ECHELON_FOLDER-}" ] || mounts+=(--bind "$ECHELON_FOLDER":"$ECHELON_FOLDER")
unset PYTHONHOME # everything else that is exported comes along
gpus=()
if [ -e /dev/kfd ] && ! [ -e /dev/nvidiactl ]; then gpus=(--rocm); else gpus=(--nv); fi
exec "$tool" exec "${gpus[@]}" "${mounts[@]}" --pwd /scratch docker://pytorch/pytorch /bin/sh "$0" "$words" --inside "$@"
