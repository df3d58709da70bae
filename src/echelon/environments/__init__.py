"""What the ranks run in: node.sh takes a command into it, on each node. Pure."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

from echelon.command import Command, spread, variable, words
from echelon.environments.entry import INSIDE, Entry, refuse
from echelon.environments.modules import module_lines
from echelon.exit_codes import NOT_ENTERED
from echelon.job import Job

ENVIRONMENTS = (
    *("bare", "modules", "setup", "venv", "conda", "enroot", "pyxis", "apptainer", "singularity", "container"),
)
CONTAINERS = frozenset({"enroot", "pyxis", "apptainer", "singularity", "container"})
MEMBERS = {
    "venv": "echelon.environments.venv",
    "conda": "echelon.environments.conda",
    "enroot": "echelon.environments.enroot",
    "pyxis": "echelon.environments.pyxis",
    "apptainer": "echelon.environments.apptainer",
    "singularity": "echelon.environments.apptainer",
    "container": "echelon.environments.container",
}
SHELL = "/bin/bash"
VERSION = 'import sys; print("%d.%d" % sys.version_info[:2]); sys.exit(9 * (sys.version_info < (3, 10)))'


def node_script(job: Job) -> str:
    """`node.sh WORDS COMMAND...`: modules first, then the user's own lines, then what the environment itself needs."""
    entry = entry_of(job)
    head = (f"#!{SHELL}", f"# {job.name}: what every node does before the command that it is given")
    return "\n".join((*head, *_tools(), *_body(job, entry))) + "\n"


def entry_of(job: Job) -> Entry:
    if job.environment not in MEMBERS:
        return Entry(place="this node")
    member: Any = importlib.import_module(MEMBERS[job.environment])
    entry: Entry = member.entry(job)
    return entry


def _tools() -> Iterator[str]:
    yield from (
        "words=$1 # the file that is told why this node cannot go on",
        "shift",
        "heard() { # a command, whose complaints are kept for the verdict",
        '  "$@" 2>"$words"',
        "  set -- $?",
        '  cat "$words" >&2',
        '  return "$1"',
        "}",
        "refuse() { # what is wrong, and what to type next",
        '  printf \'error: %s\\n  try   %s\\n\' "$1" "$2" >>"$words"',
        '  printf \'error: %s\\n  try   %s\\n\' "$1" "$2" >&2',
        "  trap - EXIT",
        f"  exit {NOT_ENTERED}",
        "}",
    )


def _body(job: Job, entry: Entry) -> Iterator[str]:
    if entry.wrapper:
        yield from _inside(job, entry)
    yield ""
    yield ': >"$words"'
    yield from module_lines(job.enclosure.modules)
    yield from _setup(job.enclosure.setup)
    yield from entry.lines
    if entry.wrapper:
        command = (*entry.wrapper, "/bin/sh", variable("0"), variable("words"), INSIDE, spread())
        yield from Command(argv=command).shell_lines(replace_shell=True)
    else:
        yield ""
        yield from python_lines(job.python, entry)
        yield from _folder_lines(job, entry) if entry.is_inside else ()
        yield from _go()


def _inside(job: Job, entry: Entry) -> Iterator[str]:
    """Read by the container's /bin/sh, which may know nothing of bash; it gets no further than this."""
    yield ""
    yield f'if [ "$1" = {INSIDE} ]; then # we are in the container by now'
    yield "  shift"
    yield from (f"  {line}" for line in (*python_lines(job.python, entry), *_folder_lines(job, entry), *_go()))
    yield "fi"


def _setup(lines: tuple[str, ...]) -> Iterator[str]:
    if lines:
        hint = "job.out in the run's folder has what it said"
        yield from ("", "# The lines of the setup, as they are", "setup_ended() {")
        yield f"  {refuse('the setup ended before the command began, with exit code ' + variable('1'), hint)}"
        yield from ("}", "trap 'setup_ended $?' EXIT", *lines, "trap - EXIT")


def python_lines(python: str, entry: Entry) -> Iterator[str]:
    """Whether there is a Python that can run echelon.pyz; in any shell."""
    ask = (python, "-ISc", VERSION)
    hint = f"--python PATH names another one; Python 3.10 and torch are needed{' in the image' * entry.is_image}"
    old = refuse(f"{python} in {entry.place} is Python {variable('version')}, and 3.10 is needed", hint)
    yield f"version=$({Command(argv=ask).shell_lines()[0]} 2>&1)"
    yield "case $? in"
    yield "  0) ;;"
    yield f"  9) {old} ;;"
    yield f'  *) echo "$version" >>"$words" && {refuse(f"{entry.place} has no {python} that could be run", hint)} ;;'
    yield "esac"


def _folder_lines(job: Job, entry: Entry) -> Iterator[str]:
    """Over ssh the working directory may not be there, and is not missed."""
    folder = job.inner_cwd
    hint = f"--mount {folder}:{folder}, or --container-workdir DIR"
    missing = refuse(f"{entry.place} has no folder {folder}", hint)
    yield f'[ -n "${{ECHELON_FOLDER-}}" ] || [ -d {words(folder)} ] || {missing}'


def _go() -> Iterator[str]:
    yield 'rm -f "$words"'
    yield Command(argv=(spread(),)).shell_lines(replace_shell=True)[0]
