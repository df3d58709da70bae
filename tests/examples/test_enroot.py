"""The example with an image, without image and cluster: the first command of its README."""

import shutil

import pytest
from readme import EXAMPLES, first_command


@pytest.mark.torch
def test_both_nodes_are_rehearsed_without_the_image(echelon, tmp_path):
    folder = shutil.copytree(EXAMPLES / "enroot", tmp_path / "enroot", ignore=shutil.ignore_patterns("__pycache__"))
    del echelon.env["ECHELON_ON"]
    result = echelon(*first_command("enroot"), cwd=folder)
    assert result.returncode == 0, result.stderr + result.stdout
    said = sorted(line.partition(" on ")[0] for line in result.stdout.splitlines() if "add up to 6" in line)
    assert said == [f"[{rank}] rank {rank} of 4" for rank in range(4)]
