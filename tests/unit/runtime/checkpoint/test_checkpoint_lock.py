"""One job at a time in a folder of checkpoints."""

import subprocess
import sys
import threading
from contextlib import contextmanager
from datetime import timedelta

import pytest

from echelon.errors import EnvironmentProblem
from echelon.runtime.checkpoint import lock
from echelon.runtime.checkpoint.fence import Standing
from echelon.runtime.checkpoint.folder import prepared

HOLDER = """
import sys
from pathlib import Path
from echelon.runtime.checkpoint import lock
lock.take(Path(sys.argv[1]), run=sys.argv[2])
print("held", flush=True)
sys.stdin.read()
"""
SHORT, LONG = timedelta(seconds=0.2), timedelta(seconds=60)


@contextmanager
def held(folder, run=""):
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, folder, run], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        try:
            assert holder.stdout.readline() == "held\n"
            yield holder
        finally:
            holder.kill()


def test_a_second_job_is_turned_away_as_long_as_the_first_lives(tmp_path):
    with held(tmp_path) as first:
        with pytest.raises(EnvironmentProblem, match="another job saves to") as refusal:
            lock.take(tmp_path, patience=SHORT)
        assert refusal.value.why.startswith(f"the lock is held by process {first.pid} on ")
    assert lock.take(tmp_path) is not None, "however it ended"


def test_a_job_that_is_just_ending_is_waited_for(tmp_path):
    with held(tmp_path) as first:
        ending = threading.Timer(0.3, first.kill)
        ending.start()
        assert lock.take(tmp_path, patience=LONG) is not None
        ending.join()


def test_a_folder_outside_of_the_run_is_locked_against_other_runs(tmp_path):
    folder, run = tmp_path / "given", tmp_path / "runs" / "two"
    folder.mkdir()
    (folder / ".tmp-5-abcd").mkdir()
    standing = Standing(run=run, run_id="two")
    with held(folder, "one") as first:
        with pytest.raises(EnvironmentProblem) as refusal:
            prepared(folder, standing, SHORT)
        assert refusal.value.why.startswith(f"the lock is held by run one, process {first.pid} on ")
        assert None not in (refusal.value.origin, refusal.value.hint)
        assert (folder / ".tmp-5-abcd").exists(), "what the other run is writing"
    prepared(folder, standing, SHORT)
    assert not (folder / ".tmp-5-abcd").exists()
    assert (folder / ".lock").read_text().startswith("run two, process ")


def test_an_earlier_start_of_the_same_run_is_no_obstacle(tmp_path):
    with held(tmp_path, "one"):
        assert lock.take(tmp_path, run="one", patience=SHORT) is None


def test_the_folder_of_the_run_needs_no_lock(tmp_path):
    prepared(None, Standing(run=tmp_path, run_id="one"), SHORT)
    prepared(tmp_path / "checkpoints" / "second", Standing(run=tmp_path, run_id="one"), SHORT)
    assert list(tmp_path.rglob(".lock")) == []
