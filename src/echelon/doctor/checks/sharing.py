"""Whether all nodes see the same folder under a path: each leaves a mark, then all look for the marks of all."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from echelon.doctor.checks.storage import PREFIX
from echelon.doctor.model import Finding, Node, error, mapping

NAME = "sharing"
SECONDS = 6.0
LOOK_SECONDS = 3.0
"""How long a new file may take to become visible on other hosts."""


def mark_name(run_id: str, rank: int) -> str:
    return f"{PREFIX}{run_id}-{rank}"


def leave_marks(folders: Sequence[str], run_id: str, rank: int) -> dict[str, Any]:
    """Folders in which no mark can be left are found by the check `storage`."""
    left = []
    for folder in folders:
        try:
            (Path(folder) / mark_name(run_id, rank)).touch(mode=0o600)
            left.append(folder)
        except OSError:
            continue
    return {"left": left}


def look_for_marks(folders: Sequence[str], run_id: str, ranks: Sequence[int]) -> dict[str, Any]:
    """The ranks whose marks are visible, by folder."""
    deadline = time.monotonic() + LOOK_SECONDS
    seen: dict[str, list[int]] = {}
    while True:
        for folder in folders:
            names = _list(folder)
            seen[folder] = [rank for rank in ranks if mark_name(run_id, rank) in names]
        if all(len(found) == len(ranks) for found in seen.values()) or time.monotonic() > deadline:
            return {"seen": seen, "ranks": list(ranks)}
        time.sleep(0.2)


def _list(folder: str) -> set[str]:
    try:
        return set(os.listdir(folder))  # noqa: PTH208  only the names are needed
    except OSError:
        return set()


def remove_marks(folders: Sequence[str], run_id: str, rank: int) -> dict[str, Any]:
    for folder in folders:
        try:
            (Path(folder) / mark_name(run_id, rank)).unlink(missing_ok=True)
        except OSError:
            continue
    return {}


def compare(nodes: Sequence[Node], names: Mapping[int, str]) -> Iterator[Finding]:
    """Nodes that do not see the marks of most others. `names` has the host of each rank. Pure."""
    folders = {folder for node in nodes for folder in mapping(node.facts(NAME), "seen")}
    for folder in sorted(folders):
        for node in nodes:
            facts = node.facts(NAME)
            seen = mapping(facts, "seen").get(folder)
            if not isinstance(seen, list) or node.name not in (names.get(rank) for rank in seen):
                continue  # it could not write its own mark: the check of storage reports that
            missing = [names.get(rank, "?") for rank in facts.get("ranks", ()) if rank not in seen]
            missing = [name for name in missing if _wrote(nodes, name, folder, names)]
            if missing and len(missing) * 2 >= len(facts.get("ranks", ())):
                why = f"files of {', '.join(missing[:3])} are not visible: it is another file system"
                yield error(NAME, node.name, f"{folder} is not shared", why, "use a folder that all nodes mount")


def _wrote(nodes: Sequence[Node], name: str, folder: str, names: Mapping[int, str]) -> bool:
    """Whether the node sees its own mark, so that its folder works."""
    node = next((one for one in nodes if one.name == name), None)
    seen = mapping(node.facts(NAME), "seen").get(folder) if node is not None else None
    return isinstance(seen, list) and name in (names.get(rank) for rank in seen)
