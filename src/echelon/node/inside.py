"""A command taken into the job's environment, and what a node says that cannot be."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from echelon.environments import SHELL
from echelon.job import Job
from echelon.node.messages import Trouble
from echelon.run_dir import RunDir

MOST_LINES, MOST_BYTES = 8, 2000
SIGNALS = range(129, 193)  # what a shell says of a command that was ended by one; apptainer's own last word is 255
OF_PYXIS = "pyxis: "
ERROR, HINT = "error: ", "  try   "


def inside(job: Job, run_path: Path, argv: Sequence[str], words: Path | None = None) -> list[str]:
    """By a shell of its own name: the run's folder may lie where nothing may be executed. Whoever reads `words`
    afterwards finds out why it could not be."""
    if not job.is_enclosed:
        return list(argv)
    return [SHELL, str(RunDir(run_path).node_script), str(words or run_path / "node.words"), *argv]


def last_lines(output: Path) -> str:
    """Of the job's own output, which is where a container runtime complains."""
    try:
        with output.open("rb") as file:
            file.seek(max(0, output.stat().st_size - MOST_BYTES))
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def refusal_of(environment: str, code: int, words: str | None, output: str) -> Trouble | None:
    """What it means that node.sh ended with this code and left these words; none where it is not to blame. Pure.

    It leaves none once the command has begun, and what is ended by a signal says nothing of the environment.
    """
    lines = [line for line in (words or "").splitlines() if line.strip()]
    found = [number for number, line in enumerate(lines) if line.startswith(ERROR)]
    what = f"the environment ({environment}) could not be entered"
    if found:
        error, hint = lines[found[-1]], "".join(lines[found[-1] + 1 :][:1])
        why = [error.removeprefix(ERROR), *lines[: found[0]][-MOST_LINES:]]
        return Trouble(what=what, why="\n".join(why), hint=hint.removeprefix(HINT))
    if words is None and environment == "pyxis" and OF_PYXIS in output:
        words = ""  # srun itself makes the container, before node.sh could say a word
    if words is None or code <= 0 or code in SIGNALS:
        return None
    why = [f"what leads into it ended with exit code {code}", *(words + output).strip().splitlines()[-MOST_LINES:]]
    return Trouble(what=what, why="\n".join(why), hint="job.out in the run's folder has what it said")
