"""For the training script: has somebody said "stop soon"?"""

from __future__ import annotations

import os


def notice_given() -> bool:
    """A look for a file, about a microsecond. Ranks may see it at different steps: agree before you act."""
    path = flag()
    return path is not None and flag_is_up(path)


def flag() -> str | None:
    """The agent's, or that of a script by `render --plain`; None where nobody gives notice this way."""
    folder = os.environ.get("ECHELON_NODE_DIR") or os.environ.get("JOB_STATE")
    return f"{folder}/notice" if folder else None


def flag_is_up(path: str) -> bool:
    return os.access(path, os.F_OK)  # pathlib costs ten times as much
