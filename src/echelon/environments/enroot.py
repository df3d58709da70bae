"""`--env enroot`: a container made from a .sqsh file once on each node, whoever comes first, and used again."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from echelon.command import Command, spread, variable, words
from echelon.environments.entry import Entry, refuse
from echelon.environments.host_variables import ENCODED, pattern
from echelon.environments.mounts import mount_lines, mounts_of, source_lines
from echelon.job import Job

PATIENCE_SECONDS = 1200
"""For whoever makes the same container at the same time; a large image takes minutes."""
LATE = 9  # what flock is to say of a lock that it did not get in time
NAME = variable("name")
PLAIN_WORD = "[A-Za-z0-9_./:@%+=,-]+"
"""What enroot hands on unchanged: without a command script in the image it gives all words to a shell, as one line."""


def entry(job: Job) -> Entry:
    enclosure = job.enclosure
    options = (*("--rw",) * enclosure.writable, *("--root",) * enclosure.root)
    lines = (
        *("", "# The container, made from its image once on this node and used again"),
        f"command -v enroot >/dev/null || {refuse('this node has no enroot', '--modules NAME that brings it along')}",
        *source_lines(mounts_of(job), refuse(f"this node has no {variable('source')} to mount", "another --mount")),
        *(_made(job) if enclosure.image else _existing(job)),
        *("", "# What it sees of this node: these folders, and every variable but those that describe the node"),
        *(("read_only=x-create=auto,rbind,ro",) * any(mount.read_only for mount in mounts_of(job))),
        *mount_lines(job, "--mount", f":{variable('read_only')}"),
        *(_gpus() if job.resources.gpus_per_node else ()),
        *_variables(),
        *_plain_words(),
    )
    wrapper = ("enroot", "start", *options, spread("mounts"), spread("variables"), NAME)
    return Entry(place=_place(job), lines=lines, wrapper=wrapper)


def _place(job: Job) -> str:
    return (
        f"the image {job.enclosure.image}" if job.enclosure.image else f"the container {job.enclosure.container_name}"
    )


def _data_path() -> Iterator[str]:
    """Where it most likely keeps them, in its own order, for it has no command that tells; good enough for a lock,
    and for a look at what an image says of GPUs."""
    yield "data=${ENROOT_DATA_PATH-}"
    yield "conf=${ENROOT_SYSCONF_PATH:-/etc/enroot}/enroot.conf"
    yield 'for file in "$conf" "$conf".d/*.conf; do # the first that says it; enroot, too, gives the value to a shell'
    yield '  [ -z "$data" ] && [ -r "$file" ] || continue'
    yield r"""  data=$(eval "echo $(sed -n 's/^[ \t]*ENROOT_DATA_PATH[ \t=]\+//p' "$file" | head -n 1)")"""
    yield "done"
    yield "data=${data:-${XDG_DATA_HOME:-$HOME/.local/share}/enroot}"


def _is_there() -> Iterator[str]:
    yield "is_there() { # only enroot itself knows where it keeps containers"
    yield '  enroot list 2>"$words" | grep -qxF -e "$name"'
    yield "}"


def _existing(job: Job) -> Iterator[str]:
    yield f"name={words(job.enclosure.container_name or '')}"
    yield from _data_path() if job.resources.gpus_per_node else ()
    yield from _is_there()
    missing = refuse(f"this node has no container {NAME}", "--image FILE.sqsh to make it from; enroot list")
    yield f"is_there || {missing}"


def _made(job: Job) -> Iterator[str]:
    image = job.enclosure.image or ""
    yield f"image={words(image)}"
    yield f'[ -r "$image" ] || {refuse("this node has no image " + variable("image"), "another --image")}'
    yield """print=$(stat -Lc '%n %s %Y' "$image" | sha256sum | cut -c 1-12)"""
    yield f"name={_name(job)}"
    yield from _data_path()
    yield from _is_there()
    late = f"nobody has finished the container {NAME} within {PATIENCE_SECONDS} s"
    yield "state=$data/.$name.echelon # what the container was made from; locked while it is being made"
    cannot = refuse(f"enroot cannot keep containers in {variable('data')}", "ENROOT_DATA_PATH=DIR")
    yield f'heard mkdir -p "$data" || {cannot}'
    yield f'exec 9>>"$state" || {cannot}'
    yield f"heard flock -w {PATIENCE_SECONDS} -E {LATE} 9"
    yield "case $? in"
    yield "  0) ;;"
    yield f"  {LATE}) {refuse(late, f'enroot remove {NAME}, on that node')} ;;"
    unlocked = refuse(f"{variable('state')} cannot be locked", "ENROOT_DATA_PATH=DIR on a disk of the node's own")
    yield f"  *) {unlocked} ;;"
    yield "esac"
    yield 'made_from=$(cat "$state")'
    yield 'if [ "$made_from" = unfinished ]; then # whoever began it was ended on the way'
    yield '  enroot remove -f "$name" >&2'
    yield "fi"
    yield "if ! is_there; then"
    yield '  echo unfinished >"$state"'
    failed = refuse(f"enroot cannot make a container of {variable('image')}", "enroot create IMAGE, on a node")
    yield f"  heard {Command(argv=('enroot', 'create', '-n', NAME, variable('image'))).shell_lines()[0]} || {failed}"
    yield '  echo "$print" >"$state"'
    yield 'elif [ -n "$made_from" ] && [ "$made_from" != "$print" ]; then'
    other = f"the container {NAME} was made from another image than {variable('image')}"
    yield f"  {refuse(other, f'enroot remove {NAME}, on that node, or another --container-name')}"
    yield "fi"
    yield "exec 9>&-"


def _name(job: Job) -> str:
    """The image's own print in it: another image under the same path is another container."""
    if job.enclosure.container_name:
        return words(job.enclosure.container_name)
    stem = re.sub(r"[^A-Za-z0-9_.-]+", "-", PurePosixPath(job.enclosure.image or "").stem)
    return words(f"echelon-{stem}-{variable('print')}")


