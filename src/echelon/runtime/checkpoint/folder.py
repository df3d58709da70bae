"""The folder that checkpoints go to: where it is, whose it is, and made ready for a start."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from echelon.errors import EnvironmentProblem
from echelon.run_dir import RunDir
from echelon.runtime.checkpoint import lock
from echelon.runtime.checkpoint.fence import Standing
from echelon.runtime.checkpoint.writer import sweep


def folder_of(asked: str | os.PathLike[str] | None, standing: Standing) -> Path:
    if asked is not None:
        return Path(asked).absolute()
    return RunDir(standing.run).checkpoints if standing.run is not None else Path("checkpoints").absolute()


def prepared(asked: str | os.PathLike[str] | None, standing: Standing) -> dict[str, Any]:
    """On rank 0: the folder is there and ours, and free of what was never finished. Raises EnvironmentProblem.

    The token that all ranks are told is part of the names of temporary folders: no two starts share one.
    """
    folder = folder_of(asked, standing)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if standing.run is None:
            lock.take(folder)
    except OSError as error:
        raise EnvironmentProblem(
            f"cannot write to {folder}", origin="echelon.Checkpoint", why=error.strerror or str(error)
        ) from error
    sweep(folder)
    return {"folder": str(folder), "token": os.urandom(4).hex()}
