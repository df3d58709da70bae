"""The folder that checkpoints go to: where it is, whose it is, and made ready for a start."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

from echelon.errors import EnvironmentProblem
from echelon.run_dir import RunDir
from echelon.runtime.checkpoint import lock, probe
from echelon.runtime.checkpoint.fence import Standing
from echelon.runtime.checkpoint.writer import sweep


def folder_of(asked: str | os.PathLike[str] | None, standing: Standing) -> Path:
    if asked is not None:
        return Path(asked).absolute()
    return RunDir(standing.run).checkpoints if standing.run is not None else Path("checkpoints").absolute()


def is_the_runs_own(folder: Path, standing: Standing) -> bool:
    """Then nobody else writes there; any other folder may have been given to several runs."""
    return standing.run is not None and folder.resolve().is_relative_to(standing.run.resolve())


def prepared(asked: str | os.PathLike[str] | None, standing: Standing, timeout: timedelta) -> dict[str, Any]:
    """On rank 0: the folder is there and ours, and free of what was never finished; and there is a probe in it for
    the other ranks to look for. Raises EnvironmentProblem.

    The token that all ranks are told is part of the names of temporary folders: no two starts share one.
    """
    folder, token = folder_of(asked, standing), os.urandom(4).hex()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not is_the_runs_own(folder, standing):
            lock.take(folder, run=standing.run_id, patience=min(lock.PATIENCE, timeout))
        sweep(folder)
        probed = probe.leave(folder, token)
    except OSError as error:
        raise EnvironmentProblem(
            f"cannot write to {folder}", origin="echelon.Checkpoint", why=error.strerror or str(error)
        ) from error
    return {"folder": str(folder), "token": token, "probed": probed}
