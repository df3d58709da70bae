"""Finds what a script launches: torchrun, accelerate, python and others, with what starts them on the nodes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from echelon.lint.model import names
from echelon.lint.mpi_options import MPI, count_mpi_options, mpi_counts, mpi_variables
from echelon.lint.parse import parse_shell
from echelon.lint.slurm_options import UNKNOWN, split_srun
from echelon.lint.syntax import Command, PartKind, Shell, Statement
from echelon.lint.values import Values, outer_markers, shielded, unshielded
from echelon.lint.words import OPEN
from echelon.record import record

WRAPPERS = names("time exec nohup command env sudo nice stdbuf eval unbuffer ionice")
STARTERS = names(
    "mpirun mpiexec mpiexec.hydra orterun prterun aprun jsrun ibrun lrun flux prun mpprun pbsdsh pbs_tmrsh "
    "ssh pdsh clush parallel blaunch horovodrun dsh"
)
"""Programs besides srun that start a command on other nodes."""
CARRIERS = names(
    "singularity apptainer enroot docker podman shifter ch-run udocker charliecloud numactl taskset hwloc-bind conda "
    "micromamba mamba poetry uv pipenv rye pixi xvfb-run nsys ncu rocprof perf strace gdb valgrind py-spy catchsegv"
)
"""Programs that run the command after their own options."""
PRINTERS = names("echo printf cat which type ls alias whereis cp rm mv grep sed awk man tee")
SHELLS = names("sh bash dash zsh ksh")
TORCH_MODULES = {
    "torch.distributed.run": "torchrun",
    "torch.distributed.launch": "legacy",
    "accelerate.commands.launch": "accelerate",
    "deepspeed.launcher.runner": "deepspeed",
    "torch.distributed.elastic.multiprocessing.run": "torchrun",
}
SWITCHES = names(
    "standalone no-python run-path m module use-env use_env multi-gpu cpu debug tpu use-deepspeed use-fsdp "
    "use-megatron-lm same-network no-ssh no-local force-multi quiet mps ipex virtual-local-rank enable-numa-affinity "
    "no-tpu-cluster downcast-bf16 enable-each-rank-log bind-cores-to-rank autotuning"
)
"""Options of launchers without a value."""
PYTHON = re.compile(r"(ipython|python|pypy)[\d.]*t?")
MAX_NESTING = 3
"""Shells within shells that are followed."""


@record
class LaunchOption:
    value: str
    line: int
    word: str
    """As written, for messages."""


@record
class Launch:
    """One command that runs Python or another program on one or more nodes."""

    kind: str
    """torchrun, legacy (torch.distributed.launch), accelerate, deepspeed, python, or other."""
    command: Command
    """The command of the script, the outermost one."""
    index: int
    """Its place among the statements."""
    words: tuple[str, ...]
    """The launcher and everything after it, expanded."""
    starter: str | None = None
    """srun, mpirun, ...: what starts it on the nodes. None if the script runs it itself."""
    starter_options: Mapping[str, str] = field(default_factory=dict)
    """Of srun. Of mpirun and mpiexec only `ntasks` and `ntasks-per-node`."""
    before: tuple[str, ...] = ()
    """The words between the starter with its options and the launcher: containers, bindings, `uv run`."""
    in_task: bool = False
    """In a string for a shell that the starter runs, such as srun bash -c '...': variables are those of the task."""
    options: Mapping[str, LaunchOption] = field(default_factory=dict)
    """By name with dashes, such as `nproc-per-node`."""
    target: tuple[str, ...] = ()
    """The script, or -m and the module."""
    arguments: tuple[str, ...] = ()
    line: int = 0
    inner: Shell | None = None
    """The script in the string, if a shell runs one: bash -c '...'."""

    @property
    def is_distributed(self) -> bool:
        return self.kind in ("torchrun", "legacy", "accelerate", "deepspeed")

    @property
    def uses_srun(self) -> bool:
        return self.starter == "srun"

    def option(self, *names: str) -> LaunchOption | None:
        return next((self.options[name] for name in names if name in self.options), None)


@record
class _Place:
    """What is known on the way to a launch."""

    command: Command
    index: int
    lines: tuple[int, ...]
    starter: str | None = None
    starter_options: Mapping[str, str] = field(default_factory=dict)
    before: tuple[str, ...] = ()
    skipped: int = 0
    """Words of the starter's own options that are still in front of the command."""
    in_task: bool = False
    nesting: int = 0
    inner: Shell | None = None

    def launch(self, kind: str, words: Sequence[str], **fields: Any) -> Launch:
        """A launch at this place."""
        return Launch(
            kind=kind,
            command=self.command,
            index=self.index,
            words=tuple(words),
            starter=self.starter,
            starter_options=self.starter_options,
            before=self.before,
            in_task=self.in_task,
            inner=self.inner,
            **{"line": self.command.line, **fields},
        )


