"""Collects the facts about the death of a rank: the exit, and the memory, limits and disks of its node."""

from __future__ import annotations

import os
import re
import threading
from dataclasses import replace
from pathlib import Path

from echelon.diagnosis.death_evidence import (
    MOST_LINE_CHARS,
    DeathEvidence,
    DiskFacts,
    Limits,
    MemoryFacts,
    Parent,
    SharedMemory,
    path_in_message,
)
from echelon.errors import REQUEUE
from echelon.system.cgroups import (
    UNLIMITED,
    Cgroup,
    find_cgroup,
    read_field,
    read_number,
    read_text,
    smallest_limit,
)
from echelon.wire.faults import follows_peer_exit, is_consequence
from echelon.wire.messages import Exit
from echelon.wire.node_dir import NodeDir
from echelon.wire.reports import ErrorRecord

MEMORY_LIMIT = {1: "memory.limit_in_bytes", 2: "memory.max"}
MEMORY_PEAK = {1: "memory.max_usage_in_bytes", 2: "memory.peak"}
MEMORY_NOW = {1: "memory.usage_in_bytes", 2: "memory.current"}
KILLS_FILE = {1: "memory.oom_control", 2: "memory.events"}
ROOT = Path("/")
DISK_SECONDS = 0.5
"""A file server that does not answer must not stop the agent."""
FULL = re.compile(r"No space left on device|Disk quota exceeded")


class NodeWatch:
    """Counters of the node before the ranks start, to compare after a death.

    `pid` is a process in the cgroup of the ranks: the starter, or the agent. Create one watch per generation.
    """

    def __init__(self, pid: int, root: Path = ROOT) -> None:
        self._root = root
        self._pid = pid
        self._memory = find_cgroup(pid, "memory", root)
        self._pids = find_cgroup(pid, "pids", root)
        self._kills = memory_kills(self._memory)
        self._machine_kills = machine_kills(root)
        self._refused = refused_forks(self._pids)
        self._most_used: int | None = None
        self._least_shared: int | None = None
        self.look()

    def look(self) -> None:
        """Records the extremes of values that the kernel does not keep. Takes 0.1 ms: call it about once per second."""
        free = shared_memory(self._root).free
        if free is not None:
            self._least_shared = free if self._least_shared is None else min(free, self._least_shared)
        used = memory_used(self._memory)
        if used is not None:
            self._most_used = max(used, self._most_used or 0)

    def memory(self, rank_peak: int | None = None) -> MemoryFacts:
        """Call it after the death of a rank. `rank_peak` is the rank's largest resident set in bytes."""
        return MemoryFacts(
            limit=memory_limit(self._memory),
            peak=memory_peak(self._memory, self._most_used),
            kills_before=self._kills,
            kills_after=memory_kills(self._memory),
            machine_kills_before=self._machine_kills,
            machine_kills_after=machine_kills(self._root),
            machine_bytes=machine_bytes(self._root),
            rank_peak=rank_peak,
        )

    def shared_memory(self) -> SharedMemory:
        self.look()
        now = shared_memory(self._root)
        return SharedMemory(size=now.size, free=now.free, least_free=self._least_shared)

    def limits(self) -> Limits:
        limit = smallest_limit(self._pids, "pids.max")
        text = read_text(self._root / f"proc/{self._pid}/limits")
        return Limits(
            processes=soft_limit(text, "Max processes"),
            cgroup_processes=None if limit is None else limit[0],
            refused_forks=max(0, refused_forks(self._pids) - self._refused),
            open_files=soft_limit(text, "Max open files"),
            address_space=soft_limit(text, "Max address space"),
        )


# Memory of a cgroup


def memory_limit(cgroup: Cgroup) -> int | None:
    """The smallest limit in bytes. Version 1 also gives the limit of ancestors outside a container."""
    found = smallest_limit(cgroup, MEMORY_LIMIT[cgroup.version])
    hidden = read_field(cgroup.folders[0] / "memory.stat", "hierarchical_memory_limit") if cgroup.folders else None
    limits = [limit for limit in (found and found[0], hidden) if limit is not None and limit < UNLIMITED]
    return min(limits, default=None)


