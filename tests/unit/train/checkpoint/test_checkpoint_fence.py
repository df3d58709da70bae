"""The fence: a process that a newer start has replaced may not commit."""

import pytest

from echelon.events import Kind, append_event
from echelon.run_dir import RunDir
from echelon.train.checkpoint.folder import RunContext, find_newer_start


@pytest.fixture
def run(tmp_path):
    run = RunDir(tmp_path)
    run.attempt(0).path.mkdir()
    append_event(run.events, Kind.GENERATION, 0, generation=0)
    return run


def run_context(run, attempt=0, generation=0):
    return RunContext(run=run.path, attempt=attempt, generation=generation)


def test_newest_start_is_not_replaced(run):
    assert find_newer_start(run_context(run)) is None


def test_later_generation_replaces_this_one(run):
    append_event(run.events, Kind.GENERATION, 0, generation=2)
    append_event(run.events, Kind.PROGRESS, 0, step=7, generation=9)
    assert find_newer_start(run_context(run)) == "generation 2"
    assert find_newer_start(run_context(run, generation=2)) is None


def test_later_attempt_replaces_this_one(run):
    append_event(run.events, Kind.GENERATION, 0, generation=3)
    run.attempt(1).path.mkdir()
    append_event(run.events, Kind.GENERATION, 1, generation=0)
    assert find_newer_start(run_context(run, generation=3)) == "attempt 1"
    assert find_newer_start(run_context(run, attempt=1)) is None


def test_process_outside_of_a_run_is_never_replaced(tmp_path):
    assert find_newer_start(RunContext.from_environ({})) is None
    assert find_newer_start(run_context(RunDir(tmp_path / "gone"))) is None


def test_start_is_read_from_environ(run):
    environ = {
        "ECHELON_RUN_DIR": str(run.path),
        "ECHELON_RUN_ID": "r",
        "ECHELON_ATTEMPT": "2",
        "ECHELON_GENERATION": "1",
    }
    assert RunContext.from_environ(environ) == RunContext(run=run.path, run_id="r", attempt=2, generation=1)
