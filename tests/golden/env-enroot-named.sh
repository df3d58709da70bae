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
    9) refuse 'python3 in the container mine is Python '"$version"', and 3.10 is needed' '--python PATH names another one; Python 3.10 and torch are needed in the image' ;;
    *) echo "$version" >>"$error_file" && refuse 'cannot run python3 in the container mine' '--python PATH names another one; Python 3.10 and torch are needed in the image' ;;
  esac
  [ -n "${ECHELON_FOLDER-}" ] || [ -d /home/ada/gpt ] || refuse 'the container mine has no folder /home/ada/gpt' '--mount /home/ada/gpt:/home/ada/gpt, or --container-workdir DIR'
  rm -f "$error_file"
  exec "$@"
fi

: >"$error_file"

# The container, created from its image once on this node and reused
command -v enroot >/dev/null || refuse 'this node has no enroot' '--modules NAME that provides it'
name=mine
data=${ENROOT_DATA_PATH-}
conf=${ENROOT_SYSCONF_PATH:-/etc/enroot}/enroot.conf
for file in "$conf" "$conf".d/*.conf; do # the first file that sets it; enroot also expands it in a shell
  [ -z "$data" ] && [ -r "$file" ] || continue
  data=$(eval "echo $(sed -n 's/^[ \t]*ENROOT_DATA_PATH[ \t=]\+//p' "$file" | head -n 1)")
done
data=${data:-${XDG_DATA_HOME:-$HOME/.local/share}/enroot}
containers=$(run_logged enroot list) || refuse 'enroot list failed, so the containers of this node are unknown' 'enroot list, on that node; --set ENROOT_RUNTIME_PATH=DIR if it cannot create its runtime folder'
is_there() {
  grep -qxF -e "$name" <<<"$containers"
}
is_there || refuse 'this node has no container '"$name" '--image FILE.sqsh to create it; enroot list'

# What the container gets: these folders, and all variables except those that describe this node
run=${0%/*}
mounts=()
[ ! -d /home/ada/gpt ] || mounts+=(--mount /home/ada/gpt:/home/ada/gpt)
mounts+=(--mount "$run":"$run")
[ -z "${ECHELON_FOLDER-}" ] || mounts+=(--mount "$ECHELON_FOLDER":"$ECHELON_FOLDER")
[[ $run != *[[:space:]:]* ]] || refuse 'enroot cannot mount '"$run"': its path has a space or a colon' ECHELON_RUNS=DIR
if [ -e /dev/nvidiactl ]; then
  for one in NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility; do
    name_of=${one%%=*}
    [ -n "${!name_of-}" ] || grep -qs "^$name_of=" "$data/$name/etc/environment" || export "${one?}"
  done
else
  export NVIDIA_VISIBLE_DEVICES="${NVIDIA_VISIBLE_DEVICES:-void}" # anything else needs nvidia-container-cli
fi
variables=() encoded=()
while read -r one; do
  case $one in
    PATH | HOME | USER | LOGNAME | SHELL | PWD | OLDPWD | SHLVL | _ | MAIL | HOSTNAME | TERM | TMPDIR | TMP | TEMP | DISPLAY | PYTHONHOME | VIRTUAL_ENV | MANPATH | INFOPATH | BASH_ENV | ENV | LS_COLORS | LOADEDMODULES | _LMFILES_ | CPATH | LIBRARY_PATH | PKG_CONFIG_PATH | CMAKE_PREFIX_PATH | LD_* | XDG_* | DBUS_* | SSH_* | CONDA_* | MAMBA_* | MODULE* | LMOD_* | __LMOD* | __MODULES* | BASH_FUNC_* | ENROOT_* | APPTAINER_* | SINGULARITY_*) ;;
    *)
      case ${!one} in # enroot keeps variables as lines of a file, and strips quotes from a value
        *$'\n'* | [\"\']*) encoded+=("$one") ;;
        *) variables+=(-e "$one") ;;
      esac ;;
  esac
done < <(compgen -e)
if [ ${#encoded[@]} -gt 0 ]; then # the agent decodes them
  ECHELON_ENCODED=$(for one in "${encoded[@]}"; do printf '%s=%s\0' "$one" "${!one}"; done | base64 -w 0)
  export ECHELON_ENCODED
  variables+=(-e ECHELON_ENCODED)
fi
export ENROOT_LOGIN_SHELL="${ENROOT_LOGIN_SHELL:-no}" # /etc/profile would overwrite the PATH of the image
exec enroot start --root "${mounts[@]}" "${variables[@]}" "$name" /bin/sh "$0" "$error_file" --inside "$@"
