"""Connections between all pairs of nodes (tier 3): who meets whom, and what the measurements mean. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from echelon.doctor.model import Facts, Finding, Node, Severity, number, text
from echelon.record import record
from echelon.text import plural

NAME = "pairs"
SLOW_SHARE = 1 / 8
"""A connection with less than this share of the best bandwidth is slow."""
SLOW_BYTES = 12_500_000
"""Bytes per second: 100 Mbit/s. Less is an error."""
FAST_ENOUGH = 125_000_000
"""1 Gbit/s. More is never reported on a small test, which other load disturbs."""
HIGH_LATENCY = 0.005
LATENCY_FACTOR = 10


@record
class Connection:
    """One direction of a pair. `facts` are those of the node that connects."""

    source: str
    target: str
    facts: Facts

    @property
    def problem(self) -> str:
        return text(self.facts, "problem")


def rounds(count: int) -> Iterator[list[tuple[int, int]]]:
    """Rounds of disjoint pairs in which each node meets each other once: n-1 rounds, or n if n is odd."""
    places: list[int | None] = [*range(count), *([None] if count % 2 else [])]
    for _ in range(len(places) - 1):
        half = len(places) // 2
        pairs = zip(places[:half], reversed(places[half:]), strict=True)
        yield [(min(a, b), max(a, b)) for a, b in pairs if a is not None and b is not None]
        places = [places[0], places[-1], *places[1:-1]]


def connections(nodes: Sequence[Node]) -> list[Connection]:
    """All measured directions, from the results `pairs/PEER` of each node."""
    found = []
    for node in nodes:
        for check, result in node.results.items():
            kind, _, peer = check.partition("/")
            if kind == NAME and peer:
                facts = result.facts if not result.problem else {"problem": result.problem, "stage": "connect"}
                found.append(Connection(source=node.name, target=peer, facts=facts))
    return found


def judge_pairs(nodes: Sequence[Node]) -> list[Finding]:
    measured = connections(nodes)
    return [*_broken(measured), *_slow(measured), *_late(measured), *_packets(measured, nodes)]


def blamed_node(bad: Iterable[tuple[str, str]], everything: Sequence[tuple[str, str]]) -> str | None:
    """The node whose connections are all bad while the others have good ones; None if no single node explains it."""
    bad = set(bad)
    counts = Counter(name for pair in bad for name in pair)
    for name, _ in counts.most_common():
        others_are_good = any(name not in pair for pair in everything)
        if all(name in pair for pair in bad) and others_are_good and counts[name] > 1:
            return name
    return None


N = TypeVar("N", int, str)


def smallest_cover(bad: Iterable[tuple[N, N]]) -> tuple[N, ...]:
    """Few nodes that are part of all bad pairs: the node with the most first, of equals the last."""
    left: set[tuple[N, N]] = set(bad)
    chosen: list[N] = []
    while left:
        counts = Counter(name for pair in left for name in pair)
        worst = max(counts, key=lambda name: (counts[name], name))
        chosen.append(worst)
        left = {pair for pair in left if worst not in pair}
    return tuple(sorted(chosen))


def _finding(severity: Severity, node: str, what: str, why: str, fix: str, excludes: Sequence[str]) -> Finding:
    return Finding(severity=severity, check=NAME, node=node, what=what, why=why, fix=fix, excludes=tuple(excludes))


def _directions(measured: Sequence[Connection]) -> list[tuple[str, str]]:
    return [(one.source, one.target) for one in measured]


STAGES = {
    "connect": "cannot connect",
    "latency": "small messages stall",
    "packets": "small messages stall",
    "bandwidth": "large messages stall",
}
FIREWALL = "open all TCP ports between nodes, or choose another network: --interface"
STALLED = "large packets are lost: give all interfaces on the path the same MTU"


def _broken(measured: Sequence[Connection]) -> Iterator[Finding]:
    for stage, what in STAGES.items():
        bad = [one for one in measured if one.problem and text(one.facts, "stage") == stage]
        if not bad:
            continue
        fix = STALLED if stage == "bandwidth" else FIREWALL
        cover = smallest_cover(_directions(bad))
        culprit = blamed_node(_directions(bad), _directions(measured))
        if culprit is not None:
            yield _finding(Severity.ERROR, culprit, f"{what}: {_peers(bad, culprit)}", bad[0].problem, fix, (culprit,))
            continue
        for one in bad:
            shown = f"{one.source} -> {one.target}"
            yield _finding(Severity.ERROR, shown, f"{what} to {one.target}", one.problem, fix, cover)


def _peers(bad: Sequence[Connection], culprit: str) -> str:
    """The bad directions of one node in words."""
    outward = sorted({one.target for one in bad if one.source == culprit})
    inward = sorted({one.source for one in bad if one.target == culprit})
    parts = [f"{way} {_names(peers)}" for way, peers in (("to", outward), ("from", inward)) if peers]
    return " and ".join(parts)


def _names(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _rate(value: float) -> str:
    return f"{value * 8 / 1e9:.1f} Gbit/s" if value >= FAST_ENOUGH else f"{value * 8 / 1e6:.1f} Mbit/s"


def _slow(measured: Sequence[Connection]) -> Iterator[Finding]:
    rates = {(one.source, one.target): number(one.facts, "bandwidth") for one in measured if not one.problem}
    known = {pair: rate for pair, rate in rates.items() if rate is not None}
    best = max(known.values(), default=0.0)
    bad = {pair: rate for pair, rate in known.items() if is_slow(rate, best)}
    if not bad:
        return
    severity = Severity.ERROR if min(bad.values()) < SLOW_BYTES else Severity.WARNING
    fix = "exclude the node, or choose another network: --interface"
    why = f"the best connection has {_rate(best)}" if len(bad) < len(known) else "all connections are slow"
    culprit = blamed_node(bad, list(known))
    if culprit is not None:
        what = f"slow network: {_rate(min(bad.values()))} on {plural(len(bad), 'connection')}"
        yield _finding(severity, culprit, what, why, fix, (culprit,) if severity is Severity.ERROR else ())
        return
    cover = smallest_cover(bad) if severity is Severity.ERROR and len(bad) < len(known) else ()
    for (source, target), rate in sorted(bad.items(), key=lambda item: item[1]):
        yield _finding(severity, f"{source} -> {target}", f"slow network: {_rate(rate)}", why, fix, cover)


def is_slow(rate: float, best: float) -> bool:
    return rate < SLOW_BYTES or (rate < best * SLOW_SHARE and rate < FAST_ENOUGH)


def _late(measured: Sequence[Connection]) -> Iterator[Finding]:
    known = {(c.source, c.target): late for c in measured if (late := number(c.facts, "latency")) is not None}
    best = min(known.values(), default=0.0)
    bad = {pair: late for pair, late in known.items() if late > max(HIGH_LATENCY, best * LATENCY_FACTOR)}
    if not bad:
        return
    culprit = blamed_node(bad, list(known))
    worst = max(bad.values())
    what = f"latency of {worst * 1000:.1f} ms"
    why = f"the best connection has {best * 1000:.2f} ms; the smallest of {20} messages"
    fix = "exclude the node, or choose another network: --interface"
    names = [culprit] if culprit is not None else [f"{source} -> {target}" for source, target in sorted(bad)]
    for name in names:
        yield _finding(Severity.WARNING, name, what, why, fix, ())


def _packets(measured: Sequence[Connection], nodes: Sequence[Node]) -> Iterator[Finding]:
    """Different MTUs, and packets of full size that do not arrive."""
    mtus = {node.name: number(node.facts("network"), "mtu") for node in nodes}
    known: Mapping[str, float] = {name: mtu for name, mtu in mtus.items() if mtu is not None}
    fix = "give all interfaces of this network the same MTU: ip link"
    if len(set(known.values())) > 1:
        usual = Counter(known.values()).most_common(1)[0][0]
        for name, mtu in known.items():
            if mtu != usual:
                why = f"{usual:.0f} on the other nodes: full packets to it are lost, except in plain TCP"
                yield _finding(Severity.WARNING, name, f"MTU {mtu:.0f}", why, fix, ())
        return
    for one in measured:
        path, own = number(one.facts, "path_mtu"), number(one.facts, "largest_sent")
        if not one.problem and path and own is not None and path < own:
            what = f"packets of {own:.0f} bytes to {one.target} are lost"
            why = f"packets of {path:.0f} bytes arrive; the interfaces allow {own:.0f}"
            yield _finding(Severity.WARNING, f"{one.source} -> {one.target}", what, why, fix, ())
