"""The flags of echelon for modules, virtual environments, conda, containers and variables."""

from __future__ import annotations

import re
from itertools import pairwise

from echelon.config.parse import TASK_VARIABLES
from echelon.job import looks_secret
from echelon.lint.launches import Launch
from echelon.lint.migrate.typed import Words, as_typed
from echelon.lint.script import JobScript
from echelon.lint.syntax import Assignment, Command
from echelon.lint.values import readable
from echelon.placement import RANK_VARIABLES

RENDEZVOUS = re.compile(
    r"(?i).*(MASTER|RDZV|RDV|NODE_?RANK|WORLD_?SIZE|NNODES|NUM_NODES|NODE_?LIST|HOST_?NAMES|HEAD_?NODE|MAIN_PROCESS|NPROC|"
    r"GPUS_PER_NODE|PROCS_PER_NODE|NUM_GPUS|NUM_PROCESSES).*|.*_?PORT|LAUNCHER\w*|CMD\w*|LAUNCH_CMD"
)
"""Variables that echelon makes superfluous."""
SHELL_FILES = re.compile(r"(bashrc|profile|conda\.sh|mamba\.sh|/etc/|modules?\.sh)")
OWN = frozenset({"OMP_NUM_THREADS", "SRUN_CPUS_PER_TASK", "CUDA_VISIBLE_DEVICES"})
"""Variables that echelon sets on each node if the user does not."""


def add_environment(words: Words, script: JobScript, launch: Launch) -> None:
    for index, command, expanded in script.commands:
        if index < launch.index and command.scope.function is None:
            _add_command(words, command, expanded)
    for index, statement in enumerate(script.shell.statements):
        if isinstance(statement, Assignment) and statement.exported and index < launch.index:
            _add_variable(words, script, statement, index)
    _add_container(words, script, launch)


def _add_command(words: Words, command: Command, expanded: tuple[str, ...]) -> None:
    rest = expanded[1:]
    match command.name:
        case "module" | "ml":
            names = rest[1:] if rest[:1] in (("load",), ("add",)) else rest if command.name == "ml" else ()
            for name in names:
                _add_typed(words, "--modules", name, command)
            if rest[:1] == ("use",):
                words.leave_out("module use: set MODULEPATH in the shell that you submit from", command.line)
        case "source" | ".":
            _add_source(words, command, rest)
        case "conda" | "mamba" | "micromamba":
            if rest[:1] == ("activate",) and len(rest) > 1:
                _add_typed(words, "--conda", rest[1], command)
        case "cd":
            if rest and not re.search("PBS_O_WORKDIR|SLURM_SUBMIT_DIR", rest[0]):
                words.leave_out(f"cd {readable(rest[0])}: type the command in that folder", command.line)


def _add_source(words: Words, command: Command, rest: tuple[str, ...]) -> None:
    if not rest or SHELL_FILES.search(rest[0]):
        return
    folder = re.fullmatch(r"(.+)/bin/activate", rest[0])
    if rest[0] == "activate" and len(rest) > 1:
        _add_typed(words, "--conda", rest[1], command)
    elif folder is not None and len(rest) == 1 and not re.search("conda|mamba|miniforge", folder[1]):
        _add_typed(words, "--venv", folder[1], command)
    elif folder is not None:
        _add_typed(words, "--conda", rest[1] if len(rest) > 1 else folder[1], command)
    else:
        _add_typed(words, "--setup", f"source {' '.join(word for word in rest if word)}", command)


def _add_typed(words: Words, flag: str, value: str, command: Command) -> None:
    typed = as_typed(value)
    if typed is None:
        words.leave_out(" ".join((command.name, *(word.raw for word in command.words[1:]))), command.line)
    elif flag in ("--venv", "--conda") and {"--venv", "--conda"} & set(words.words):
        position = next(i for i, word in enumerate(words.words) if word in ("--venv", "--conda"))
        words.words[position : position + 2] = [flag, typed]
    else:
        words.words += [flag, typed]


def _add_variable(words: Words, script: JobScript, one: Assignment, index: int) -> None:
    if one.name in RANK_VARIABLES | TASK_VARIABLES | OWN or RENDEZVOUS.fullmatch(one.name) or one.value is None:
        return
    if looks_secret(one.name):
        words.leave_out(f"{one.name}: export it in the shell that you submit from", one.line)
        return
    typed = as_typed(script.values.text(one.value, index))
    if typed is None or one.scope.conditional:
        words.leave_out(f"export {one.name}={one.value.raw}", one.line)
    else:
        words.words += ["--set", f"{one.name}={typed}"]


def _add_container(words: Words, script: JobScript, launch: Launch) -> None:
    options = launch.starter_options
    if "container-image" in options:
        _add_option(words, "--image", options["container-image"], launch)
        words.flag("--env", "pyxis")
        for mount in filter(None, options.get("container-mounts", "").split(",")):
            _add_option(words, "--mount", mount, launch)
        return
    expanded = next((all_words for index, _, all_words in script.commands if index == launch.index), ())
    image = next((word for word in expanded if word.endswith(".sif")), None)
    if image is not None:
        _add_option(words, "--image", image, launch)
        for flag, value in pairwise(expanded):
            if flag in ("-B", "--bind"):
                for mount in value.split(","):
                    _add_option(words, "--mount", mount if ":" in mount else f"{mount}:{mount}", launch)


def _add_option(words: Words, flag: str, value: str, launch: Launch) -> None:
    typed = as_typed(value)
    if typed is None:
        words.leave_out(f"{flag} {readable(value)}", launch.command.line)
    else:
        words.words += [flag, typed]