def find_launches(statements: Sequence[Statement], values: Values) -> tuple[Launch, ...]:
    found: list[Launch] = []
    runners = frozenset(_runners(statements))
    for index, statement in enumerate(statements):
        if isinstance(statement, Command) and statement.words:
            words, lines = expand(statement, values, index)
            if words and words[0] in runners:
                words, lines = words[1:], lines[1:]
            place = _Place(command=statement, index=index, lines=lines)
            found += _launches_in_words(words, place, values)
    return tuple(found)


def _runners(statements: Sequence[Statement]) -> Iterator[str]:
    """The functions that run their arguments: `run() { echo "$@"; time "$@"; }`."""
    for one in statements:
        if isinstance(one, Command) and one.scope.function is not None:
            rest = [word for word in one.words if word.literal not in WRAPPERS]
            parts = [part for part in rest[0].parts if part.text] if rest else []
            if len(parts) == 1 and parts[0].kind is not PartKind.TEXT and parts[0].text in ("@", "*"):
                yield one.scope.function


def expand(command: Command, values: Values, index: int) -> tuple[list[str], tuple[int, ...]]:
    """The words of a command, and the line of each."""
    words: list[str] = []
    lines: list[int] = []
    for word in command.words:
        fields = values.fields(word, index)
        words += fields
        lines += [word.line] * len(fields)
    return words, tuple(lines)


def _launches_in_words(words: Sequence[str], place: _Place, values: Values) -> Iterator[Launch]:
    rest = _without_wrappers(list(words))
    if not rest:
        return
    place = replace(place, before=(*place.before, *words[: len(words) - len(rest)]))
    program = rest[0].rpartition("/")[2]
    if program == "srun" or program in STARTERS:
        place, rest = _split_starter(program, rest, place, values)
        if not rest or (program == "srun" and not _may_precede_launcher(rest[0])):
            yield from _unknown_program(rest, place)
            return
    elif program in CARRIERS or program in SHELLS:
        pass
    elif program not in ("torchrun", "deepspeed", "accelerate") and not PYTHON.fullmatch(program):
        return
    yield from _find_launcher(rest, place, values)


def _split_starter(program: str, rest: list[str], place: _Place, values: Values) -> tuple[_Place, list[str]]:
    if program == "srun":
        options, command = split_srun(rest[1:])
        if UNKNOWN in options and values.is_never_option(options[UNKNOWN]):
            del options[UNKNOWN]
        return replace(place, starter=program, starter_options=options), command
    command = rest[1:]
    skipped = count_mpi_options(command) if program in MPI else 0
    given = command[:skipped]
    before = (*place.before, *mpi_variables(given))
    return replace(place, starter=program, starter_options=mpi_counts(given), before=before, skipped=skipped), command


def _without_wrappers(words: list[str]) -> list[str]:
    while words:
        program = words[0].rpartition("/")[2]
        if program in WRAPPERS or re.fullmatch(r"\w+=.*", words[0]):
            words = words[1:]
            while words and words[0].startswith("-") and program in WRAPPERS:
                words = words[1:]
        elif program == "timeout" and len(words) > 2:
            words = (
                [word for word in words[1:] if not word.startswith("-")][1:] if words[1].startswith("-") else words[2:]
            )
        else:
            break
    return words


