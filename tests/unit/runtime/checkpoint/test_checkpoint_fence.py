"""Who has been replaced commits no more."""

import pytest

from echelon.events import Kind, append_event
from echelon.run_dir import RunDir
from echelon.runtime.checkpoint.fence import Standing, replaced_by


@pytest.fixture
def run(tmp_path):
    run = RunDir(tmp_path)
    run.attempt(0).path.mkdir()
    append_event(run.events, Kind.GENERATION, 0, generation=0)
    return run


def standing(run, attempt=0, generation=0):
    return Standing(run=run.path, attempt=attempt, generation=generation)


def test_the_newest_may(run):
    assert replaced_by(standing(run)) is None


def test_not_after_the_next_generation_has_begun(run):
    append_event(run.events, Kind.GENERATION, 0, generation=2)
    append_event(run.events, Kind.PROGRESS, 0, step=7, generation=9)
    assert replaced_by(standing(run)) == "generation 2"
    assert replaced_by(standing(run, generation=2)) is None


def test_not_after_the_next_attempt_has_begun(run):
    append_event(run.events, Kind.GENERATION, 0, generation=3)
    run.attempt(1).path.mkdir()
    append_event(run.events, Kind.GENERATION, 1, generation=0)
    assert replaced_by(standing(run, generation=3)) == "attempt 1"
    assert replaced_by(standing(run, attempt=1)) is None


def test_without_echelon_there_is_nobody_to_replace_us(tmp_path):
    assert replaced_by(Standing.from_environ({})) is None
    assert replaced_by(standing(RunDir(tmp_path / "gone"))) is None


def test_it_is_told_by_the_environment(run):
    environ = {
        "ECHELON_RUN_DIR": str(run.path),
        "ECHELON_RUN_ID": "r",
        "ECHELON_ATTEMPT": "2",
        "ECHELON_GENERATION": "1",
    }
    assert Standing.from_environ(environ) == Standing(run=run.path, run_id="r", attempt=2, generation=1)
