"""Saves: they run during training, overwrite nothing, leave nothing behind, and report failures."""

import os
import sys
import threading

import pytest
from small_training import fingerprint, saved_at, things, train

from echelon.errors import EnvironmentProblem
from echelon.events import Kind, append_event, read_events
from echelon.train.checkpoint import file_format, write
from echelon.train.checkpoint.api import Checkpoint
from echelon.train.checkpoint.saver import unsaved_error
from echelon.train.checkpoint.verify import committed_checkpoints

pytestmark = pytest.mark.usefixtures("alone")


def test_step_saved_twice_keeps_both_and_loads_the_later(tmp_path):
    saved_at(tmp_path, 5)
    first = (tmp_path / "step-00000005" / "rank-0.bin").read_bytes()
    last = saved_at(tmp_path, 5)
    assert [str(name) for name in committed_checkpoints(tmp_path)] == ["step-00000005", "step-00000005.1"]
    assert (tmp_path / "step-00000005" / "rank-0.bin").read_bytes() == first
    after = things()
    with Checkpoint(tmp_path, every=None, **after):
        assert fingerprint(after) == fingerprint(last)


def test_old_checkpoints_are_removed_after_a_save(tmp_path):
    mine = things()
    checkpoint = Checkpoint(tmp_path, keep=2, keep_every=4, keep_best="min", **mine)
    for step, score in enumerate([5.0, 1.0, 3.0, 2.0, 9.0, 8.0, 7.0], start=1):
        checkpoint.step = step
        checkpoint.save(wait=True, score=score)
    assert [name.step for name in committed_checkpoints(tmp_path)] == [2, 4, 6, 7]
    checkpoint.close()


def test_next_start_removes_unfinished_saves(tmp_path):
    saved_at(tmp_path, 1)
    for name in (".tmp-2-abcd", ".gone-1234"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "rank-0.bin").write_bytes(b"x")
    Checkpoint(tmp_path, **things()).close()
    assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", "step-00000001"]


def test_failed_save_is_reported_and_leaves_nothing(tmp_path, capsys, monkeypatch):
    saved_at(tmp_path, 1)
    checkpoint = Checkpoint(tmp_path, every=None, **things())
    checkpoint.step = 2
    fails = OSError(28, "No space left on device")
    with monkeypatch.context() as patch:
        patch.setattr(write.os, "fsync", lambda _: (_ for _ in ()).throw(fails))
        checkpoint.save(wait=True)
    assert (checkpoint.saved, checkpoint.problem.why) == (
        None,
        "rank 0 cannot write rank-0.bin: No space left on device",
    )
    assert "step 2 was not saved" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", "step-00000001"]
    checkpoint.save(wait=True)
    assert (checkpoint.saved, checkpoint.problem) == (2, None)
    checkpoint.close()


def test_slow_disk_has_at_most_one_save_in_progress(tmp_path, monkeypatch):
    gate = threading.Event()
    synced = os.fsync
    monkeypatch.setattr(write.os, "fsync", lambda fd: (gate.wait(30), synced(fd)))
    checkpoint = Checkpoint(tmp_path, every=1, **things())
    for _ in range(200):
        checkpoint.after_step()
        assert sum(thread.name.startswith("echelon-save") for thread in threading.enumerate()) <= 1
    assert (checkpoint.step, checkpoint.saved) == (200, None), "training went on"
    gate.set()
    checkpoint.wait()
    assert checkpoint.saved == 1
    for _ in range(1000):
        checkpoint.after_step()
        checkpoint.wait()
    checkpoint.close()
    assert checkpoint.saved > 200, "what was due is made up for"


def test_cost_of_a_save_decides_when_the_next_is_due(tmp_path, monkeypatch):
    monkeypatch.setattr("echelon.train.checkpoint.schedule.FIRST_AUTO_SAVE_SECONDS", 0.0)
    checkpoint = Checkpoint(tmp_path, **things())
    while checkpoint.saved is None:
        checkpoint.after_step()
        checkpoint.wait()
    first = checkpoint.saved
    assert checkpoint._saver.last.waited > 0
    for _ in range(200):
        checkpoint.after_step()
        checkpoint.wait()
    assert checkpoint.saved == first, "the next one is not due for a minute"
    checkpoint.close()


@pytest.mark.parametrize("asynchronous", [True, False])
def test_failed_save_is_not_retried_immediately(tmp_path, monkeypatch, asynchronous):
    monkeypatch.setattr("echelon.train.checkpoint.schedule.FIRST_AUTO_SAVE_SECONDS", 0.0)
    checkpoint = Checkpoint(tmp_path, asynchronous=asynchronous, **things())
    monkeypatch.setattr(write.os, "fsync", full_disk)
    for _ in range(200):
        checkpoint.after_step()
        checkpoint.wait()
    assert checkpoint._saver._count == 1, "the next one is not due for a minute"
    assert checkpoint._saver.last.problem is not None
    assert 0 < checkpoint._saver.last.waited < checkpoint._saver.last.seconds
    assert checkpoint._saver.longest_seconds == 0, "it says nothing of how long a save takes"
    checkpoint.close(failed=True)


