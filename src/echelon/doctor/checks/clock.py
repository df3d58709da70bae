"""Clock offset of each node to the first one, measured when the nodes meet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from echelon.doctor.model import Finding, Node, error, number, warning

NAME = "clock"
LARGE_SECONDS = 1.0
WRONG_SECONDS = 60.0
"""munge and Kerberos refuse credentials of a clock that is off by minutes."""


def offset_seconds(sent: float, remote: float, received: float) -> tuple[float, float]:
    """How far the remote clock is ahead, and the largest error of that. Times of one question and its answer."""
    return remote - (sent + received) / 2, (received - sent) / 2


def compare(nodes: Sequence[Node]) -> Iterator[Finding]:
    """Nodes whose clock differs from most others. Pure."""
    offsets = {node.name: number(node.facts(NAME), "offset") for node in nodes}
    known = {name: offset for name, offset in offsets.items() if offset is not None}
    usual = _middle(list(known.values()))
    for name, offset in known.items():
        slack = next((number(node.facts(NAME), "error") or 0.0 for node in nodes if node.name == name), 0.0)
        off = offset - usual
        if abs(off) - slack <= LARGE_SECONDS:
            continue
        make = error if abs(off) > WRONG_SECONDS else warning
        what = f"its clock is {abs(off):.1f} s {'ahead' if off > 0 else 'behind'}"
        why = "log lines, file times and credentials of the nodes disagree"
        yield make(NAME, name, what, why, "start chrony or ntpd on the node (administrators)")


def _middle(values: list[float]) -> float:
    """The lower median: of two clocks, the one of the first node is the usual one if it is behind."""
    return sorted(values, key=abs)[(len(values) - 1) // 2] if values else 0.0
