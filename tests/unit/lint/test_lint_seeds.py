"""The exact findings in scripts with the traps of five published tutorials (tests/tutorials.py).

The tutorials themselves are checked too if they are beside the project.
"""

from pathlib import Path

import pytest
from linting import findings

from tutorials import CONTAINER, IN_PARTS, PBS_TOTALS, REQUEUE, TWO_REQUESTS

TUTORIALS = Path(__file__).parents[4] / "shared" / "seeds"

CASES = {
    "in parts": (
        "a.md",
        IN_PARTS,
        [
            (8, "ntasks-without-per-node"),
            (22, "srun-without-kill-on-bad-exit"),
        ],
    ),
    "container": (
        "a.md",
        CONTAINER,
        [
            (5, "etc-hosts-address"),
            (7, "enroot-variable-not-passed"),
            (11, "standalone-multi-node"),
        ],
    ),
    "two requests": (
        "a.rst",
        TWO_REQUESTS,
        [
            (11, "mixed-gpu-requests"),
            (12, "invalid-value"),
            (15, "srun-without-kill-on-bad-exit"),
            (20, "endpoint-without-port"),
        ],
    ),
    "pbs totals": (
        "a.pbs",
        PBS_TOTALS,
        [
            (5, "setup-failure-ignored"),
            (8, "fixed-port"),
            (9, "launcher-on-first-node"),
            (10, "pbs-nodeid"),
        ],
    ),
    "requeue": (
        "a.md",
        REQUEUE,
        [
            (12, "fixed-port"),
            (14, "srun-cpus-per-task"),
            (14, "srun-without-kill-on-bad-exit"),
            (16, "exit-code-lost"),
            (23, "setup-failure-ignored"),
            (26, "exit-code-lost"),
            (37, "requeue-overwrites-log"),
            (38, "signal-reaches-only-bash"),
            (42, "requeue-without-limit"),
            (47, "setup-failure-ignored"),
            (49, "fixed-port"),
            (50, "trap-foreground-child"),
            (50, "srun-cpus-per-task"),
            (50, "srun-without-kill-on-bad-exit"),
            (55, "c10d-ignores-node-rank"),
            (55, "node-rank-in-batch-shell"),
        ],
    ),
}
IN_TUTORIALS = {
    "000": [(29, "ntasks-without-per-node"), (50, "srun-without-kill-on-bad-exit")],
    "001": [(92, "etc-hosts-address"), (148, "enroot-variable-not-passed"), (160, "standalone-multi-node")],
    "002": [
        (22, "mixed-gpu-requests"),
        (28, "invalid-value"),
        (43, "srun-without-kill-on-bad-exit"),
        (48, "endpoint-without-port"),
    ],
    "003": [
        (43, "setup-failure-ignored"),
        (57, "fixed-port"),
        (63, "launcher-on-first-node"),
        (64, "pbs-nodeid"),
    ],
    "004": [
        (32, "fixed-port"),
        (39, "srun-cpus-per-task"),
        (39, "srun-without-kill-on-bad-exit"),
        (44, "exit-code-lost"),
        (62, "setup-failure-ignored"),
        (83, "exit-code-lost"),
        (104, "requeue-overwrites-log"),
        (105, "signal-reaches-only-bash"),
        (117, "requeue-without-limit"),
        (129, "setup-failure-ignored"),
        (133, "fixed-port"),
        (139, "trap-foreground-child"),
        (139, "srun-cpus-per-task"),
        (139, "srun-without-kill-on-bad-exit"),
        (145, "c10d-ignores-node-rank"),
        (145, "node-rank-in-batch-shell"),
    ],
}


@pytest.mark.parametrize(("path", "text", "expected"), CASES.values(), ids=CASES)
def test_traps_of_the_tutorials_are_found_exactly(path, text, expected):
    assert findings(text, path) == expected


def test_the_tutorials_themselves_have_these_findings():
    """Without the folder there is nothing to compare: the scripts above contain the same traps."""
    found = {path.name[:3]: findings(path.read_text(), str(path)) for path in TUTORIALS.glob("*.txt")}
    assert found in ({}, IN_TUTORIALS)
