"""Tracebacks that only say that somebody else has gone: one line of each is enough; the whole is in the rank's log."""

from __future__ import annotations

import re

from echelon.node.faults import ECHOES

# As torch's own hook prints them in a rank that is in a process group, behind our tag: `[3] [rank3]: ...`
LINE = re.compile(rb"(?P<tag>\[ *(?P<rank>\d+)\] )\[rank(?P=rank)\]: ?(?P<text>.*)", re.DOTALL)
BEGIN = b"Traceback (most recent call last):"
MOST_LINES = 2000  # a traceback deeper than that is none that we wait for


class Echoes:
    """Holds a traceback back until its last line tells what it is about."""

    def __init__(self) -> None:
        self._held: dict[bytes, list[bytes]] = {}

    def shortened(self, data: bytes, *, to_the_end: bool = False) -> bytes:
        shown = b"".join(map(self._take, data.splitlines(keepends=True)))
        return shown + self._let_go() if to_the_end else shown

    def _take(self, line: bytes) -> bytes:
        found = LINE.fullmatch(line)
        if found is None:
            return line
        rank, text = found["rank"], found["text"]
        if text.strip() == BEGIN:
            before = b"".join(self._held.pop(rank, ()))
            self._held[rank] = [line]
            return before
        if rank not in self._held:
            return line
        held = self._held[rank]
        held.append(line)
        if text.startswith((b" ", b"\n")) and len(held) < MOST_LINES:
            return b""
        del self._held[rank]
        return line if ECHOES.search(text.decode(errors="replace")) else b"".join(held)

    def _let_go(self) -> bytes:
        rest = b"".join(line for held in self._held.values() for line in held)
        self._held.clear()
        return rest
