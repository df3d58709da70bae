"""Name resolution: every node must find every other node by its name."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from echelon.doctor.model import Facts, Finding, Plan, error, items, text, warning
from echelon.system.network import address_of, resolve_host

NAME = "names"
SECONDS = 8.0


def own_addresses() -> list[str]:
    """All IPv4 addresses of this machine that others can reach."""
    from echelon.errors import EnvironmentProblem

    found = []
    for _, name in socket.if_nameindex():
        try:
            found.append(address_of(name))
        except EnvironmentProblem:
            continue
    return [address for address in found if not address.startswith("127.")]


def collect(roster: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """`roster` has the host name and the addresses of each node, by rank."""
    hosts = []
    for hello in roster.values():
        name = str(hello.get("hostname"))
        hosts.append({"name": name, "found": resolve_host(name), "addresses": list(hello.get("addresses", ()))})
    return {"own": socket.gethostname(), "hosts": hosts}


def judge(node: str, facts: Facts, plan: Plan) -> Sequence[Finding]:  # noqa: ARG001  the same signature for all judges
    own = text(facts, "own")
    return [
        finding
        for host in items(facts, "hosts")
        if isinstance(host, dict)
        for finding in _judge_host(node, host, is_own=host.get("name") == own)
    ]


def _judge_host(node: str, host: Facts, *, is_own: bool) -> Iterator[Finding]:
    name, found, addresses = text(host, "name"), text(host, "found"), [str(one) for one in items(host, "addresses")]
    if not found:
        why = "neither /etc/hosts nor DNS of this node has it"
        yield warning(NAME, node, f"cannot resolve {name}", why, f"add {name} to /etc/hosts or DNS")
    elif found not in addresses and not (is_own and found.startswith("127.")):
        why = f"{name} has {', '.join(addresses[:3])}; see /etc/hosts and DNS of {node}"
        yield error(NAME, node, f"{name} resolves to {found}", why, f"correct the entry of {name} on {node}")


def hung(node: str) -> Finding:
    why = f"no answer within {SECONDS:g} s: the DNS server does not answer"
    return error(NAME, node, "name resolution hangs", why, "check /etc/resolv.conf on the node")
