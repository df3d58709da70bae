"""The flags of echelon for modules, virtual environments, conda, containers and variables."""

from __future__ import annotations

import re

from echelon.config.parse import TASK_VARIABLES
from echelon.job import looks_secret
from echelon.lint.launches import Launch
from echelon.lint.migrate.program import CONTAINERS, shown, variables_before, wrapper_words
from echelon.lint.migrate.typed import OF_THE_JOB, UnclearError, Words, plain_text
from echelon.lint.model import names
from echelon.lint.script import JobScript
from echelon.lint.syntax import Assignment, Command
from echelon.lint.values import readable, unknown_names
from echelon.placement import RANK_VARIABLES

RENDEZVOUS = re.compile(
    r"(?i).*(MASTER|RDZV|RDV|NODE_?RANK|WORLD_?SIZE|NNODES|NUM_NODES|NODE_?LIST|HOST_?NAMES|HEAD_?NODE|MAIN_PROCESS|NPROC|"
    r"GPUS_PER_NODE|PROCS_PER_NODE|NUM_GPUS|NUM_PROCESSES).*|.*_?PORT|LAUNCHER\w*|CMD\w*|LAUNCH_CMD"
)
"""Variables that echelon makes superfluous."""
SHELL_FILES = re.compile(r"(bashrc|profile|conda\.sh|mamba\.sh|/etc/|modules?\.sh)")
INNER = names("module ml source . conda mamba micromamba cd")
UNLOADS = names("unload rm del swap switch restore")
QUERIES = names("list avail spider show whatis help keyword purge unuse reset save av")
PATHS = names(
    "PATH LD_LIBRARY_PATH PYTHONPATH CPATH LIBRARY_PATH MANPATH CUDA_HOME CONDA_PREFIX VIRTUAL_ENV LD_PRELOAD"
)
"""Variables that modules and environments set on the node."""
OWN = frozenset({"OMP_NUM_THREADS", "SRUN_CPUS_PER_TASK", "CUDA_VISIBLE_DEVICES"})
"""Variables that echelon sets on each node if the user does not."""


def add_environment(words: Words, script: JobScript, launch: Launch) -> None:
    """Raises UnclearError if the ranks run in a container that is not known."""
    for index, command, expanded in script.commands:
        if index < launch.index and command.scope.function is None:
            _add_command(words, command, expanded)
    for index, statement in _exported(script, launch).values():
        _add_variable(words, script, statement, index)
    for one in launch.command.prefix:
        _add_variable(words, script, one, launch.index)
    for name, value in variables_before(launch):
        _add_setting(words, name, value, launch.command.line)
    _note_inner(words, launch)
    _add_container(words, launch)


def _exported(script: JobScript, launch: Launch) -> dict[str, tuple[int, Assignment]]:
    """The last assignment of each variable that the ranks see."""
    names = script.shell.exported
    return {
        one.name: (index, one)
        for index, one in enumerate(script.shell.statements[: launch.index])
        if isinstance(one, Assignment) and (one.exported or one.name in names) and one.scope.function is None
    }


def _note_inner(words: Words, launch: Launch) -> None:
    """What else a string for bash -c contains: variables, set-up commands, a folder."""
    for one in launch.inner.statements if launch.inner is not None else ():
        if isinstance(one, Assignment):
            if not _is_superfluous(one.name):
                words.leave_out(f"{one.name}={one.value.raw if one.value else ''} in bash -c", launch.command.line)
        elif one.name in INNER:
            words.leave_out(f"{' '.join(word.raw for word in one.words)} in bash -c", launch.command.line)


def _add_command(words: Words, command: Command, expanded: tuple[str, ...]) -> None:
    rest = expanded[1:]
    if command.scope.conditional and command.name in INNER:
        words.leave_out(f"{_source(command)}, which the script runs under a condition", command.line)
        return
    match command.name:
        case "module" | "ml":
            _add_modules(words, command, rest)
        case "source" | ".":
            _add_source(words, command, rest)
        case "conda" | "mamba" | "micromamba":
            if rest[:1] == ("activate",) and len(rest) > 1:
                _add_typed(words, "--conda", rest[1], command)
            elif rest[:1] == ("activate",):
                _add_typed(words, "--conda", "base", command)
        case "ulimit":
            words.flag("--setup", plain_text(_source(command)))
        case "cd":
            if rest and not re.search("PBS_O_WORKDIR|SLURM_SUBMIT_DIR", rest[0]):
                words.leave_out(f"cd {readable(rest[0])}: type the command in that folder", command.line)


def _add_modules(words: Words, command: Command, rest: tuple[str, ...]) -> None:
    verb = rest[0] if rest else ""
    if verb == "use":
        words.leave_out("module use: set MODULEPATH in the shell that you submit from", command.line)
    elif verb in UNLOADS or verb.startswith("-") or any(word.startswith("-") for word in rest[1:]):
        words.leave_out(_source(command), command.line)
    elif verb in ("load", "add") or (command.name == "ml" and verb not in QUERIES):
        for name in rest[1:] if verb in ("load", "add") else rest:
            _add_typed(words, "--modules", name, command)


