"""The table of rules: one module per family."""

from __future__ import annotations

from echelon.lint.model import Rule
from echelon.lint.rules import (
    addresses,
    counts,
    directives,
    exit_codes,
    nodes,
    pbs,
    ports,
    secrets,
    signals,
    srun,
)

FAMILIES: dict[str, tuple[Rule, ...]] = {
    "Which node runs what": nodes.RULES,
    "Addresses and the rendezvous": addresses.RULES,
    "Ports": ports.RULES,
    "Numbers of nodes, tasks and GPUs": counts.RULES,
    "srun": srun.RULES,
    "Exit codes": exit_codes.RULES,
    "Signals and requeueing": signals.RULES,
    "Directives": directives.RULES,
    "Secrets and variables": secrets.RULES,
    "PBS": pbs.RULES,
}
RULES = tuple(rule for family in FAMILIES.values() for rule in family)
BY_ID = {rule.id: rule for rule in RULES}
