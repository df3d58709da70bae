"""Do all ranks see one folder? Asked at the beginning: files on a disk of each host's own never make a checkpoint."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from echelon.errors import EnvironmentProblem
from echelon.runtime.checkpoint import names
from echelon.runtime.checkpoint.council import NAMED_AT_MOST, Council, Word
from echelon.runtime.meeting import polls

PATIENCE = timedelta(seconds=30)
"""A network file system may show a host what another one made only after a while."""


def leave(folder: Path, token: str) -> bool:
    """On rank 0: something to look for; False on a full disk, which must not keep training from going on.

    Raises OSError.
    """
    try:
        (folder / names.probe(token)).mkdir(mode=0o700)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        return False
    return True


def check(folder: Path, token: str, council: Council, timeout: timedelta) -> None:
    """On all ranks, after rank 0 has left it. Raises EnvironmentProblem on all of them where one does not see it."""
    seen = sees(folder, token, min(PATIENCE, timeout / 2))
    word = {"seen": seen, "host": socket.gethostname()}
    outcome = council.settle("look for the folder", word, lambda words: _counted(folder, token, words), timeout)
    if outcome["blind"]:
        raise _not_shared(folder, outcome["blind"], str(outcome["host"]))


def sees(folder: Path, token: str, patience: timedelta) -> bool:
    return any(names.probe(token) in _listed(folder) for _ in polls(patience))


def _listed(folder: Path) -> list[str]:
    """Opening a folder makes NFS ask its server, which a look at a name in it may not."""
    try:
        return os.listdir(folder)  # noqa: PTH208  names are all we want
    except OSError:
        return []


def _counted(folder: Path, token: str, words: Sequence[Word]) -> Word:
    with contextlib.suppress(OSError):  # it would be swept at the next start
        (folder / names.probe(token)).rmdir()
    blind = [f"rank {rank} on {word['host']}" for rank, word in enumerate(words) if not word["seen"]]
    return {"blind": blind, "host": words[0]["host"]}


def _not_shared(folder: Path, blind: Sequence[str], host: str) -> EnvironmentProblem:
    more = f" and {len(blind) - NAMED_AT_MOST} more" if len(blind) > NAMED_AT_MOST else ""
    return EnvironmentProblem(
        f"the ranks do not share {folder}",
        origin="echelon.Checkpoint",
        why=f"what rank 0 on {host} made in it is not seen by {', '.join(blind[:NAMED_AT_MOST])}{more}",
        hint="give Checkpoint a folder that all hosts see: Checkpoint('/shared/checkpoints', ...)",
    )
