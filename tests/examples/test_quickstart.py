"""The examples run as their READMEs and our README say."""

from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.torch
def test_quickstart_loses_a_rank_resumes_from_its_checkpoint_and_learns(echelon):
    result = echelon(
        "run", "-N", "2", "-g", "2", "--restarts", "1", EXAMPLES / "quickstart" / "train.py", "--kill-rank", "3",
        "--kill-at", "120",
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert "rank 3 on node1 was killed by SIGKILL" in result.stderr
    assert "[0] training from step 100 on 4 ranks" in result.stdout
    (share,) = [line.split()[1] for line in result.stdout.splitlines() if "told apart" in line]
    assert float(share.rstrip("%")) > 95


@pytest.mark.torch
def test_the_trainer_goes_on_where_it_was_and_its_model_can_be_taken_elsewhere(echelon):
    script = EXAMPLES / "trainer" / "train.py"
    result = echelon("run", "-g", "2", "--restarts", "1", script, "--kill-rank", "1")
    assert result.returncode == 0, result.stderr + result.stdout
    assert "rank 1 on node0 was killed by SIGKILL" in result.stderr
    assert "goes on from step-" in result.stdout
    (said,) = [line for line in result.stdout.splitlines() if "told apart after 300 steps" in line]
    assert float(said.split()[1].rstrip("%")) > 90
    assert echelon("export", echelon.only_run().id, "spirals.pt").returncode == 0
    assert (echelon.folder / "spirals.pt").stat().st_size > 1000
