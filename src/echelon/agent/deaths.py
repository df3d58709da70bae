"""Collects the facts about the death of a rank on its node."""

from __future__ import annotations

import re
import threading
from dataclasses import replace
from pathlib import Path

from echelon.agent.memory import NodeWatch, disk_facts
from echelon.diagnosis.death_evidence import MOST_LINE_CHARS, DeathEvidence, DiskFacts, Parent, path_in_message
from echelon.errors import REQUEUE
from echelon.wire.faults import follows_peer_exit, is_consequence
from echelon.wire.messages import ErrorRecord, Exit
from echelon.wire.node_dir import NodeDir

DISK_SECONDS = 0.5
"""A file server that does not answer must not stop the agent."""
FULL = re.compile(r"No space left on device|Disk quota exceeded")


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
