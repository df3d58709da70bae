"""`--env enroot`: creates a container from a .sqsh file once per node, under a lock, and reuses it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

from echelon.environments import Entry, refuse_command
from echelon.environments.containers import (
    ENCODED_VARIABLE,
    host_case_pattern,
    job_mounts,
    mount_lines,
    runtime_variables,
    source_check_lines,
)
from echelon.job import Job
from echelon.shell import export_lines, quote_words, shell_array, shell_variable

LOCK_TIMEOUT_SECONDS = 1200
"""How long to wait for another process that creates the same container; a large image takes minutes."""
LOCK_TIMEOUT_CODE = 9  # exit code of flock if it does not get the lock in time
NAME = shell_variable("name")
CREATE_COMMAND = quote_words("run_logged", "enroot", "create", "-n", NAME, shell_variable("image"))
UNFINISHED_MARK = '"$data/$name/.echelon-unfinished"'
STATISTICS_PATTERN = r"^(created [0-9]+ |Parallel unsquashfs: |[0-9]+ inodes \(|\[INFO\] |$)"
"""Lines that `enroot create` prints around an error and that do not explain it."""
NO_GPUS_LINE = (
    'export NVIDIA_VISIBLE_DEVICES="${NVIDIA_VISIBLE_DEVICES:-void}" # anything else needs nvidia-container-cli'
)


def entry(job: Job) -> Entry:
    enclosure = job.enclosure
    options = (*("--rw",) * enclosure.writable, *("--root",) * enclosure.root)
    lines = (
        "",
        "# The container, created from its image once on this node and reused",
        "command -v enroot >/dev/null || "
        + refuse_command("this node has no enroot", "--modules NAME that provides it"),
        *source_check_lines(
            job_mounts(job), refuse_command(f"this node has no {shell_variable('source')} to mount", "another --mount")
        ),
        *export_lines(runtime_variables(job.env)),
        *(_prepare_container_lines(job) if enclosure.image else _find_container_lines(job)),
        "",
        "# What the container gets: these folders, and all variables except those that describe this node",
        *(("read_only=x-create=auto,rbind,ro",) * any(mount.read_only for mount in job_mounts(job))),
        *mount_lines(job, "--mount", f":{shell_variable('read_only')}"),
        *_check_paths_lines(),
        *(_gpu_lines() if job.resources.gpus_per_node else (NO_GPUS_LINE,)),
        *_variable_lines(),
        'export ENROOT_LOGIN_SHELL="${ENROOT_LOGIN_SHELL:-no}" # /etc/profile would overwrite the PATH of the image',
    )
    wrapper = ("enroot", "start", *options, shell_array("mounts"), shell_array("variables"), NAME)
    return Entry(place=_place_name(job), lines=lines, wrapper=wrapper)


def _place_name(job: Job) -> str:
    return (
        f"the image {job.enclosure.image}" if job.enclosure.image else f"the container {job.enclosure.container_name}"
    )


def _data_path_lines() -> Iterator[str]:
    """Sets `data` to the folder in which enroot most likely keeps containers. No enroot command prints it, so the
    sources are read in the order of enroot. Used only for the lock and to read the GPU variables of an image."""
    yield "data=${ENROOT_DATA_PATH-}"
    yield "conf=${ENROOT_SYSCONF_PATH:-/etc/enroot}/enroot.conf"
    yield 'for file in "$conf" "$conf".d/*.conf; do # the first file that sets it; enroot also expands it in a shell'
    yield '  [ -z "$data" ] && [ -r "$file" ] || continue'
    yield r"""  data=$(eval "echo $(sed -n 's/^[ \t]*ENROOT_DATA_PATH[ \t=]\+//p' "$file" | head -n 1)")"""
    yield "done"
    yield "data=${data:-${XDG_DATA_HOME:-$HOME/.local/share}/enroot}"


def _list_containers_lines() -> Iterator[str]:
    failed = refuse_command(
        "enroot list failed, so the containers of this node are unknown",
        "enroot list, on that node; --set ENROOT_RUNTIME_PATH=DIR if it cannot create its runtime folder",
    )
    yield f"containers=$(run_logged enroot list) || {failed}"
    yield "is_there() {"
    yield '  grep -qxF -e "$name" <<<"$containers"'
    yield "}"


def _find_container_lines(job: Job) -> Iterator[str]:
    yield f"name={quote_words(job.enclosure.container_name or '')}"
    yield from _data_path_lines() if job.resources.gpus_per_node else ()
    yield from _list_containers_lines()
    missing = refuse_command(f"this node has no container {NAME}", "--image FILE.sqsh to create it; enroot list")
    yield f"is_there || {missing}"


def _prepare_container_lines(job: Job) -> Iterator[str]:
    image = job.enclosure.image or ""
    yield f"image={quote_words(image)}"
    yield f'[ -r "$image" ] || {refuse_command("this node has no image " + shell_variable("image"), "another --image")}'
    yield """print=$(stat -Lc '%n %s %Y' "$image" | sha256sum | cut -c 1-12)"""
    yield f"name={_container_name(job)}"
    yield from _data_path_lines()
    yield from _lock_lines()
    yield from _list_containers_lines()
    yield from _check_existing_lines(job)
    yield from _create_lines(job)
    yield "exec 9>&-"


def _lock_lines() -> Iterator[str]:
    """Takes the lock of the container. Creates the data folder with mode 0700, as enroot does."""
    late = f"another job has not finished creating the container {NAME} within {LOCK_TIMEOUT_SECONDS} s"
    yield "state=$data/.$name.echelon # records the image, or the run that began to create it; is also the lock"
    cannot = refuse_command(f"enroot cannot keep containers in {shell_variable('data')}", "ENROOT_DATA_PATH=DIR")
    yield f'(umask 077 && run_logged mkdir -p "$data") || {cannot}'
    yield f'exec 9>>"$state" || {cannot}'
    yield f"run_logged flock -w {LOCK_TIMEOUT_SECONDS} -E {LOCK_TIMEOUT_CODE} 9"
    yield "case $? in"
    yield "  0) ;;"
    yield f"  {LOCK_TIMEOUT_CODE}) {refuse_command(late, f'enroot remove {NAME}, on that node')} ;;"
    unlocked = refuse_command(
        f"{shell_variable('state')} cannot be locked", "ENROOT_DATA_PATH=DIR on a local disk of the node"
    )
    yield f"  *) {unlocked} ;;"
    yield "esac"


def _check_existing_lines(job: Job) -> Iterator[str]:
    """Decides about a container that exists: use it, refuse it, or remove it if it is incomplete. It is removed only if
    the state file records that its creation began. With --container-name, it is removed only if this run began it."""
    other = f"the container {NAME} was created from another image than {shell_variable('image')}"
    stuck = refuse_command(f"the incomplete container {NAME} cannot be removed", f"enroot remove {NAME}, on that node")
    hint = f"enroot remove {NAME}, on that node, or another --container-name"
    remove = (f'run_logged enroot remove -f "$name" || {stuck}', "containers=")
    yield 'run=${0%/*} run=${run##*/} made_from=$(cat "$state")'
    yield "if is_there; then"
    yield "  case $made_from in"
    yield '    "" | "$print") ;; # created by the user, or complete'
    yield "    unfinished*)"
    yield from (
        f"      {line}" for line in (_check_incomplete_lines(remove, hint) if job.enclosure.container_name else remove)
    )
    yield "      ;;"
    yield f"    *) {refuse_command(other, hint)} ;;"
    yield "  esac"
    yield "fi"


def _check_incomplete_lines(remove: Iterable[str], hint: str) -> Iterator[str]:
    """The state file may be older than the container: the user may have created it after the run ended."""
    run = shell_variable("begun_by")
    half = f"the container {NAME} is incomplete: the run {run} was killed while creating it"
    doubt = f"the container {NAME} may be incomplete: the run {run} was killed before or while creating it"
    own = f"{hint}; rm {shell_variable('state')} if you created it"
    yield 'read -r _ begun_by marked <<<"$made_from"'
    yield f"if [ -e {UNFINISHED_MARK} ]; then"
    yield f'  [ "$begun_by" = "$run" ] || {refuse_command(half, hint)}'
    yield from (f"  {line}" for line in remove)
    yield "else"
    yield f'  [ -n "$marked" ] || {refuse_command(doubt, own)}'
    yield '  : >"$state" # the incomplete one is gone, and the user created this one'
    yield "fi"


def _create_lines(job: Job) -> Iterator[str]:
    """Creates the container if it does not exist. A failed one is removed, except if another process created the same
    name at the same time without the lock: that container belongs to the other process."""
    chosen = bool(job.enclosure.container_name)
    forget = f'rm -f {UNFINISHED_MARK} && : >"$state"' if chosen else ': >"$state"'
    failed = refuse_command(
        f"enroot cannot create a container from {shell_variable('image')}", "enroot create IMAGE, on a node"
    )
    yield "create_failed() {"
    yield '  case $(cat "$error_file") in'
    yield f'    *"File already exists"* | *"failed to make directory"*) {forget} ;;'
    yield '    *) enroot remove -f "$name" >/dev/null 2>&1 ;;'
    yield "  esac"
    yield '  containers=$(enroot list 2>/dev/null) && ! is_there && : >"$state"'
    yield f"""  sed -i -E {quote_words(f"/{STATISTICS_PATTERN}/d")} "$error_file\""""
    yield f"  {failed}"
    yield "}"
    yield from _mark_lines() if chosen else ()
    yield "if ! is_there; then"
    yield '  echo "unfinished $run" >"$state"'
    yield f"  {'create_marked' if chosen else CREATE_COMMAND} || create_failed"
    yield from (f"  rm -f {UNFINISHED_MARK}",) * chosen
    yield '  echo "$print" >"$state"'
    yield "fi"


