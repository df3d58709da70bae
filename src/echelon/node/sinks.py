"""Where the files of an attempt go: into the run directory where it is seen, over the channel where it is not."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Protocol

from echelon.errors import EchelonError
from echelon.node.channel import Channel
from echelon.node.messages import Written, to_wire
from echelon.node.output import Log, LogFile
from echelon.run_dir import AttemptDir, RunDir

BACKLOG_BYTES = 1 << 20
"""With so much unsent, ranks wait with their output, as they would for a slow disk."""
PIECE_BYTES = 1 << 18
SENT_NAMES = re.compile(r"(?!\.)[^/\0]+\.(out|env|stacks)")


class Sinks(Protocol):
    def log(self, path: Path) -> Log:
        """A file that grows."""

    def keep(self, path: Path, data: bytes) -> None:
        """A whole file."""


class InRunDirectory:
    def log(self, path: Path) -> Log:
        return LogFile(path)

    def keep(self, path: Path, data: bytes) -> None:
        RunDir(path.parent).write(path, data)


class OverChannel:
    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def log(self, path: Path) -> Log:
        return ChannelLog(self._channel, path.name)

    def keep(self, path: Path, data: bytes) -> None:
        self._channel.send(to_wire(_written(path.name, data, whole=True)))


class ChannelLog:
    problem: OSError | None = None  # the supervisor sees what its disk says

    def __init__(self, channel: Channel, name: str) -> None:
        self._channel = channel
        self._name = name

    def write(self, data: bytes) -> None:
        for start in range(0, len(data), PIECE_BYTES):
            self._channel.send(to_wire(_written(self._name, data[start : start + PIECE_BYTES])))

    def close(self) -> None:
        pass


def _written(name: str, data: bytes, *, whole: bool = False) -> Written:
    return Written(file=name, data=base64.b64encode(data).decode(), whole=whole)


class Archive:
    """The supervisor's end: what came over a channel, kept in the attempt's folder."""

    def __init__(self, attempt: AttemptDir) -> None:
        self._attempt = attempt
        self._complained = False

    def keep(self, written: Written) -> str | None:
        """Why it could not be kept, the first time that happens."""
        try:
            self._write(written)
        except (OSError, ValueError, EchelonError) as error:
            said, self._complained = self._complained, True
            return None if said else f"output was lost: {error}"
        return None

    def _write(self, written: Written) -> None:
        if not SENT_NAMES.fullmatch(written.file):
            raise ValueError(f"no file of an attempt is called {written.file!r}")
        path, data = self._attempt.path / written.file, base64.b64decode(written.data)
        if written.whole:
            RunDir(self._attempt.path).write(path, data)
            return
        log = LogFile(path)  # opened for each piece: a run on many hosts has more logs than we may have open files
        log.write(data)
        log.close()
        if log.problem is not None:
            raise log.problem
