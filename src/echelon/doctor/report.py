"""The report of `echelon doctor`: a table of at most 80 columns, or JSON. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

from echelon.codec import encode
from echelon.doctor.collective import reduce_seconds
from echelon.doctor.judge import exclude_list
from echelon.doctor.model import Finding, Node, Severity, number
from echelon.doctor.pairs import connections
from echelon.record import record
from echelon.system.hostlist import compress
from echelon.text import format_size, plural

WIDTH = 80
NODE_WIDTH = 16
Style = Callable[[str, str], str]
VERSION = 1
"""Of the JSON form."""


@record
class Report:
    site: str
    findings: Sequence[Finding]
    nodes: Sequence[Node] = ()
    tiers: Sequence[int] = (1,)
    seconds: float = 0.0
    site_wide: Mapping[str, Any] = field(default_factory=dict)
    """What was read on the login side."""
    run: str = ""
    """The id of the doctor job, if it ran as one."""

    def count(self, severity: Severity) -> int:
        return sum(one.severity is severity for one in self.findings)

    @property
    def excluded(self) -> list[str]:
        """The nodes to leave out. Empty if only one node was checked: then the run has no other."""
        return exclude_list(self.findings) if len(self.nodes) > 1 else []


def format_report(report: Report, style: Style = lambda text, _use: text) -> str:
    """One block per finding, worst first."""
    width = min(NODE_WIDTH, max((len(one.node) for one in report.findings), default=0))
    blocks = [_format_finding(one, width, style) for one in report.findings]
    return "\n".join(blocks)


def _format_finding(finding: Finding, width: int, style: Style) -> str:
    head = f"{finding.severity.value:<8}{finding.node or '-':<{width}}  "
    lines = _wrap(finding.what, " " * len(head) if len(head) < WIDTH // 2 else " " * 10, head)
    lines[0] = style(lines[0][:8], finding.severity.value) + lines[0][8:]
    for label, text in (("why", finding.why), ("fix", finding.fix)):
        if text:
            lines += _wrap(text, " " * 14, f"{'':8}{label:<6}")
    return "\n".join(lines)


def _wrap(text: str, indent: str, head: str) -> list[str]:
    wrapped = textwrap.wrap(
        " ".join(text.split()), WIDTH, initial_indent=head, subsequent_indent=indent, break_on_hyphens=False
    )
    return wrapped or [head.rstrip()]


def format_summary(report: Report) -> list[str]:
    """The last lines: what was measured, how many findings, which nodes to leave out."""
    errors, warnings = report.count(Severity.ERROR), report.count(Severity.WARNING)
    counts = ", ".join((plural(errors, "error"), plural(warnings, "warning")))
    where = f" on {plural(len(report.nodes), 'node')}" if len(report.nodes) > 1 else ""
    lines = [*format_measurements(report.nodes), f"{counts}{where} in {report.seconds:.0f} s"]
    if len(report.excluded) == len(report.nodes) > 1:
        lines.append("no node is left without an error")
    elif report.excluded:
        lines.append(f"leave out these nodes: --exclude {compress(tuple(report.excluded))}")
    return lines


def format_measurements(nodes: Sequence[Node]) -> list[str]:
    facts = [one.facts for one in connections(nodes) if not one.problem]
    rates = sorted(rate for one in facts if (rate := number(one, "bandwidth")) is not None)
    trips = sorted(trip for one in facts if (trip := number(one, "latency")) is not None)
    lines = []
    if rates and trips:
        lines.append(
            f"{plural(len(rates), 'connection')}: {_span([rate * 8 / 1e9 for rate in rates], 'Gbit/s')}, "
            f"latency {_span([trip * 1000 for trip in trips], 'ms', 2)}"
        )
    for size, seconds in sorted(reduce_seconds(nodes).items()):
        span = _span([one * 1000 for one in sorted(seconds)], "ms")
        lines.append(f"all_reduce of {format_size(size)} on {plural(len(seconds), 'rank')}: {span}")
    return lines


def _span(values: Sequence[float], unit: str, digits: int = 1) -> str:
    low, high = f"{values[0]:.{digits}f}", f"{values[-1]:.{digits}f}"
    return f"{low} {unit}" if low == high else f"{low} to {high} {unit}"


def report_as_json(report: Report) -> dict[str, Any]:
    return {
        "version": VERSION,
        "site": report.site,
        "run": report.run or None,
        "tiers": list(report.tiers),
        "seconds": round(report.seconds, 1),
        "ok": report.count(Severity.ERROR) == 0,
        "findings": [encode(one) for one in report.findings],
        "exclude": report.excluded,
        "login": dict(report.site_wide),
        "nodes": {
            node.name: {check: _encode_result(result) for check, result in node.results.items()}
            for node in report.nodes
        },
    }


def _encode_result(result: Any) -> dict[str, Any]:
    fields: dict[str, Any] = encode(result)
    return {key: value for key, value in fields.items() if key != "check" and value not in ("", False)}
