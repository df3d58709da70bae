"""The quickstart runs as in the README."""

from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.torch
def test_quickstart_recovers_from_a_killed_rank_and_learns(echelon):
    result = echelon(
        "run",
        "-N",
        "2",
        "-g",
        "2",
        "--restarts",
        "1",
        EXAMPLES / "quickstart" / "train.py",
        "--kill-rank",
        "3",
        "--kill-at",
        "120",
    )
    assert result.returncode == 0, result.stderr
    assert "rank 3 on node1 was killed by SIGKILL" in result.stderr
    assert "[0] training from step 100 on 4 ranks" in result.stdout
    (share,) = [line.split()[1] for line in result.stdout.splitlines() if "classified correctly" in line]
    assert float(share.rstrip("%")) > 95
