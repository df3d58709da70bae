"""The lock allows one job at a time in a folder of checkpoints."""

import subprocess
import sys
import threading
from contextlib import contextmanager
from datetime import timedelta

import pytest

from echelon.errors import EnvironmentProblem
from echelon.train.checkpoint import folder
from echelon.train.checkpoint.folder import RunContext, prepare_folder

HOLDER = """
import sys
from pathlib import Path
from echelon.train.checkpoint import folder
folder.acquire_lock(Path(sys.argv[1]), run=sys.argv[2])
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


def test_second_job_is_refused_while_the_first_runs(tmp_path):
    with held(tmp_path) as first:
        with pytest.raises(EnvironmentProblem, match="another job saves to") as refusal:
            folder.acquire_lock(tmp_path, patience=SHORT)
        assert refusal.value.why.startswith(f"the lock is held by process {first.pid} on ")
    assert folder.acquire_lock(tmp_path) is not None, "however it ended"


def test_lock_waits_for_a_job_that_is_ending(tmp_path):
    with held(tmp_path) as first:
        ending = threading.Timer(0.3, first.kill)
        ending.start()
        assert folder.acquire_lock(tmp_path, patience=LONG) is not None
        ending.join()


def test_folder_outside_of_the_run_is_locked(tmp_path):
    folder, run = tmp_path / "given", tmp_path / "runs" / "two"
    folder.mkdir()
    (folder / ".tmp-5-abcd").mkdir()
    run_context = RunContext(run=run, run_id="two")
    with held(folder, "one") as first:
        with pytest.raises(EnvironmentProblem) as refusal:
            prepare_folder(folder, run_context, SHORT)
        assert refusal.value.why.startswith(f"the lock is held by run one, process {first.pid} on ")
        assert None not in (refusal.value.origin, refusal.value.hint)
        assert (folder / ".tmp-5-abcd").exists(), "what the other run is writing"
    prepare_folder(folder, run_context, SHORT)
    assert not (folder / ".tmp-5-abcd").exists()
    assert (folder / ".lock").read_text().startswith("run two, process ")


def test_lock_of_an_earlier_start_of_the_run_is_ignored(tmp_path):
    with held(tmp_path, "one"):
        assert folder.acquire_lock(tmp_path, run="one", patience=SHORT) is None


def test_folder_inside_the_run_is_not_locked(tmp_path):
    prepare_folder(None, RunContext(run=tmp_path, run_id="one"), SHORT)
    prepare_folder(tmp_path / "checkpoints" / "second", RunContext(run=tmp_path, run_id="one"), SHORT)
    assert list(tmp_path.rglob(".lock")) == []