def _source(command: Command) -> str:
    return " ".join(word.raw for word in command.words)


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
    typed = words.typed(value)
    if typed is None:
        words.leave_out(_source(command), command.line)
        return
    if flag == "--conda" and "/" not in value:
        _source_installation(words)
    if flag in ("--venv", "--conda"):
        _remove_environment(words, "a run has one environment")
    words.words += [flag, typed]


def _source_installation(words: Words) -> None:
    """`source FOLDER/bin/activate` before `conda activate NAME` chooses the conda that knows the name."""
    position = words.words.index("--conda") if "--conda" in words.words else None
    if (
        position is not None
        and "/" in words.words[position + 1]
        and not words.words[position + 1].startswith(('"', "'"))
    ):
        words.words[position : position + 2] = ["--setup", f"'source {words.words[position + 1]}/bin/activate'"]


def _remove_environment(words: Words, reason: str) -> None:
    position = next((i for i, word in enumerate(words.words) if word in ("--venv", "--conda")), None)
    if position is not None:
        words.leave_out(f"{' '.join(words.words[position : position + 2])}: {reason}")
        del words.words[position : position + 2]


def _add_variable(words: Words, script: JobScript, one: Assignment, index: int) -> None:
    if one.value is None or one.items is not None:
        return
    if (one.scope.conditional or one.append) and not _is_superfluous(one.name):
        words.leave_out(f"export {one.name}={one.value.raw}", one.line)
        return
    _add_setting(words, one.name, script.values.text(one.value, index), one.line, one.value.raw)


def _is_superfluous(name: str) -> bool:
    return name in RANK_VARIABLES | TASK_VARIABLES | OWN or RENDEZVOUS.fullmatch(name) is not None


def _add_setting(words: Words, name: str, value: str, line: int, raw: str = "") -> None:
    """A value that depends on the modules, such as that of PATH, is computed on the node."""
    if _is_superfluous(name) and not (name == "OMP_NUM_THREADS" and value.isdigit()):
        return
    if looks_secret(name):
        words.leave_out(f"{name}: export it in the shell that you submit from", line)
        return
    found = unknown_names(value)
    if name in found or any(one in PATHS for one in found):
        _add_on_node(words, name, value, line)
        return
    typed = words.typed(value)
    if typed is None:
        words.leave_out(f"export {name}={raw or value}", line)
    else:
        words.words += ["--set", f"{name}={typed}"]


def _add_on_node(words: Words, name: str, value: str, line: int) -> None:
    known = all(re.fullmatch(r"\w+", one) and not OF_THE_JOB.match(one) for one in unknown_names(value))
    assigned = [one for one in unknown_names(value) if one != name and words.assigns(one)]
    text = f"export {name}={readable(value)}"
    if known and not assigned and re.fullmatch(r"[\w=:/.,${}+ -]+", text) and " " not in readable(value):
        words.flag("--setup", text)
    else:
        words.leave_out(text, line)


def _add_container(words: Words, launch: Launch) -> None:
    options = launch.starter_options
    if "container-image" in options:
        _remove_environment(words, "the image has its own Python")
        _add_option(words, "--image", options["container-image"], launch)
        words.flag("--env", "pyxis")
        for mount in filter(None, options.get("container-mounts", "").split(",")):
            _add_option(words, "--mount", mount, launch)
        return
    wrapper = wrapper_words(launch)
    if wrapper and CONTAINERS.search(wrapper[0].rpartition("/")[2]):
        _add_apptainer(words, launch, wrapper)


def _add_apptainer(words: Words, launch: Launch, wrapper: list[str]) -> None:
    """`apptainer exec --nv --bind A:B image.sif`. Raises UnclearError for a form that is not known."""
    image = next((one for one in wrapper if one.endswith(".sif")), "")
    if wrapper[-1] != image or wrapper[1:2] != ["exec"]:
        reason = "does not end with the name of a .sif file"
        raise UnclearError(f"line {launch.command.line}: the command of the container, {shown(wrapper)}, {reason}")
    _remove_environment(words, "the image has its own Python")
    _add_option(words, "--image", image, launch)
    options = wrapper[2:-1]
    while options:
        word = options.pop(0)
        name, equals, value = word.partition("=")
        if name in ("-B", "--bind"):
            for mount in (value if equals or not options else options.pop(0)).split(","):
                _add_option(words, "--mount", mount if ":" in mount else f"{mount}:{mount}", launch)
        elif name not in ("--nv", "--rocm"):
            words.leave_out(f"{word} of {wrapper[0]}", launch.command.line)


def _add_option(words: Words, flag: str, value: str, launch: Launch) -> None:
    typed = words.typed(value)
    if typed is None and flag == "--image":
        raise UnclearError(
            f"line {launch.command.line}: the container image {plain_text(value)} is known only in the job"
        )
    if typed is None:
        words.leave_out(f"{flag} {readable(value)}", launch.command.line)
    else:
        words.words += [flag, typed]
