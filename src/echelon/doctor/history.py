"""Results that are kept per site, and what has changed since the last good one."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from echelon.doctor.checks import compute, software
from echelon.doctor.collective import reduce_seconds
from echelon.doctor.model import Finding, Node, Severity, number
from echelon.doctor.pairs import connections
from echelon.untrusted import parse_json, read_regular

MOST_BYTES = 1 << 20
WORSE = 4.0
"""A measured value that is worse by this factor has changed. Other jobs on the network explain less."""
LABELS = {"bandwidth": "bandwidth of the slowest connection", "reduce": "all_reduce of 64 MiB"}


def history_file(site: str, environ: Mapping[str, str]) -> Path:
    base = environ.get("XDG_STATE_HOME") or str(Path(environ.get("HOME", "/")) / ".local" / "state")
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", site).strip("-.") or "here"
    return Path(base) / "echelon" / "doctor" / f"{name[:100]}.json"


def summarize(nodes: Sequence[Node], now: float) -> dict[str, Any]:
    """What is kept of a good result. Pure."""
    rates = [rate for one in connections(nodes) if (rate := number(one.facts, "bandwidth")) is not None]
    slowest = max((max(seconds) for size, seconds in reduce_seconds(nodes).items() if size > 1 << 20), default=None)
    return {
        "time": now,
        "bandwidth": min(rates, default=None),
        "reduce": slowest,
        "nodes": {
            node.name: {
                **{key: node.facts(software.NAME).get(key) for key in software.COMPARED},
                "cores": node.facts(compute.NAME).get("cores"),
                "gpus": len(node.facts(software.NAME).get("gpus") or ()),
                "mtu": node.facts("network").get("mtu"),
            }
            for node in nodes
        },
    }


def compare_with_last(now: Mapping[str, Any], last: Mapping[str, Any]) -> Iterator[Finding]:
    """Notes about what differs from the last good result. Pure."""
    day = time.strftime("%Y-%m-%d", time.localtime(number(last, "time") or 0))
    before = last.get("nodes")
    for name, facts in now["nodes"].items():
        found = before.get(name) if isinstance(before, dict) else None
        old = found if isinstance(found, dict) else {}
        for key in facts:
            if old.get(key) is not None and facts[key] is not None and old[key] != facts[key]:
                what = f"{key} is {facts[key]}, was {old[key]}"
                yield Finding(severity=Severity.NOTE, check="history", node=name, what=what, why=f"last good: {day}")
    for key, is_worse in (("bandwidth", _is_lower), ("reduce", _is_higher)):
        new, past = number(now, key), number(last, key)
        if new is not None and past is not None and is_worse(new, past):
            what = f"{LABELS[key]} is {_show(key, new)}, was {_show(key, past)}"
            yield Finding(severity=Severity.NOTE, check="history", node="", what=what, why=f"last good: {day}")


def _is_lower(new: float, old: float) -> bool:
    return new * WORSE < old


def _is_higher(new: float, old: float) -> bool:
    return new > old * WORSE


def _show(key: str, value: float) -> str:
    return f"{value * 8 / 1e9:.2f} Gbit/s" if key == "bandwidth" else f"{value * 1000:.0f} ms"


def read_last(path: Path) -> Mapping[str, Any] | None:
    """The last good result; None if there is none that can be read."""
    try:
        value = parse_json(read_regular(path, MOST_BYTES))
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def keep(path: Path, summary: Mapping[str, Any]) -> None:
    """Replaces the file at once. Raises OSError."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.urandom(4).hex()}")
    part.write_text(json.dumps(summary, indent=1) + "\n")
    part.replace(path)
