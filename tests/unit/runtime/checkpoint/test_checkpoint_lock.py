"""One job at a time in a folder of checkpoints."""

import subprocess
import sys

import pytest

from echelon.errors import EnvironmentProblem
from echelon.runtime.checkpoint import lock

HOLDER = """
import sys
from pathlib import Path
from echelon.runtime.checkpoint import lock
lock.take(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


def test_a_second_job_is_turned_away_as_long_as_the_first_lives(tmp_path):
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, tmp_path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as first:
        assert first.stdout.readline() == "held\n"
        with pytest.raises(EnvironmentProblem, match="another job saves to") as refusal:
            lock.take(tmp_path)
        assert refusal.value.why.startswith(f"the lock is held by process {first.pid} on ")
        first.kill()
    assert lock.take(tmp_path) is not None, "however it ended"
