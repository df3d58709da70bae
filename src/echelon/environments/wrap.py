"""Wraps a command in the job's environment, and reads why a node could not enter it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from echelon.environments import SHELL
from echelon.job import Job
from echelon.run_dir import RunDir
from echelon.wire.messages import FatalNodeProblem

MOST_LINES, MOST_BYTES = 8, 2000
SIGNALS = range(129, 193)  # exit codes of a shell for a command that a signal ended; apptainer's own errors are 255
PYXIS_PREFIX = "pyxis: "
NO_SHELL = f"execve(): {SHELL}: No such file or directory"
STATISTICS = re.compile(r"(^|pyxis: +)(created \d+ |Parallel unsquashfs: |\d+ inodes \(|\[INFO\] |$)")
"""Lines that enroot prints after an error and that do not explain it; pyxis passes them on."""
ERROR, HINT = "error: ", "  try   "


def wrap_command(job: Job, run_path: Path, argv: Sequence[str], words: Path | None = None) -> list[str]:
    """The command that runs `argv` in the job's environment. The file `words` gets the reason of a failure.

    It starts with a shell because the run directory may be mounted noexec.
    """
    if not job.is_enclosed:
        return list(argv)
    return [SHELL, str(RunDir(run_path).node_script), str(words or run_path / "node.words"), *argv]


def output_tail(output: Path) -> str:
    """The end of the job's output, which has the errors of container runtimes."""
    try:
        with output.open("rb") as file:
            file.seek(max(0, output.stat().st_size - MOST_BYTES))
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def entry_problem(environment: str, code: int, words: str | None, output: str) -> FatalNodeProblem | None:
    """Why node.sh could not enter the environment; None if the environment did not fail. Pure.

    `words` is the content of its file, which node.sh removes before it starts the command. A signal that ended node.sh
    is not a failure of the environment.
    """
    lines = [line for line in (words or "").splitlines() if line.strip()]
    found = [number for number, line in enumerate(lines) if line.startswith(ERROR)]
    what = f"the environment ({environment}) could not be entered"
    if found:
        error, hint = lines[found[-1]], "".join(lines[found[-1] + 1 :][:1])
        why = [error.removeprefix(ERROR), *lines[: found[0]][-MOST_LINES:]]
        return FatalNodeProblem(what=what, why="\n".join(why), hint=hint.removeprefix(HINT))
    if words is None and environment == "pyxis" and NO_SHELL in output:
        no_shell = f"the image has no {SHELL}\n{_last_line(output, NO_SHELL)}"
        return FatalNodeProblem(what=what, why=no_shell, hint="another --image, with bash and Python 3.10 in it")
    if words is None and environment == "pyxis" and PYXIS_PREFIX in output:
        words = ""  # srun creates the container before it starts node.sh
    if words is None or code <= 0 or code in SIGNALS:
        return None
    telling = [line for line in (words + output).splitlines() if not STATISTICS.search(line.rstrip())]
    why = [f"the command that enters it failed with exit code {code}", *telling[-MOST_LINES:]]
    return FatalNodeProblem(what=what, why="\n".join(why), hint="job.out in the run's folder has its output")


def _last_line(output: str, text: str) -> str:
    return [line for line in output.splitlines() if text in line][-1].strip()