def test_training_during_a_save_does_not_change_it(tmp_path, monkeypatch):
    gate = threading.Event()
    synced = os.fsync
    mine = things()
    checkpoint = Checkpoint(tmp_path, every=None, **mine)
    train(mine, 1)
    before = fingerprint(mine)
    with monkeypatch.context() as patch:
        patch.setattr(write.os, "fsync", lambda fd: (gate.wait(30), synced(fd)))
        checkpoint.save()
        train(mine, 3)
        gate.set()
        checkpoint.wait()
    checkpoint.load()
    assert fingerprint(mine) == before
    checkpoint.close()


def test_save_writes_event_and_replaced_process_cannot_commit(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("ECHELON_RUN_DIR", str(tmp_path))
    (tmp_path / "attempt-0").mkdir()
    checkpoint = Checkpoint(every=None, **things())
    checkpoint.step = 1
    checkpoint.save(wait=True)
    (event,) = read_events(tmp_path / "events.jsonl")
    assert (event.kind, event.fields["step"]) == (Kind.CHECKPOINT, 1)
    assert event.fields["bytes"] > 1000
    append_event(tmp_path / "events.jsonl", Kind.GENERATION, 0, generation=1)
    checkpoint.step = 2
    checkpoint.save(wait=True)
    assert checkpoint.problem.why.startswith("generation 1 of this run has started")
    assert [name.step for name in committed_checkpoints(checkpoint.folder)] == [1]
    assert not [path for path in checkpoint.folder.iterdir() if file_format.is_leftover(path.name)]
    with pytest.raises(EnvironmentProblem, match="the last step is not saved: generation 1"):
        checkpoint.close()


FULL = OSError(28, "No space left on device")


def full_disk(_fd):
    raise FULL


def test_leaving_the_block_with_unsaved_steps_raises(tmp_path, monkeypatch):
    with pytest.raises(EnvironmentProblem) as raised, Checkpoint(tmp_path, every=None, **things()) as checkpoint:  # noqa: PT012
        checkpoint.step = 900
        checkpoint.save(wait=True)
        checkpoint.step = 1000
        monkeypatch.setattr(write.os, "fsync", full_disk)
    assert raised.value.what == "the last 100 steps are not saved: No space left on device"
    assert "the newest saved step is 900" in raised.value.why
    assert checkpoint.saved == 900


def test_exit_with_success_and_unsaved_steps_raises(tmp_path, monkeypatch):
    monkeypatch.setattr(write.os, "fsync", full_disk)
    with pytest.raises(EnvironmentProblem, match="5 steps"), Checkpoint(tmp_path, **things()) as checkpoint:  # noqa: PT012
        checkpoint.step = 5
        sys.exit(0)


def test_exit_with_failure_is_not_replaced_by_a_failed_save(tmp_path, monkeypatch):
    monkeypatch.setattr(write.os, "fsync", full_disk)
    with pytest.raises(SystemExit, match="75"), Checkpoint(tmp_path, **things()) as checkpoint:  # noqa: PT012
        checkpoint.step = 5
        checkpoint.save(wait=True)
        sys.exit(75)


def test_closing_after_a_failed_save_raises(tmp_path, monkeypatch):
    checkpoint = Checkpoint(tmp_path, **things())
    checkpoint.step = 5
    monkeypatch.setattr(write.os, "fsync", full_disk)
    checkpoint.save(wait=True)
    with pytest.raises(EnvironmentProblem, match="5 steps are not saved: No space left on device"):
        checkpoint.close()
    checkpoint.close()


def test_closing_with_steps_after_the_last_save_is_allowed(tmp_path):
    checkpoint = Checkpoint(tmp_path, **things())
    checkpoint.step = 5
    checkpoint.save(wait=True)
    checkpoint.step = 6
    checkpoint.close()


def test_last_save_that_fails_once_is_retried(tmp_path, monkeypatch, capsys):
    synced, calls = os.fsync, iter([True])
    with Checkpoint(tmp_path, every=None, **things()) as checkpoint:
        checkpoint.step = 5
        monkeypatch.setattr(write.os, "fsync", lambda fd: full_disk(fd) if next(calls, False) else synced(fd))
    assert checkpoint.saved == 5
    assert "step 5 was not saved" in capsys.readouterr().err


def test_error_of_the_script_is_not_replaced_by_a_failed_save(tmp_path, monkeypatch):
    monkeypatch.setattr(write.os, "fsync", full_disk)
    with pytest.raises(KeyError), Checkpoint(tmp_path, every=None, **things()) as checkpoint:  # noqa: PT012
        checkpoint.step = 5
        raise KeyError


@pytest.mark.parametrize(
    ("saved", "problem", "what"),
    [
        (
            900,
            "rank 3 cannot write rank-3.bin: Disk quota exceeded",
            "the last 100 steps are not saved: Disk quota exceeded",
        ),
        (None, "rank 0 cannot write x: No space left on device", "1000 steps are not saved: No space left on device"),
        (None, None, "1000 steps are not saved: it is not known whether the last save succeeded"),
    ],
)
def test_unsaved_error_names_the_steps_and_the_reason(tmp_path, saved, problem, what):
    cause = None if problem is None else EnvironmentProblem("step 1000 was not saved", why=problem)
    assert unsaved_error(1000, saved, cause, tmp_path).what == what
