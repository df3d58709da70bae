"""The node-local folder that an agent shares with its ranks: the notice flag, progress, last words, stacks."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import struct
import tempfile
from pathlib import Path
from typing import Any

from echelon.node.messages import ErrorRecord

PREFIX = "echelon-"
LOCK = "lock"
PROGRESS = struct.Struct("qq")  # step and committed step, -1 for none yet
NOTHING_YET = PROGRESS.pack(-1, -1)


class NodeDir:
    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, run_id: str, folder: Path | None = None) -> NodeDir:
        return cls.claimed(Path(tempfile.mkdtemp(prefix=f"{PREFIX}{run_id}-", dir=folder)))

    @classmethod
    def claimed(cls, path: Path) -> NodeDir:
        """This process's, and locked for as long as it lives. What killed ones left behind beside it is removed."""
        fd = os.open(path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(fd, fcntl.LOCK_EX)
        remove_abandoned(path.parent)
        return cls(path)

    @property
    def notice(self) -> Path:
        return self.path / "notice"

    def progress(self, rank: int) -> Path:
        return self.path / f"progress-{rank}"

    def error(self, rank: int) -> Path:
        return self.path / f"error-{rank}.json"

    def stacks(self, rank: int) -> Path:
        return self.path / f"stacks-{rank}"

    def outlives_term(self, rank: int) -> Path:
        """Left by the library in a rank that passes TERM over, so that it can save when its scheduler ends the job."""
        return self.path / f"outlives-term-{rank}"

    def prepare(self, rank: int) -> None:
        """A clean slate for a rank of a new generation."""
        self.error(rank).unlink(missing_ok=True)
        self.stacks(rank).unlink(missing_ok=True)
        self.outlives_term(rank).unlink(missing_ok=True)
        self.progress(rank).write_bytes(NOTHING_YET)

    def read_progress(self, rank: int) -> tuple[int | None, int | None]:
        try:
            step, committed = PROGRESS.unpack(self.progress(rank).read_bytes())
        except (OSError, struct.error):
            return None, None
        return (None if step < 0 else step), (None if committed < 0 else committed)

    def read_error(self, rank: int) -> ErrorRecord | None:
        try:
            return parse_error(json.loads(self.error(rank).read_bytes()))
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)


def remove_abandoned(folder: Path) -> None:
    """Folders of ours whose agents are gone: a scheduler that kills a whole job at once leaves nobody to tidy up."""
    for path in folder.glob(f"{PREFIX}*"):
        try:
            if path.is_symlink() or path.stat().st_uid != os.geteuid():
                continue
            fd = os.open(path / LOCK, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            continue  # not one of ours, or gone by now
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path, ignore_errors=True)
        except OSError:
            pass  # somebody lives here
        finally:
            os.close(fd)


def parse_error(data: dict[str, Any]) -> ErrorRecord:
    """Our own record, or the one that torch's @record decorator leaves. Raises KeyError and TypeError."""
    if "type" in data:
        return ErrorRecord(
            time=float(data["time"]),
            type=str(data["type"]),
            message=str(data["message"]),
            traceback=str(data["traceback"]),
        )
    inner = data["message"]
    kind, _, message = str(inner["message"]).partition(": ")
    extra = inner["extraInfo"]
    return ErrorRecord(time=float(extra["timestamp"]), type=kind, message=message, traceback=str(extra["py_callstack"]))