def _mark_lines() -> Iterator[str]:
    """Puts a file in the container's folder. It distinguishes the container that this run began from one that the user
    creates later under the same name. enroot creates the folder, so a background process waits for it and writes the
    file. That process closes the lock's file descriptor, so it does not hold the lock."""
    yield "mark_folder() {"
    yield "  while sleep 0.1 && kill -0 $$; do"
    yield '    [ -d "$data/$name" ] || continue'
    yield f'    echo "$run" >{UNFINISHED_MARK} && echo "unfinished $run marked" >"$state"'
    yield "    return"
    yield "  done"
    yield "}"
    yield "create_marked() {"
    yield "  mark_folder 9>&- 2>/dev/null &"
    yield f"  {CREATE_COMMAND}"
    yield "  set -- $?"
    yield "  { kill $!; wait $!; } 2>/dev/null"
    yield '  return "$1"'
    yield "}"


def _container_name(job: Job) -> str:
    """The container's name. It contains a fingerprint of the image (path, size, time of change), so that another image
    at the same path gets another container."""
    if job.enclosure.container_name:
        return quote_words(job.enclosure.container_name)
    stem = re.sub(r"[^A-Za-z0-9_.-]+", "-", PurePosixPath(job.enclosure.image or "").stem)
    return quote_words(f"echelon-{stem}-{shell_variable('print')}")


