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
    9) refuse 'python3 in the image /data/torch.sqsh is Python '"$version"', and 3.10 is needed' '--python PATH names another one; Python 3.10 and torch are needed in the image' ;;
    *) echo "$version" >>"$words" && refuse 'the image /data/torch.sqsh has no python3 that could be run' '--python PATH names another one; Python 3.10 and torch are needed in the image' ;;
  esac
  [ -n "${ECHELON_FOLDER-}" ] || [ -d /home/ada/gpt ] || refuse 'the image /data/torch.sqsh has no folder /home/ada/gpt' '--mount /home/ada/gpt:/home/ada/gpt, or --container-workdir DIR'
  rm -f "$words"
  exec "$@"
fi

: >"$words"

# The container, made from its image once on this node and used again
command -v enroot >/dev/null || refuse 'this node has no enroot' '--modules NAME that brings it along'
source=/data/images
[ -e "$source" ] || refuse 'this node has no '"$source"' to mount' 'another --mount'
source=/home/ada/gpt/scratch
[ -e "$source" ] || refuse 'this node has no '"$source"' to mount' 'another --mount'
image=/data/torch.sqsh
[ -r "$image" ] || refuse 'this node has no image '"$image" 'another --image'
print=$(stat -Lc '%n %s %Y' "$image" | sha256sum | cut -c 1-12)
name=echelon-torch-"$print"
data=${ENROOT_DATA_PATH-}
conf=${ENROOT_SYSCONF_PATH:-/etc/enroot}/enroot.conf
for file in "$conf" "$conf".d/*.conf; do # the first that says it; enroot, too, gives the value to a shell
  [ -z "$data" ] && [ -r "$file" ] || continue
  data=$(eval "echo $(sed -n 's/^[ \t]*ENROOT_DATA_PATH[ \t=]\+//p' "$file" | head -n 1)")
done
data=${data:-${XDG_DATA_HOME:-$HOME/.local/share}/enroot}
is_there() { # only enroot itself knows where it keeps containers
  enroot list 2>"$words" | grep -qxF -e "$name"
}
state=$data/.$name.echelon # what the container was made from; locked while it is being made
heard mkdir -p "$data" || refuse 'enroot cannot keep containers in '"$data" ENROOT_DATA_PATH=DIR
exec 9>>"$state" || refuse 'enroot cannot keep containers in '"$data" ENROOT_DATA_PATH=DIR
heard flock -w 1200 -E 9 9
case $? in
  0) ;;
  9) refuse 'nobody has finished the container '"$name"' within 1200 s' 'enroot remove '"$name"', on that node' ;;
  *) refuse "$state"' cannot be locked' 'ENROOT_DATA_PATH=DIR on a disk of the node'"'"'s own' ;;
esac
made_from=$(cat "$state")
if [ "$made_from" = unfinished ]; then # whoever began it was ended on the way
  enroot remove -f "$name" >&2
fi
if ! is_there; then
  echo unfinished >"$state"
  heard enroot create -n "$name" "$image" || refuse 'enroot cannot make a container of '"$image" 'enroot create IMAGE, on a node'
  echo "$print" >"$state"
elif [ -n "$made_from" ] && [ "$made_from" != "$print" ]; then
  refuse 'the container '"$name"' was made from another image than '"$image" 'enroot remove '"$name"', on that node, or another --container-name'
fi
exec 9>&-

# What it sees of this node: these folders, and every variable but those that describe the node
read_only=x-create=auto,rbind,ro
run=${0%/*}
mounts=()
[ ! -d /home/ada/gpt ] || mounts+=(--mount /home/ada/gpt:/home/ada/gpt)
mounts+=(--mount "$run":"$run")
[ -z "${ECHELON_FOLDER-}" ] || mounts+=(--mount "$ECHELON_FOLDER":"$ECHELON_FOLDER")
mounts+=(--mount /data/images:/images:"$read_only")
mounts+=(--mount /home/ada/gpt/scratch:/scratch)
if [ -e /dev/nvidiactl ]; then
  for one in NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility; do
    name_of=${one%%=*}
    [ -n "${!name_of-}" ] || grep -qs "^$name_of=" "$data/$name/etc/environment" || export "${one?}"
  done
fi
variables=() encoded=()
while read -r one; do
  case $one in
    PATH | HOME | USER | LOGNAME | SHELL | PWD | OLDPWD | SHLVL | _ | MAIL | HOSTNAME | TERM | TMPDIR | TMP | TEMP | DISPLAY | PYTHONHOME | VIRTUAL_ENV | MANPATH | INFOPATH | BASH_ENV | ENV | LS_COLORS | LOADEDMODULES | _LMFILES_ | CPATH | LIBRARY_PATH | PKG_CONFIG_PATH | CMAKE_PREFIX_PATH | LD_* | XDG_* | DBUS_* | SSH_* | CONDA_* | MAMBA_* | MODULE* | LMOD_* | __LMOD* | __MODULES* | BASH_FUNC_* | ENROOT_* | APPTAINER_* | SINGULARITY_*) ;;
    *)
      case ${!one} in # enroot writes them down line by line, and takes quotes off a value
        *$'\n'* | [\"\']*) encoded+=("$one") ;;
        *) variables+=(-e "$one") ;;
      esac ;;
  esac
done < <(compgen -e)
if [ ${#encoded[@]} -gt 0 ]; then # the agent takes them apart again
  ECHELON_ENCODED=$(for one in "${encoded[@]}"; do printf '%s=%s\0' "$one" "${!one}"; done | base64 -w 0)
  export ECHELON_ENCODED
  variables+=(-e ECHELON_ENCODED)
fi
for word in "$0" "$words" "$@"; do
  [[ $word =~ ^[A-Za-z0-9_./:@%+=,-]+$ ]] || refuse 'enroot would change this word on its way: '"$word" 'ECHELON_RUNS=DIR with a plain name'
done
exec enroot start --rw "${mounts[@]}" "${variables[@]}" "$name" /bin/sh "$0" "$words" --inside "$@"