def memory_peak(cgroup: Cgroup, most_used: int | None = None) -> int | None:
    """The peak of the folder with the limit. `most_used` replaces it on kernels without memory.peak."""
    found = smallest_limit(cgroup, MEMORY_LIMIT[cgroup.version])
    folders = (found[1],) if found is not None else cgroup.folders[:1]
    peaks = [read_number(folder / MEMORY_PEAK[cgroup.version]) for folder in folders]
    return next((peak for peak in peaks if peak is not None), most_used)


def memory_used(cgroup: Cgroup) -> int | None:
    return read_number(cgroup.folders[0] / MEMORY_NOW[cgroup.version]) if cgroup.folders else None


def memory_kills(cgroup: Cgroup) -> int | None:
    """How many processes of this cgroup the kernel has killed for memory. Version 1 counts only the cgroup itself."""
    return read_field(cgroup.folders[0] / KILLS_FILE[cgroup.version], "oom_kill") if cgroup.folders else None


# The machine


def machine_kills(root: Path = ROOT) -> int | None:
    return read_field(root / "proc/vmstat", "oom_kill")


def machine_bytes(root: Path = ROOT) -> int | None:
    kibibytes = read_field(root / "proc/meminfo", "MemTotal")
    return None if kibibytes is None else kibibytes << 10


def refused_forks(cgroup: Cgroup) -> int:
    """How often pids.max refused a process. Older kernels count in the own cgroup, newer ones in the one at fault."""
    counts = (read_field(folder / "pids.events", "max") for folder in cgroup.folders)
    return max((count for count in counts if count is not None), default=0)


def soft_limit(text: str, name: str) -> int | None:
    """A soft limit of /proc/PID/limits. None for unlimited."""
    found = re.search(rf"^{re.escape(name)}\s+(\d+)\s", text, re.MULTILINE)
    return int(found[1]) if found else None


def shared_memory(root: Path = ROOT) -> SharedMemory:
    try:
        facts = os.statvfs(root / "dev/shm")
    except OSError:
        return SharedMemory()
    return SharedMemory(size=facts.f_blocks * facts.f_frsize, free=facts.f_bavail * facts.f_frsize)


def disk_facts(path: str, cwd: Path) -> DiskFacts:
    """The file system of the path, or of its nearest existing parent. A relative path starts in `cwd`."""
    place = cwd / path
    for folder in (place, *place.parents):
        try:
            facts = os.statvfs(folder)
        except OSError:
            continue
        free = facts.f_bavail * facts.f_frsize
        return DiskFacts(path=path, free_bytes=free, inodes=facts.f_files, free_inodes=facts.f_favail)
    return DiskFacts(path=path)


# The facts about one death


def needs_evidence(exit: Exit, *, is_stopping: bool) -> bool:
    """Whether an exit may be the cause of a fault. Collecting takes milliseconds, which delay a restart."""
    if exit.code in (0, REQUEUE):
        return False
    return not (is_consequence(exit) if is_stopping else follows_peer_exit(exit))


def collect_death(
    exit: Exit,
    *,
    output: tuple[str, ...],
    peak: int | None,
    watch: NodeWatch | None,
    node_dir: NodeDir,
    cwd: Path,
    dead_parent: Parent | None,
) -> DeathEvidence:
    """The evidence without the exception, which `exit` has. `peak` is the rank's largest resident set in bytes."""
    evidence = DeathEvidence(
        code=exit.code,
        fatal_stack=node_dir.read_fatal_stack(exit.rank) if exit.error is None else "",
        output=tuple(line[:MOST_LINE_CHARS] for line in output),
        disk=named_disk(exit.error, cwd),
        dead_parent=dead_parent,
    )
    if watch is None:
        return evidence
    return replace(evidence, memory=watch.memory(peak), shared_memory=watch.shared_memory(), limits=watch.limits())


def named_disk(error: ErrorRecord | None, cwd: Path, seconds: float = DISK_SECONDS) -> DiskFacts:
    """The file system of the path in a message about a full disk. Empty without one, or if it does not answer."""
    path = path_in_message(error.message) if error is not None and FULL.search(error.message) else None
    if path is None:
        return DiskFacts()
    found: list[DiskFacts] = []
    thread = threading.Thread(target=lambda: found.append(disk_facts(path, cwd)), daemon=True)
    thread.start()
    thread.join(seconds)
    return found[0] if found else DiskFacts(path=path)
