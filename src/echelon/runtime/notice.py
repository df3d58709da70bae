"""For the training script: has somebody said "stop soon"?"""

from __future__ import annotations

import os


def notice_given() -> bool:
    """A look at the agent's flag, about a microsecond. Ranks may see it at different steps: agree before you act."""
    folder = os.environ.get("ECHELON_NODE_DIR")
    return folder is not None and flag_is_up(f"{folder}/notice")


def flag_is_up(path: str) -> bool:
    return os.access(path, os.F_OK)  # pathlib costs ten times as much
