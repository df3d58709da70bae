"""`echelon cancel` of several runs: their order, and what happens after an error."""

import pytest

from echelon.cli.cancel import cancel_all, cancel_order
from echelon.errors import SchedulerError
from echelon.run_dir import RunDir
from echelon.states import JobState


def runs(tmp_path, *states):
    return [(RunDir(tmp_path / f"gpt-{index}"), state) for index, state in enumerate(states)]


@pytest.mark.parametrize(
    ("states", "order"),
    [
        ([JobState.RUNNING, JobState.QUEUED, JobState.QUEUED], [1, 2, 0]),
        ([JobState.QUEUED, JobState.RUNNING, JobState.REQUEUED], [0, 2, 1]),
        ([JobState.SUCCEEDED, JobState.RUNNING, JobState.CANCELLED], [1]),
        ([JobState.RUNNING, JobState.STARTING], [1, 0]),
        ([JobState.STARTING, JobState.QUEUED], [1, 0]),
    ],
)
def test_runs_that_wait_are_cancelled_first(tmp_path, states, order):
    found = cancel_order(runs(tmp_path, *states))
    assert [run.run_id for run in found] == [f"gpt-{index}" for index in order]


def test_an_error_does_not_stop_the_others(tmp_path, capsys):
    def ask(run_dir):
        if run_dir.run_id == "gpt-0":
            raise SchedulerError("Slurm did not cancel the job", why="Access/permission denied")
        return True

    run_dirs = [run_dir for run_dir, _ in runs(tmp_path, *[JobState.QUEUED] * 3)]
    done, errors = cancel_all(run_dirs, ask)
    assert [run.run_id for run in done] == ["gpt-1", "gpt-2"]
    assert [error.why for error in errors] == ["Access/permission denied"]
    assert "gpt-0 was not cancelled: Access/permission denied" in capsys.readouterr().err