def _gpus() -> Iterator[str]:
    """enroot shows an image NVIDIA's GPUs only where the image, or somebody, says so by these variables."""
    yield "if [ -e /dev/nvidiactl ]; then"
    yield "  for one in NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility; do"
    yield "    name_of=${one%%=*}"
    yield '    [ -n "${!name_of-}" ] || grep -qs "^$name_of=" "$data/$name/etc/environment" || export "${one?}"'
    yield "  done"
    yield "fi"


def _variables() -> Iterator[str]:
    yield "variables=() encoded=()"
    yield "while read -r one; do"
    yield "  case $one in"
    yield f"    {pattern()}) ;;"
    yield "    *)"
    yield "      case ${!one} in # enroot writes them down line by line, and takes quotes off a value"
    yield "        *$'\\n'* | [\\\"\\']*) encoded+=(\"$one\") ;;"
    yield '        *) variables+=(-e "$one") ;;'
    yield "      esac ;;"
    yield "  esac"
    yield "done < <(compgen -e)"
    yield "if [ ${#encoded[@]} -gt 0 ]; then # the agent takes them apart again"
    pair = """printf '%s=%s\\0' "$one" "${!one}\""""
    yield f'  {ENCODED}=$(for one in "${{encoded[@]}}"; do {pair}; done | base64 -w 0)'
    yield f"  export {ENCODED}"
    yield f"  variables+=(-e {ENCODED})"
    yield "fi"


def _plain_words() -> Iterator[str]:
    odd = refuse(f"enroot would change this word on its way: {variable('word')}", "ECHELON_RUNS=DIR with a plain name")
    yield 'for word in "$0" "$words" "$@"; do'
    yield f"  [[ $word =~ ^{PLAIN_WORD}$ ]] || {odd}"
    yield "done"
