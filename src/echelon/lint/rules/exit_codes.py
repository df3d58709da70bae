"""Rules about failures that nothing reports."""

from __future__ import annotations

import re
from collections.abc import Iterator

from echelon.lint.launches import Launch
from echelon.lint.model import Hit, Rule, Severity, names
from echelon.lint.rules._common import HEAD, SRUN, runs_program
from echelon.lint.script import JobScript
from echelon.lint.syntax import Command

HARMLESS_SOURCE = re.compile(r"(bashrc|profile|conda\.sh|mamba\.sh|modules?\.sh|init/|/etc/|bash_aliases|lmod)")
LOADS = names("load add restore swap switch")
QUERIES = names("list avail spider show whatis help keyword purge use unuse unload rm reset save")
SUBMIT_FOLDERS = re.compile(r"PBS_O_WORKDIR|SLURM_SUBMIT_DIR|PBS_JOBFS|^~$|^\$HOME$|^-$|^\.\.?$")


def find_lost_exit_codes(script: JobScript) -> Iterator[Hit]:
    """Not for commands that a document shows to be typed: they have no job whose exit code could be wrong."""
    if not script.is_whole:
        return
    yield from _find_pipes(script)
    yield from _bare_waits(script)


def _find_pipes(script: JobScript) -> Iterator[Hit]:
    if "pipefail" in script.set_options or script.mentions("PIPESTATUS"):
        return
    for launch in script.launches:
        command = launch.command
        if command.pipe_to and runs_program(launch):
            last = command.pipe_to[-1].name or "the last command"
            yield Hit(
                line=command.line,
                sentence=f"the exit code of the pipe is that of {last}",
                fix=_pipe_fix(script, launch),
            )
            return


def _pipe_fix(script: JobScript, launch: Launch) -> str:
    """Without `set -e`, pipefail alone is not enough if another command follows: the script ends with its exit code."""
    stages = launch.command.pipe_to
    after = launch.index + len(stages)
    follows = any(index > after and one.scope.function is None for index, one, _ in script.commands)
    if not follows or "errexit" in script.set_options or launch.command.scope.tested:
        return "set -o pipefail"
    last = " ".join(word.raw for word in stages[-1].words)
    return f"set -o pipefail\n... | {last} || exit"


def _bare_waits(script: JobScript) -> Iterator[Hit]:
    waits = [(index, one) for index, one, _ in script.commands if one.name == "wait"]
    if not waits or any(len(one.words) > 1 for _, one in waits):
        return
    behind = [one for one in script.launches if one.command.scope.background and runs_program(one)]
    exits = [index for index, one, words in script.commands if one.name == "exit" and words[1:] == ("0",)]
    for index, wait in waits[-1:]:
        if any(later > index for later in exits):
            continue  # the code is chosen on purpose
        earlier = [one for one in behind if one.index < index and one.command.scope.function == wait.scope.function]
        if earlier:
            yield Hit(
                line=wait.line,
                sentence="`wait` without a process id returns 0 even if a command failed",
                fix='... & pid=$!\nwait "$pid"',
            )


def find_ignored_setup(script: JobScript) -> Iterator[Hit]:
    """The first set-up command of a script that launches something later."""
    if "errexit" in script.set_options or not script.is_whole:
        return
    last = max((one.index for one in script.launches if runs_program(one)), default=-1)
    for index, command, words in script.commands:
        scope = command.scope
        if index >= last or scope.conditional or scope.tested or not _is_setup(command, words):
            continue
        shown = re.sub(r"\s+#.*", "", script.line(command.line))
        yield Hit(
            line=command.line,
            sentence="the job continues if this set-up command fails",
            fix=f"{shown} || exit 1",
        )
        return


def _is_setup(command: Command, words: tuple[str, ...]) -> bool:
    rest = words[1:]
    match command.name:
        case "module":
            return rest[:1] != () and rest[0] in LOADS
        case "ml":
            return rest[:1] != () and rest[0] not in QUERIES and not rest[0].startswith("-")
        case "source" | ".":
            return bool(rest) and not HARMLESS_SOURCE.search(rest[0])
        case "conda" | "mamba" | "micromamba":
            return rest[:1] == ("activate",)
        case "cd":
            return bool(rest) and not SUBMIT_FOLDERS.search(command.words[1].raw.strip('"'))
    return False


RULES = (
    Rule(
        id="exit-code-lost",
        severity=Severity.ERROR,
        check=find_lost_exit_codes,
        reason="The exit code of the training is replaced by that of tee or wait.",
        practice="A failed job is COMPLETED with exit code 0, and jobs that depend on it start.",
        bad=f"{HEAD}{SRUN} python train.py | tee train.log\n",
        good=f"{HEAD}set -o pipefail\n{SRUN} python train.py | tee train.log\n",
    ),
    Rule(
        id="setup-failure-ignored",
        severity=Severity.WARNING,
        check=find_ignored_setup,
        reason="Without `set -e` or `|| exit`, bash continues after a command that fails.",
        practice="The training starts with another Python, without the module, or in the wrong folder.",
        bad=f"{HEAD}source .venv/bin/activate\n{SRUN} python train.py\n",
        good=f"{HEAD}source .venv/bin/activate || exit 1\n{SRUN} python train.py\n",
    ),
)
