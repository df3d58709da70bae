"""The job script for PBS: `#PBS` lines in one of two dialects, then the supervisor. Pure."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping
from datetime import timedelta

from echelon.backends.batch import parse_indices
from echelon.backends.pbs import Pbs
from echelon.backends.process import node_side_command, supervisor_command
from echelon.errors import ConfigError
from echelon.job import Job
from echelon.run_dir import RunDir
from echelon.shell import Command, quote_word, quote_words

ARRAY_INDEX = Pbs.array_index_variable
LONGEST_LINE = 4000  # qsub reads a line into a buffer of 4096 bytes
PLAIN_PATH = re.compile(r"/[A-Za-z0-9._/+=@~-]*")
UNITS = {"": "mb", "K": "kb", "M": "mb", "G": "gb", "T": "tb"}
MAIL_LETTERS = {"BEGIN": "b", "END": "e", "FAIL": "a", "ALL": "abe", "NONE": "n"}
RESERVED_OPTIONS = {
    "select": "--nodes, --cpus, -g, --mem; chunk.NAME=VALUE adds to every chunk",
    "nodes": "--nodes",
    "ncpus": "--cpus",
    "ngpus": "--gpus-per-node",
    "mem": "--mem",
    "walltime": "--time",
    "mpiprocs": "",
    "W.depend": "--dependency",
    "N": "--name",
    "q": "--partition",
    "P": "--account",
    "M": "--mail",
    "m": "--mail-type",
    "J": "--array",
    **dict.fromkeys("CISVWefhjkloruvXz", ""),
}
"""Options and resources that echelon sets, and the option of echelon for each; empty if it has none."""


def render(job: Job, run_dir: RunDir) -> str:
    lines = (
        "#!/bin/sh",
        *(directive(letter, value) for letter, value in directives(job, run_dir)),
        *_preparation_lines(job, run_dir),
        *supervisor_command(job, run_dir).shell_lines(replace_shell=True),
    )
    return "\n".join(lines) + "\n"


def _preparation_lines(job: Job, run_dir: RunDir) -> Iterator[str]:
    """Sets output, variables and folder: PBS starts the script in the home folder without the user's variables."""
    fetch = " ".join(node_side_command(job, run_dir, "environment").shell_lines())
    index = single_index(job.booking.array)
    if index is not None:
        yield f"export {ARRAY_INDEX}={index}"
    yield f"exec >>{quote_words(str(run_dir.job_output))} 2>&1"
    yield f"environment=$({fetch}) || exit"
    yield 'eval "$environment"'
    yield "unset environment"
    yield f"{Command(argv=('cd', job.cwd)).shell_lines()[0]} || exit"


def directive(letter: str, value: str = "") -> str:
    """One `#PBS` line with a quoted value. Raises ConfigError for a control character, which could start a new line,
    and for a line that is too long."""
    if any(ord(sign) < 32 or ord(sign) == 127 for sign in value):
        raise ConfigError(
            f"{value!r} cannot be passed to PBS", origin=f"#PBS -{letter}", why="it contains a control character"
        )
    line = f"#PBS -{letter} {quote_word(value)}" if value else f"#PBS -{letter}"
    if len(line.encode(errors="surrogateescape")) > LONGEST_LINE:
        raise ConfigError(f"#PBS -{letter} is too long", why=f"qsub reads at most {LONGEST_LINE} bytes of a line")
    return line


def directives(job: Job, run_dir: RunDir) -> Iterator[tuple[str, str]]:
    yield "N", job.name
    indices = index_range(job.booking.array)
    if indices is not None:
        yield "J", indices
    yield from _queue_directives(job)
    native = _group_native_options(job.booking.native)
    yield from (("l", item) for item in _total_resources(job) if job.booking.pbs_dialect == "totals")
    yield from (("l", item) for item in _chunk_resources(job, native) if job.booking.pbs_dialect != "totals")
    if job.resources.time_limit is not None:
        yield "l", f"walltime={pbs_time(job.resources.time_limit)}"
    yield from (("l", _format_assignment(name, value)) for name, value in native["l"].items() if name != "place")
    yield from (
        ("W", _format_assignment(name, value)) for name, value in {**_job_attributes(job), **native["W"]}.items()
    )
    yield from native["option"].items()
    yield "r", "y"
    yield "S", "/bin/sh"
    yield "j", "oe"
    yield from _output_directives(run_dir)


def _output_directives(run_dir: RunDir) -> Iterator[tuple[str, str]]:
    """The options for PBS's own messages, which it writes to JOBID.OU without delay. A path that PBS could misread is
    replaced by /dev/null."""
    path = f"{run_dir.path}/"
    if PLAIN_PATH.fullmatch(path):
        yield "k", "oed"
    yield "o", path if PLAIN_PATH.fullmatch(path) else "/dev/null"