def _find_launcher(rest: list[str], place: _Place, values: Values) -> Iterator[Launch]:
    """The launcher among the words: containers and bindings may come before it."""
    for position, word in enumerate(rest):
        program = word.rpartition("/")[2]
        following = rest[position + 1 :]
        here = replace(place, before=(*place.before, *rest[place.skipped : position]))
        if program in SHELLS and following and re.fullmatch(r"-[a-z]*c", following[0]) and len(following) > 1:
            yield from _nested_launches(following[1], here, values)
            return
        if program in ("torchrun", "deepspeed"):
            yield _make_launch(program, rest[position:], following, here)
            return
        if program == "accelerate" and following and following[0] == "launch":
            yield _make_launch("accelerate", rest[position:], following[1:], here)
            return
        if PYTHON.fullmatch(program):
            yield _python_launch(rest[position:], here)
            return
    yield from _unknown_program(rest, place)


def _may_precede_launcher(word: str) -> bool:
    """Whether a launcher may follow the word: not in `srun echo torchrun`, and not in `srun gpaw python input.py`."""
    program = word.rpartition("/")[2]
    is_launcher = program in ("torchrun", "deepspeed", "accelerate") or PYTHON.fullmatch(program)
    is_wrapper = "/" in word or word.endswith(".sh") or re.search("singularity|apptainer|container", program)
    return bool(is_launcher or is_wrapper or program in CARRIERS | SHELLS | WRAPPERS or word.startswith((OPEN, "-")))


def _unknown_program(rest: list[str], place: _Place) -> Iterator[Launch]:
    """A program that is not known, if it is started on nodes."""
    if rest and place.starter is not None and rest[0].rpartition("/")[2] not in PRINTERS:
        yield place.launch("other", rest, target=tuple(rest[:1]), arguments=tuple(rest[1:]))


def _nested_launches(text: str, place: _Place, values: Values) -> Iterator[Launch]:
    """The launches of a string that another shell runs, as in srun bash -c '...'."""
    if place.nesting >= MAX_NESTING:
        return
    shell = parse_shell(shielded(outer_markers(text)), place.command.line)
    if shell.broken is not None:
        return
    inner = Values(shell.statements, outer=values)
    in_task = place.starter is not None or place.in_task
    below = replace(place, lines=(), skipped=0, in_task=in_task, nesting=place.nesting + 1, inner=shell)
    for index, statement in enumerate(shell.statements):
        if isinstance(statement, Command) and statement.words:
            words = [unshielded(word) for word in expand(statement, inner, index)[0]]
            yield from _launches_in_words(words, below, inner)


def _python_launch(words: list[str], place: _Place) -> Launch:
    """`python train.py`, or a launcher that is run as a module."""
    rest = words[1:]
    while rest and rest[0].startswith("-") and rest[0] not in ("-m", "-c"):
        rest = rest[2:] if rest[0] in ("-W", "-X") else rest[1:]
    if len(rest) > 1 and rest[0] == "-m" and rest[1] in TORCH_MODULES:
        return _make_launch(TORCH_MODULES[rest[1]], words, rest[2:], place)
    length = 2 if rest[:1] == ["-m"] else 1
    return place.launch("python", words, target=tuple(rest[:length]), arguments=tuple(rest[length:]))


def _make_launch(kind: str, words: list[str], following: list[str], place: _Place) -> Launch:
    options, target = _split_launcher(following, place)
    length = 2 if "m" in options or "module" in options else 1
    if length == 2 and target:
        target = ["-m", *target]
    return place.launch(
        kind,
        words,
        options=options,
        target=tuple(target[:length]),
        arguments=tuple(target[length:]),
        line=_line_at(place, len(following)) or place.command.line,
    )


def _line_at(place: _Place, left: int) -> int | None:
    """The line of the word after which `left` words follow."""
    index = len(place.lines) - left - 1
    return place.lines[index] if 0 <= index < len(place.lines) else None


def _split_launcher(following: Sequence[str], place: _Place) -> tuple[dict[str, LaunchOption], list[str]]:
    """The launcher's own options, and the script with its arguments."""
    options: dict[str, LaunchOption] = {}
    rest = list(following)
    while rest and rest[0].startswith("-") and rest[0] != "-":
        line = _line_at(place, len(rest) - 1) or place.command.line
        word = rest.pop(0)
        if word == "--":
            break
        name, equals, value = word.lstrip("-").partition("=")
        name = name.replace("_", "-")
        if not equals and name not in SWITCHES and rest and not (rest[0].startswith("--") and len(rest[0]) > 2):
            value = rest.pop(0)
        options[name] = LaunchOption(value=value, line=line, word=word.partition("=")[0])
    return options, rest