def _gpu_lines() -> Iterator[str]:
    """enroot gives a container the NVIDIA GPUs only if these variables are set, by the image or in the environment."""
    yield "if [ -e /dev/nvidiactl ]; then"
    yield "  for one in NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility; do"
    yield "    name_of=${one%%=*}"
    yield '    [ -n "${!name_of-}" ] || grep -qs "^$name_of=" "$data/$name/etc/environment" || export "${one?}"'
    yield "  done"
    yield "else"
    yield f"  {NO_GPUS_LINE}"
    yield "fi"


def _variable_lines() -> Iterator[str]:
    yield "variables=() encoded=()"
    yield "while read -r one; do"
    yield "  case $one in"
    yield f"    {host_case_pattern()}) ;;"
    yield "    *)"
    yield "      case ${!one} in # enroot keeps variables as lines of a file, and strips quotes from a value"
    yield "        *$'\\n'* | [\\\"\\']*) encoded+=(\"$one\") ;;"
    yield '        *) variables+=(-e "$one") ;;'
    yield "      esac ;;"
    yield "  esac"
    yield "done < <(compgen -e)"
    yield "if [ ${#encoded[@]} -gt 0 ]; then # the agent decodes them"
    pair = """printf '%s=%s\\0' "$one" "${!one}\""""
    yield f'  {ENCODED_VARIABLE}=$(for one in "${{encoded[@]}}"; do {pair}; done | base64 -w 0)'
    yield f"  export {ENCODED_VARIABLE}"
    yield f"  variables+=(-e {ENCODED_VARIABLE})"
    yield "fi"


def _check_paths_lines() -> Iterator[str]:
    """Refuses a run folder with a space or a colon in its path: enroot splits a mount there."""
    odd = refuse_command(
        f"enroot cannot mount {shell_variable('run')}: its path has a space or a colon", "ECHELON_RUNS=DIR"
    )
    yield f"[[ $run != *[[:space:]:]* ]] || {odd}"
