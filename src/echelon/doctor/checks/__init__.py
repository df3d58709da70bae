"""The checks of one node (tier 2): a table of collectors, which read the machine, and pure judges."""

from __future__ import annotations

from echelon.doctor.checks import compute, gpus, limits, mounts, software, storage, variables
from echelon.doctor.model import Check

CHECKS: tuple[Check, ...] = (
    software.CHECK,
    gpus.CHECK,
    compute.CHECK,
    limits.CHECK,
    storage.CHECK,
    mounts.CHECK,
    variables.CHECK,
)
