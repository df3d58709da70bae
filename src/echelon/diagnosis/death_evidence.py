"""DeathEvidence: the facts about a dead rank that its node collects. Plain values, encoded as JSON."""

from __future__ import annotations

import enum
import re
from dataclasses import replace

from echelon.record import record
from echelon.untrusted import clean_for_terminal

MOST_MESSAGE_CHARS = 4_000
MOST_TEXT_CHARS = 32_000
MOST_LINES = 50
MOST_LINE_CHARS = 500


class Parent(enum.Enum):
    """A process of echelon. The ranks of its node die with it."""

    STARTER = "starter"
    AGENT = "agent"


@record
class MemoryFacts:
    """Bytes, and numbers of processes that the kernel killed for memory. None for a value that cannot be read."""

    limit: int | None = None
    """The smallest limit of the cgroup and its ancestors. None also without a limit."""
    peak: int | None = None
    """The highest use of the cgroup with that limit, or of the rank's own cgroup without one. Includes file cache."""
    kills_before: int | None = None
    kills_after: int | None = None
    """Kills in the rank's own cgroup, at the start of the rank and after its death."""
    machine_kills_before: int | None = None
    machine_kills_after: int | None = None
    """Kills on the whole machine, those of other jobs included."""
    machine_bytes: int | None = None
    rank_peak: int | None = None
    """The largest resident set of the rank's process, or of a child that it has reaped."""

    @property
    def kills(self) -> int | None:
        return _increase(self.kills_before, self.kills_after)

    @property
    def machine_kills(self) -> int | None:
        return _increase(self.machine_kills_before, self.machine_kills_after)


def _increase(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None else max(0, after - before)


@record
class SharedMemory:
    """The file system /dev/shm. A dead rank's share of it is free again: only `least_free` shows that it was full."""

    size: int | None = None
    free: int | None = None
    least_free: int | None = None
    """The smallest free size while the rank ran."""


@record
class DiskFacts:
    """The file system of the path that failed, or of the working directory."""

    path: str = ""
    free_bytes: int | None = None
    inodes: int | None = None
    """Zero on file systems without a fixed number of inodes."""
    free_inodes: int | None = None


@record
class Limits:
    """Limits of the rank. None for unlimited or unknown."""

    processes: int | None = None
    """ulimit -u: processes and threads of the user."""
    cgroup_processes: int | None = None
    """pids.max of the cgroup."""
    refused_forks: int = 0
    """How often pids.max refused a process or thread while the rank ran."""
    open_files: int | None = None
    address_space: int | None = None
    """ulimit -v, in bytes."""


@record
class DeathEvidence:
    code: int
    """The exit code, negative for a signal."""
    error_type: str = ""
    error_message: str = ""
    traceback: str = ""
    exit_text: str = ""
    """The text of sys.exit("text")."""
    fatal_stack: str = ""
    """The text that faulthandler wrote at a fatal signal."""
    output: tuple[str, ...] = ()
    """The last lines that the rank wrote."""
    memory: MemoryFacts = MemoryFacts()
    shared_memory: SharedMemory = SharedMemory()
    disk: DiskFacts = DiskFacts()
    limits: Limits = Limits()
    dead_parent: Parent | None = None
    """The process of echelon that died first, if one did."""


def clean_evidence(evidence: DeathEvidence) -> DeathEvidence:
    """A copy with texts of bounded size and without terminal escapes. Ranks wrote these texts."""
    return replace(
        evidence,
        error_type=_clean(evidence.error_type, MOST_LINE_CHARS),
        error_message=_clean(evidence.error_message, MOST_MESSAGE_CHARS),
        traceback=_clean(evidence.traceback[-MOST_TEXT_CHARS:], MOST_TEXT_CHARS),
        exit_text=_clean(evidence.exit_text, MOST_MESSAGE_CHARS),
        fatal_stack=_clean(evidence.fatal_stack, MOST_TEXT_CHARS),
        output=tuple(_clean(line, MOST_LINE_CHARS) for line in evidence.output[-MOST_LINES:]),
        disk=replace(evidence.disk, path=_clean(evidence.disk.path, MOST_LINE_CHARS)),
    )


def _clean(text: str, most: int) -> str:
    return clean_for_terminal(text[: 2 * most], most=most)


_FILE_NAME = re.compile(r": '((?:[^'\\]|\\.)+)'(?: -> '.*')?\s*$")


def path_in_message(message: str) -> str | None:
    """The file that the message of an OSError names. The agent collects DiskFacts for it."""
    found = _FILE_NAME.search(message.strip()[:MOST_MESSAGE_CHARS])
    return found[1] if found else None
