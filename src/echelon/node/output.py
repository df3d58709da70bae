"""A rank's output on its way to the logs: whole lines, each with its rank in front."""

from __future__ import annotations

import array
import fcntl
import os
import termios
from pathlib import Path
from typing import Protocol

LONGEST_LINE_BYTES = 1 << 16
LINES_KEPT = 20


class LineSplitter:
    """Bytes in, whole lines out. A carriage return ends a line too, so that progress bars show up live."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        text = self._rest + data
        if b"\r" in text:
            held = text.endswith(b"\r")  # its newline may be in the next chunk
            text = text[:-1] if held else text
            text = text.replace(b"\r\n", b"\n").replace(b"\r", b"\n") + (b"\r" if held else b"")
        *lines, self._rest = text.split(b"\n")
        while len(self._rest) > LONGEST_LINE_BYTES:
            lines.append(self._rest[:LONGEST_LINE_BYTES])
            self._rest = self._rest[LONGEST_LINE_BYTES:]
        return lines

    def finish(self) -> list[bytes]:
        rest, self._rest = self._rest.rstrip(b"\r"), b""
        return [rest] if rest else []


class Log(Protocol):
    @property
    def problem(self) -> OSError | None:
        """Why some of it was lost, if that has happened."""

    def write(self, data: bytes) -> None: ...

    def close(self) -> None: ...


class LogFile:
    """Appends whole blocks; a full disk loses lines and never stops the training."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.problem: OSError | None = None
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def write(self, data: bytes) -> None:
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._fd, view) :]
        except OSError as error:
            self.problem = error

    def close(self) -> None:
        os.close(self._fd)


class LauncherOutput:
    """What a launcher itself has to say: its lines go to the node's log under its name, and the last ones are kept."""

    def __init__(self, read_fd: int, name: str, node_log: Log) -> None:
        os.set_blocking(read_fd, False)
        self.fd = read_fd
        self.ended = False
        self._tag = f"[{name}] ".encode()
        self._splitter = LineSplitter()
        self._node_log = node_log
        self._last: list[str] = []

    def drain(self) -> None:
        while not self.ended:
            try:
                data = os.read(self.fd, 1 << 16)
            except BlockingIOError:
                return
            self.ended = not data
            self._keep(self._splitter.feed(data) if data else self._splitter.finish())

    def _keep(self, lines: list[bytes]) -> None:
        self._node_log.write(b"".join(self._tag + line + b"\n" for line in lines))
        self._last = [*self._last, *(line.decode(errors="replace") for line in lines)][-LINES_KEPT:]

    def gist(self) -> str:
        """The last of its words, in which programs mostly say what was wrong."""
        told = [line.strip() for line in self._last if line.strip(" -=*#\t")]
        return told[-1] if told else ""

    def close(self) -> None:
        self.drain()
        self._keep(self._splitter.finish())
        os.close(self.fd)


class RankOutput:
    """One rank's pipe: its bytes go to the rank's own log as they are, its lines to the node's log, tagged."""

    def __init__(self, read_fd: int, rank: int, width: int, rank_log: Log, node_log: Log) -> None:
        os.set_blocking(read_fd, False)
        self.fd = read_fd
        self.lines = 0
        self.ended = False
        self._tag = f"[{rank:>{width}}] ".encode()
        self._splitter = LineSplitter()
        self._rank_log = rank_log
        self._node_log = node_log

    def drain(self, most: int = 1 << 20) -> bool:
        """False at its end. Stops after about `most` bytes, so that one rank cannot starve the others."""
        while most > 0:
            try:
                data = os.read(self.fd, min(most, 1 << 16))
            except BlockingIOError:
                return True
            if not data:
                self.ended = True  # closed by the rank, which may live on
                return False
            most -= len(data)
            self._rank_log.write(data)
            self._tagged(self._splitter.feed(data))
        return True

    def drain_what_is_there(self) -> None:
        """Not more: a child that was left behind may go on writing for ever."""
        waiting = array.array("i", [0])
        fcntl.ioctl(self.fd, termios.FIONREAD, waiting)
        if waiting[0]:
            self.drain(most=waiting[0])

    @property
    def problem(self) -> OSError | None:
        return self._rank_log.problem

    def _tagged(self, lines: list[bytes]) -> None:
        self.lines += len(lines)
        if lines:
            self._node_log.write(b"".join(self._tag + line + b"\n" for line in lines))

    def close(self) -> None:
        """The last line may lack its newline: it is written all the same."""
        self._tagged(self._splitter.finish())
        self._rank_log.close()
        os.close(self.fd)
