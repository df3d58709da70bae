"""One ssh to one host: first what the host has to say of itself, then all that its agent needs, then the agent."""

from __future__ import annotations

import json
import os
import pkgutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from echelon.codec import decode
from echelon.node.channel import HEADER, Channel, ChannelClosed
from echelon.node.hosts.bootstrap import MARK
from echelon.node.sinks import BACKLOG_BYTES

PIECE_BYTES = 1 << 18
MOST_WORDS_BYTES = 1 << 16
EXIT_SECONDS = 0.5


@dataclass(frozen=True, kw_only=True)
class Report:
    """What a host says of itself."""

    version: tuple[int, ...]
    python: str
    torch: bool
    time: float
    shared: bool
    """It sees the run directory."""
    cwd: bool
    script: bool
    gpus: int
    address: str
    """Its own, at which sshd was reached."""


class Connection:
    def __init__(self, argv: Sequence[str], environ: Mapping[str, str], asked: Mapping[str, Any], host: str) -> None:
        self.host = host
        self.report: Report | None = None
        self.asked_at = time.time()
        self.heard_at = self.asked_at
        self._words = tempfile.TemporaryFile()  # noqa: SIM115  as long as the connection
        self._relayed = 0
        self._pieces: Iterator[bytes] | None = None
        self._is_ours = True
        theirs_in, ours_out = os.pipe()
        ours_in, theirs_out = os.pipe()
        try:
            self.process = subprocess.Popen(
                argv, env=dict(environ), stdin=theirs_in, stdout=theirs_out, stderr=self._words, start_new_session=True
            )
        except OSError:
            os.close(ours_in)
            os.close(ours_out)
            raise
        finally:
            os.close(theirs_in)
            os.close(theirs_out)
        self.channel = Channel(ours_in, ours_out, prologue=MARK)
        self.channel.send_raw(_bootstrap() + _frame(asked))

    def hear_report(self) -> None:
        """Takes in the report if it has come; raises ChannelClosed, also for one that no host of ours would give."""
        for wire in self.channel.receive():
            try:
                self.report = decode(Report, wire)
            except ValueError as error:
                raise ChannelClosed(str(error)) from error
            self.heard_at = time.time()

    def begin(self, files: Sequence[Path], wanted: Mapping[str, Any], brief: Mapping[str, Any]) -> None:
        """What is to be done there, the files that the host lacks, then what its agent is to know."""
        self._pieces = _pieces(wanted, files, brief)

    @property
    def begun(self) -> bool:
        return self._pieces is not None

    def send_on(self) -> bool:
        """Sends what there is room for; true once all has gone."""
        for piece in self._pieces or ():
            self.channel.send_raw(piece)
            if self.channel.unsent_bytes > BACKLOG_BYTES:
                return False
        self.channel.flush()
        return self.channel.unsent_bytes == 0

    def handed_over(self) -> Channel:
        """The channel, for somebody else to close."""
        self._is_ours = False
        return self.channel

    def hang_up(self) -> None:
        if self._is_ours:
            self._is_ours = False
            self.channel.close()

    def exit_code(self) -> int | None:
        """Of ssh, whose output has come to its end; None for one that still lives."""
        try:
            return self.process.wait(EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            return None

    def words(self) -> str:
        """What ssh, and whatever it ran there, wrote to its stderr."""
        return os.pread(self._words.fileno(), MOST_WORDS_BYTES, 0).decode(errors="replace")

    def relay_words(self) -> None:
        """What is new of them, into our own output, under the host's name."""
        new = os.pread(self._words.fileno(), MOST_WORDS_BYTES, self._relayed)
        self._relayed += len(new)
        for line in new.decode(errors="replace").splitlines():
            print(f"[{self.host}] {line}", file=sys.stderr, flush=True)


def _bootstrap() -> bytes:
    """One line, which Python can read whatever is in it."""
    source = pkgutil.get_data("echelon.node.hosts", "bootstrap.py") or b""
    return repr(source.decode()).encode() + b"\n"


def _frame(data: Mapping[str, Any]) -> bytes:
    payload = json.dumps(data).encode()
    return HEADER.pack(len(payload)) + payload


def _pieces(wanted: Mapping[str, Any], files: Sequence[Path], brief: Mapping[str, Any]) -> Iterator[bytes]:
    """Files are read as they are sent: there may be many hosts, and one snapshot is large."""
    yield _frame(wanted)
    for path in files:
        with path.open("rb") as file:
            yield HEADER.pack(os.fstat(file.fileno()).st_size)
            while piece := file.read(PIECE_BYTES):
                yield piece
    yield _frame(brief)
