"""The job script for PBS: what is asked for as `#PBS` lines in one of two dialects, then the supervisor. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from datetime import timedelta

from echelon.command import Command, quoted
from echelon.errors import ConfigError
from echelon.job import Job
from echelon.run_dir import RunDir
from echelon.schedulers.script import node_side_of, supervisor_of

LONGEST_LINE = 4000  # qsub reads a line into a buffer of 4096 bytes
PLAIN_PATH = re.compile(r"/[A-Za-z0-9._/+=@~-]*")
UNITS = {"": "mb", "K": "kb", "M": "mb", "G": "gb", "T": "tb"}
MAIL_LETTERS = {"BEGIN": "b", "END": "e", "FAIL": "a", "ALL": "abe", "NONE": "n"}

OURS = {
    "select": "--nodes, --cpus, -g, --mem; chunk.NAME=VALUE adds to every chunk", "nodes": "--nodes",
    "ncpus": "--cpus", "ngpus": "--gpus-per-node", "mem": "--mem", "walltime": "--time", "mpiprocs": "",
    "W.depend": "--dependency", "N": "--name", "q": "--partition", "P": "--account", "M": "--mail", "m": "--mail-type",
    **dict.fromkeys("CIJSVWefhjkloruvXz", ""),
}  # fmt: skip
"""What echelon sets itself, and our setting for each that has one."""


def render(job: Job, run_dir: RunDir) -> str:
    lines = (
        "#!/bin/sh",
        *(directive(letter, value) for letter, value in directives(job, run_dir)),
        *_setting_out(job, run_dir),
        *supervisor_of(job, run_dir).shell_lines(replace_shell=True),
    )
    return "\n".join(lines) + "\n"


def _setting_out(job: Job, run_dir: RunDir) -> Iterator[str]:
    """PBS starts us at home with nobody's variables: output, environment and folder are ours to see to."""
    fetch = " ".join(node_side_of(job, run_dir, "environment").shell_lines())
    yield f"exec >>{quoted(str(run_dir.job_output))} 2>&1"
    yield f"environment=$({fetch}) || exit"
    yield 'eval "$environment"'
    yield "unset environment"
    yield f"{Command(argv=('cd', job.cwd)).shell_lines()[0]} || exit"


def directive(letter: str, value: str = "") -> str:
    """One line for qsub, whatever the value holds; a control character could begin another line, and is refused."""
    if any(ord(sign) < 32 or ord(sign) == 127 for sign in value):
        raise ConfigError(
            f"{value!r} cannot be given to PBS", origin=f"#PBS -{letter}", why="it holds a control character"
        )
    line = f"#PBS -{letter} {quoted(value)}" if value else f"#PBS -{letter}"
    if len(line.encode(errors="surrogateescape")) > LONGEST_LINE:
        raise ConfigError(f"#PBS -{letter} is too long", why=f"qsub reads no more than {LONGEST_LINE} bytes of a line")
    return line


def directives(job: Job, run_dir: RunDir) -> Iterator[tuple[str, str]]:
    yield "N", job.name
    yield from _place(job)
    native = _sorted_out(job.booking.native)
    yield from (("l", item) for item in _totals(job) if job.booking.pbs_dialect == "totals")
    yield from (("l", item) for item in _chunks(job, native) if job.booking.pbs_dialect != "totals")
    if job.resources.time_limit is not None:
        yield "l", f"walltime={pbs_time(job.resources.time_limit)}"
    yield from (("l", _pair(name, value)) for name, value in native["l"].items() if name != "place")
    yield from (("W", _pair(name, value)) for name, value in {**_attributes(job), **native["W"]}.items())
    yield from native["option"].items()
    yield "r", "y"
    yield "S", "/bin/sh"
    yield "j", "oe"
    yield from _output(run_dir)


def _output(run_dir: RunDir) -> Iterator[tuple[str, str]]:
    """Where PBS writes, as it comes, what it has to say itself: JOBID.OU. A path it could misread is kept from it."""
    path = f"{run_dir.path}/"
    if PLAIN_PATH.fullmatch(path):
        yield "k", "oed"
    yield "o", path if PLAIN_PATH.fullmatch(path) else "/dev/null"


def _sorted_out(native: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """`chunk.NAME` is a resource of each chunk, `W.NAME` an attribute, one letter an option, the rest resources."""
    kinds: dict[str, dict[str, str]] = {"chunk": {}, "W": {}, "option": {}, "l": {}}
    for name, value in native.items():
        kind, dot, rest = name.partition(".")
        if dot and kind in ("chunk", "W"):
            kinds[kind][rest] = value
        else:
            kinds["option" if len(name) == 1 else "l"][name] = value
    return kinds


def _pair(name: str, value: str) -> str:
    return f"{name}={value}" if value else name


def _place(job: Job) -> Iterator[tuple[str, str]]:
    booking = job.booking
    if booking.partition:
        yield "q", booking.partition
    if booking.account:
        yield "P", booking.account
    if booking.mail:
        yield "M", booking.mail
    if booking.mail or booking.mail_type:
        yield "m", mail_letters(booking.mail_type or "END,FAIL")


def mail_letters(types: str) -> str:
    words = [word.strip().upper() for word in types.split(",")]
    unknown = [word for word in words if word not in MAIL_LETTERS]
    if unknown:
        raise ConfigError(f"PBS sends no mail at {unknown[0]}", origin="mail_type", hint="--mail-type BEGIN,END,FAIL")
    return "".join(sorted({letter for word in words for letter in MAIL_LETTERS[word]}))


def cpus_of(job: Job) -> int:
    """At least one for every rank."""
    return job.resources.cpus or job.resources.procs_per_node


def _chunks(job: Job, native: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    """One chunk for each host; without `scatter` several of them are packed onto one."""
    resources = job.resources
    parts = [str(resources.all_nodes), f"ncpus={cpus_of(job)}"]
    if resources.gpus_per_node:
        parts.append(f"ngpus={resources.gpus_per_node}")
    parts.append("mpiprocs=1")
    if resources.memory is not None:
        parts.append(f"mem={pbs_memory(resources.memory)}")
    parts += [f"{name}={value}" for name, value in native["chunk"].items()]
    yield f"select={':'.join(parts)}"
    yield f"place={native['l'].get('place') or 'scatter'}"


def _totals(job: Job) -> Iterator[str]:
    """What all nodes have together."""
    resources = job.resources
    yield f"ncpus={cpus_of(job) * resources.all_nodes}"
    if resources.gpus_per_node:
        yield f"ngpus={resources.gpus_per_node * resources.all_nodes}"
    if resources.memory is not None:
        yield f"mem={pbs_memory(resources.memory, resources.all_nodes)}"
    if "place" in job.booking.native:
        yield f"place={job.booking.native['place']}"


def _attributes(job: Job) -> dict[str, str]:
    """A run that can do without a host must not be ended by PBS for having lost one."""
    attributes = {"depend": job.booking.dependency} if job.booking.dependency else {}
    survives = job.resources.smallest < job.resources.all_nodes
    if survives and job.booking.pbs_dialect == "chunks":
        attributes["tolerate_node_failures"] = "all"
    return attributes


def pbs_memory(text: str, times: int = 1) -> str:
    number, unit = re.fullmatch(r"(\d+)([KMGT]?)", text).groups()  # type: ignore[union-attr]
    return f"{int(number) * times}{UNITS[unit]}"


def pbs_time(duration: timedelta) -> str:
    """`hours:minutes:seconds`, never less than asked for."""
    minutes, seconds = divmod(math.ceil(duration.total_seconds()), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02}:{minutes:02}:{seconds:02}"
