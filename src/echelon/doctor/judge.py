"""From the results of all nodes to findings. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

from echelon.codec import decode
from echelon.doctor.checks import CHECKS, clock, compute, gpus, names, sharing, software
from echelon.doctor.collective import judge_reduce
from echelon.doctor.meeting import MARK
from echelon.doctor.model import Finding, Node, Plan, Result, Severity, number
from echelon.doctor.pairs import NAME as PAIRS
from echelon.doctor.pairs import judge_pairs
from echelon.record import record
from echelon.untrusted import parse_json

ORDER = {Severity.ERROR: 0, Severity.WARNING: 1, Severity.NOTE: 2}


@record
class Heard:
    """The lines that the doctor on one node printed."""

    results: Mapping[str, Result] = field(default_factory=dict)
    problem: str = ""
    """Why the node could not take part in the checks of several nodes."""
    present: tuple[int, ...] = ()
    """The ranks that the coordinator had met."""
    ended: bool = False


def parse_lines(text: str, hosts: Sequence[str]) -> Heard:
    """Lines of other programs are ignored. `hosts` has the name of each rank's node."""
    results: dict[str, Result] = {}
    problem, ended = "", False
    present: tuple[int, ...] = ()
    for line in text.splitlines():
        value = parse_line(line)
        match value.pop("doctor", None):
            case "result":
                result = _decode_result(value, hosts)
                if result is not None:
                    results[result.check] = result
            case "unreachable":
                problem = f"cannot connect to {hosts[0]} ({value.get('peer')}): {value.get('why')}"
            case "lost":
                problem = f"lost the first node: {value.get('why')}"
            case "roster":
                present = tuple(rank for rank in value.get("present", ()) if isinstance(rank, int))
            case "end":
                ended = True
    return Heard(results=results, problem=problem, present=present, ended=ended)


def parse_line(line: str) -> dict[str, Any]:
    if not line.startswith(MARK):
        return {}
    try:
        value = parse_json(line)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _decode_result(value: Mapping[str, Any], hosts: Sequence[str]) -> Result | None:
    """Names the peer of a connection by its host instead of its rank. None for a line of another version."""
    try:
        result = decode(Result, dict(value))
    except ValueError:
        return None
    kind, _, peer = result.check.partition("/")
    if kind == PAIRS and peer.isdecimal() and int(peer) < len(hosts):
        return Result(**{**vars(result), "check": f"{PAIRS}/{hosts[int(peer)]}"})
    return result


def judge_heard(heard: Mapping[str, Heard], hosts: Sequence[str], plan: Plan) -> list[Finding]:
    """All findings, worst first. `hosts` has the name of each rank's node."""
    nodes = [Node(name=name, results=one.results) for name, one in heard.items()]
    return sort_findings(
        [
            *(finding for node in nodes for finding in judge_node(node, plan)),
            *judge_silence(heard, hosts),
            *compare_nodes(nodes, hosts),
        ]
    )


def judge_node(node: Node, plan: Plan) -> list[Finding]:
    """The findings of one node by itself."""
    found: list[Finding] = []
    for check in CHECKS:
        result = node.results.get(check.name)
        if result is None:
            continue
        if result.timed_out:
            found.append(check.hung(node.name))
        elif result.problem:
            found.append(_failed_check(node.name, result))
        else:
            found += check.judge(node.name, result.facts, plan)
    found += gpus.judge_torch(node, plan)
    resolved = node.results.get(names.NAME)
    if resolved is not None:
        found += [names.hung(node.name)] if resolved.timed_out else names.judge(node.name, resolved.facts, plan)
    return found


def _failed_check(node: str, result: Result) -> Finding:
    what = f"the check of {result.check} failed"
    return Finding(severity=Severity.WARNING, check=result.check, node=node, what=what, why=result.problem)


def judge_silence(heard: Mapping[str, Heard], hosts: Sequence[str]) -> Iterator[Finding]:
    """Nodes that did not take part."""
    fix = "check network and firewall between them; --interface NAME chooses another network"
    for name, one in heard.items():
        if one.problem:
            excludes = (name,) if name != hosts[0] else ()
            what = "cannot reach the first node" if "cannot connect" in one.problem else "left the checks early"
            yield Finding(
                severity=Severity.ERROR, check=PAIRS, node=name, what=what, why=one.problem, fix=fix, excludes=excludes
            )
        elif not one.ended:
            why = "its process ended or hangs; the run's job.out may have the reason"
            yield Finding(
                severity=Severity.ERROR,
                check="node",
                node=name,
                what="did not finish its checks",
                why=why,
                fix="exclude the node",
                excludes=(name,),
            )


def compare_nodes(nodes: Sequence[Node], hosts: Sequence[str]) -> Iterator[Finding]:
    yield from software.compare(nodes)
    yield from sharing.compare(nodes, dict(enumerate(hosts)))
    yield from clock.compare(nodes)
    yield from compare_cores(nodes)
    yield from judge_pairs(nodes)
    yield from judge_reduce(nodes)


def compare_cores(nodes: Sequence[Node]) -> Iterator[Finding]:
    """Nodes with fewer cores than most others: all ranks wait for theirs."""
    cores = {node.name: number(node.facts(compute.NAME), "cores") for node in nodes}
    known = {name: count for name, count in cores.items() if count is not None}
    if len(known) < 2:
        return
    usual = Counter(known.values()).most_common(1)[0][0]
    for name, count in known.items():
        if count < usual / 2:
            what = f"{count:.0f} of {usual:.0f} cores"
            why = "the affinity mask is smaller than on the other nodes: their ranks wait for these"
            yield Finding(
                severity=Severity.WARNING,
                check=compute.NAME,
                node=name,
                what=what,
                why=why,
                fix="exclude the node, or request the cores: --cpus N",
            )


def sort_findings(findings: Sequence[Finding]) -> list[Finding]:
    return sorted(dict.fromkeys(findings), key=lambda one: (ORDER[one.severity], one.node, one.check))


def exclude_list(findings: Sequence[Finding]) -> list[str]:
    """The nodes without which no error is left."""
    errors = [one for one in findings if one.severity is Severity.ERROR]
    return sorted({name for one in errors for name in one.excludes})