def _group_native_options(native: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Groups the options: `chunk.NAME` is a resource of each chunk, `W.NAME` an attribute, one letter an option of
    qsub, and any other name a resource of the job."""
    kinds: dict[str, dict[str, str]] = {"chunk": {}, "W": {}, "option": {}, "l": {}}
    for name, value in native.items():
        kind, dot, rest = name.partition(".")
        if dot and kind in ("chunk", "W"):
            kinds[kind][rest] = value
        else:
            kinds["option" if len(name) == 1 else "l"][name] = value
    return kinds


def _format_assignment(name: str, value: str) -> str:
    return f"{name}={value}" if value else name


def _queue_directives(job: Job) -> Iterator[tuple[str, str]]:
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
    asked = [word.strip().upper() for word in types.split(",")]
    unknown = [word for word in asked if word not in MAIL_LETTERS]
    if unknown:
        raise ConfigError(f"PBS sends no mail at {unknown[0]}", origin="mail_type", hint="--mail-type BEGIN,END,FAIL")
    return "".join(sorted({letter for word in asked for letter in MAIL_LETTERS[word]}))


def cpus_per_node(job: Job) -> int:
    """CPUs per node. The default is one per rank."""
    return job.resources.cpus or job.resources.procs_per_node


def _chunk_resources(job: Job, native: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    """One chunk per host. Without `scatter` PBS may place several chunks on one host."""
    resources = job.resources
    parts = [str(resources.all_nodes), f"ncpus={cpus_per_node(job)}"]
    if resources.gpus_per_node:
        parts.append(f"ngpus={resources.gpus_per_node}")
    parts.append("mpiprocs=1")
    if resources.memory is not None:
        parts.append(f"mem={pbs_memory(resources.memory)}")
    parts += [f"{name}={value}" for name, value in native["chunk"].items()]
    yield f"select={':'.join(parts)}"
    yield f"place={native['l'].get('place') or 'scatter'}"


def _total_resources(job: Job) -> Iterator[str]:
    """The sums over all nodes."""
    resources = job.resources
    yield f"ncpus={cpus_per_node(job) * resources.all_nodes}"
    if resources.gpus_per_node:
        yield f"ngpus={resources.gpus_per_node * resources.all_nodes}"
    if resources.memory is not None:
        yield f"mem={pbs_memory(resources.memory, resources.all_nodes)}"
    if "place" in job.booking.native:
        yield f"place={job.booking.native['place']}"


def _job_attributes(job: Job) -> dict[str, str]:
    """Attributes for -W. If the run can continue without a host, PBS must not end the job for a lost host."""
    attributes = {"depend": job.booking.dependency} if job.booking.dependency else {}
    survives = job.resources.smallest < job.resources.all_nodes
    if survives and job.booking.pbs_dialect == "chunks":
        attributes["tolerate_node_failures"] = "all"
    return attributes


def pbs_memory(text: str, times: int = 1) -> str:
    number, unit = re.fullmatch(r"(\d+)([KMGT]?)", text).groups()  # type: ignore[union-attr]
    return f"{int(number) * times}{UNITS[unit]}"


def pbs_time(duration: timedelta) -> str:
    """`hours:minutes:seconds`, rounded up."""
    minutes, seconds = divmod(math.ceil(duration.total_seconds()), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02}:{minutes:02}:{seconds:02}"


def index_range(array: str | None, origin: str | None = None) -> str | None:
    """The value of qsub's -J. None for a single index: PBS refuses it, so that run is an ordinary job. Raises
    ConfigError if the indices are not evenly spaced."""
    indices = parse_indices(array) if array is not None else ()
    if array is None or len(indices) < 2:
        return None
    steps = {after - before for before, after in itertools.pairwise(indices)}
    if len(steps) > 1:
        raise ConfigError(
            f"--array {array} is not one range",
            origin=origin,
            why="PBS takes FIRST-LAST or FIRST-LAST:STEP, so the indices must be evenly spaced",
            hint=f"--array {indices[0]}-{indices[-1]}, or submit the indices in several arrays",
        )
    [step] = steps
    limit = "".join(array.partition("%")[1:])
    return f"{indices[0]}-{indices[-1]}" + (f":{step}" if step > 1 else "") + limit


def single_index(array: str | None) -> str | None:
    """The index of an array run that is an ordinary PBS job because it is resumed, requeued or the only run."""
    return None if array is None or index_range(array) is not None else str(parse_indices(array)[0])
