"""The node-local folder that an agent shares with its ranks: notice flag, progress, step times, errors, stacks."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import stat
import struct
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from echelon.run_dir import RUN_ID
from echelon.train.progress import HEADER_BYTES, PAGE_BYTES, SLOT_CELLS
from echelon.untrusted import parse_json, read_end, read_regular
from echelon.wire.reports import ErrorRecord

if TYPE_CHECKING:
    from echelon.diagnosis.pace import StepMark

PREFIX = "echelon-"
NAME = re.compile(rf"{PREFIX}{RUN_ID}-[a-z0-9_]{{8}}")
"""The full name of a node folder: run id and the random part that mkdtemp adds."""
LOCK, NEW_LOCK = "lock", "lock.new"
MARK = b"echelon node folder\n"
"""The content of the lock file. A folder without it was not made by an agent and is never removed."""
MAX_ERROR_BYTES = 4 << 20
MAX_FATAL_BYTES = 1 << 18
FATAL_HEAD, CURRENT_THREAD = "Fatal Python error: ", "Current thread "
"""Words of faulthandler, before the other threads and before the one that crashed."""
OWN_FRAMES = re.compile(r'^ *File "[^"]*echelon/agent/run_script\.py", line \d+ in ', re.MULTILINE)
"""The call of the script, and below it only frames of echelon."""
PROGRESS = struct.Struct("qq")  # step and committed step, -1 for none yet
NO_PROGRESS = PROGRESS.pack(-1, -1) + bytes(PAGE_BYTES - HEADER_BYTES)
"""The times of the last steps follow, see `train/progress`."""
RESTORED = re.compile(r"([0-9]{1,18}) ([A-Za-z0-9._-]{1,64})")
MAX_RESTORED_BYTES = 100
SLOT = struct.Struct(f"{SLOT_CELLS}q")


class NodeDir:
    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, run_id: str, folder: Path | None = None) -> NodeDir:
        return cls.lock_folder(Path(tempfile.mkdtemp(prefix=f"{PREFIX}{run_id}-", dir=folder)))

    @classmethod
    def lock_folder(cls, path: Path) -> NodeDir:
        """Locks the folder for the life of this process, then removes folders beside it whose agents were killed.

        The lock file gets its final name only after it is locked. Other agents that start at the same moment see
        either no lock file or a held lock, so they do not remove the folder.
        """
        fd = os.open(path / NEW_LOCK, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        fcntl.flock(fd, fcntl.LOCK_EX)
        os.write(fd, MARK)
        (path / NEW_LOCK).rename(path / LOCK)
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

    def fatal(self, rank: int) -> Path:
        """The Python stack that a rank writes when it crashes in native code."""
        return self.path / f"fatal-{rank}"

    def worker_server(self, rank: int) -> Path:
        """The socket of torch's worker server in a rank."""
        return self.path / f"server-{rank}"

    def ignores_term(self, rank: int) -> Path:
        """Created by the library in a rank that ignores SIGTERM in order to save when the scheduler ends the job."""
        return self.path / f"outlives-term-{rank}"

    def reads_notice(self, rank: int) -> Path:
        """Created by the library in a rank that reads the notice flag."""
        return self.path / f"listens-{rank}"

    def restored(self, rank: int) -> Path:
        """Written by the library in a rank that has loaded a checkpoint: its step and its name."""
        return self.path / f"restored-{rank}"

    def prepare(self, rank: int) -> None:
        """Removes the files that a rank of the last generation left, and resets its progress."""
        self.error(rank).unlink(missing_ok=True)
        self.stacks(rank).unlink(missing_ok=True)
        self.fatal(rank).unlink(missing_ok=True)
        self.worker_server(rank).unlink(missing_ok=True)
        self.ignores_term(rank).unlink(missing_ok=True)
        self.reads_notice(rank).unlink(missing_ok=True)
        self.restored(rank).unlink(missing_ok=True)
        self.progress(rank).write_bytes(NO_PROGRESS)

    def read_progress(self, rank: int) -> tuple[int | None, int | None]:
        try:
            page = self.progress(rank).read_bytes()
            step, committed = PROGRESS.unpack(page[:HEADER_BYTES] if len(page) == PAGE_BYTES else page)
        except (OSError, struct.error):
            return None, None
        return (None if step < 0 else step), (None if committed < 0 else committed)

    def read_restored(self, rank: int) -> tuple[int | None, str]:
        """The step and the name of the checkpoint from which the rank started; None and empty if it loaded none."""
        try:
            text = read_regular(self.restored(rank), MAX_RESTORED_BYTES).decode(errors="replace")
        except (OSError, ValueError):
            return None, ""
        found = RESTORED.fullmatch(text)
        return (None, "") if found is None else (int(found[1]), found[2])

    def read_step_times(self, rank: int) -> bytes:
        """The whole page of progress; empty if it cannot be read."""
        try:
            return read_regular(self.progress(rank), PAGE_BYTES)
        except (OSError, ValueError):
            return b""

    def read_error(self, rank: int) -> ErrorRecord | None:
        try:
            return parse_error(parse_json(read_regular(self.error(rank), MAX_ERROR_BYTES)))
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None

    def read_fatal_stack(self, rank: int) -> str:
        """What faulthandler wrote last: its first line, and the thread that crashed. Empty without a crash."""
        try:
            text = read_end(self.fatal(rank), MAX_FATAL_BYTES).decode(errors="replace")
        except OSError:
            return ""
        _, mark, crash = text.rpartition(FATAL_HEAD)  # a forked child of the rank may have crashed before
        _, thread, stack = crash.partition(CURRENT_THREAD)
        head = crash.partition("\n")[0]
        return f"{mark}{head}\n\n{thread}{OWN_FRAMES.split(stack)[0]}" if mark else ""

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)


def remove_abandoned(folder: Path) -> None:
    """Removes this user's node folders whose agents are gone, for example after a scheduler killed a whole job."""
    for path in folder.glob(f"{PREFIX}*"):
        fd = _open_lock(path) if NAME.fullmatch(path.name) else None
        if fd is None:
            continue
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path, ignore_errors=True)
        except OSError:
            pass  # its agent is alive
        finally:
            os.close(fd)


def _open_lock(path: Path) -> int | None:
    """The lock file of a node folder of this user; None for any other folder, file or link."""
    try:
        if not stat.S_ISDIR(path.lstat().st_mode) or path.lstat().st_uid != os.geteuid():
            return None
        fd = os.open(path / LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    file = os.fstat(fd)
    if stat.S_ISREG(file.st_mode) and file.st_uid == os.geteuid() and os.pread(fd, len(MARK) + 1, 0) == MARK:
        return fd
    os.close(fd)
    return None


def parse_error(data: dict[str, Any]) -> ErrorRecord:
    """Parses echelon's error record, or that of torch's @record decorator. Raises KeyError and TypeError."""
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


def parse_step_marks(page: bytes) -> list[StepMark]:
    """The last steps, oldest first. Empty for a page of another form. Leaves out steps that are being written."""
    from echelon.diagnosis.pace import StepMark  # only here: the starter needs this module, and its start is timed

    if len(page) != PAGE_BYTES:
        return []
    slots = SLOT.iter_unpack(page[HEADER_BYTES:])
    marks = [StepMark(step=step, began=began, ended=ended, input_ns=wait) for step, began, ended, wait in slots]
    return sorted(filter(_is_plausible, marks), key=lambda mark: mark.step)


def _is_plausible(mark: StepMark) -> bool:
    return mark.step >= 0 and 0 < mark.began < mark.ended and mark.input_ns <= mark.ended - mark.began
