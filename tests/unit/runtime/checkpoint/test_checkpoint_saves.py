"""One save: training goes on meanwhile, and it replaces, leaves and promises nothing that it should not."""

import os
import threading

import pytest
from small_training import fingerprint, saved_at, things, train

from echelon.events import Kind, append_event, read_events
from echelon.runtime.checkpoint import names, writer
from echelon.runtime.checkpoint.checkpoint import Checkpoint
from echelon.runtime.checkpoint.verify import committed

pytestmark = pytest.mark.usefixtures("alone")


def test_a_step_that_is_saved_again_replaces_nothing_and_the_later_one_counts(tmp_path):
    saved_at(tmp_path, 5)
    first = (tmp_path / "step-00000005" / "rank-0.bin").read_bytes()
    last = saved_at(tmp_path, 5)
    assert [str(name) for name in committed(tmp_path)] == ["step-00000005", "step-00000005.1"]
    assert (tmp_path / "step-00000005" / "rank-0.bin").read_bytes() == first
    after = things()
    with Checkpoint(tmp_path, every=None, **after):
        assert fingerprint(after) == fingerprint(last)


def test_old_ones_go_after_the_new_one_is_there(tmp_path):
    mine = things()
    checkpoint = Checkpoint(tmp_path, keep=2, keep_every=4, keep_best="min", **mine)
    for step, score in enumerate([5.0, 1.0, 3.0, 2.0, 9.0, 8.0, 7.0], start=1):
        checkpoint.step = step
        checkpoint.save(wait=True, score=score)
    assert [name.step for name in committed(tmp_path)] == [2, 4, 6, 7]
    checkpoint.close()


def test_debris_of_saves_that_never_ended_is_removed_at_the_next_start(tmp_path):
    saved_at(tmp_path, 1)
    for name in (".tmp-2-abcd", ".gone-1234"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "rank-0.bin").write_bytes(b"x")
    Checkpoint(tmp_path, **things()).close()
    assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", "step-00000001"]


def test_a_save_that_fails_is_told_and_leaves_nothing(tmp_path, capsys, monkeypatch):
    saved_at(tmp_path, 1)
    checkpoint = Checkpoint(tmp_path, every=None, **things())
    checkpoint.step = 2
    fails = OSError(28, "No space left on device")
    with monkeypatch.context() as patch:
        patch.setattr(writer.os, "fsync", lambda _: (_ for _ in ()).throw(fails))
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


def test_a_slow_disk_never_piles_up_copies(tmp_path, monkeypatch):
    gate = threading.Event()
    synced = os.fsync
    monkeypatch.setattr(writer.os, "fsync", lambda fd: (gate.wait(30), synced(fd)))
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


def test_training_goes_on_while_a_save_is_under_way_and_changes_nothing_of_it(tmp_path, monkeypatch):
    gate = threading.Event()
    synced = os.fsync
    mine = things()
    checkpoint = Checkpoint(tmp_path, every=None, **mine)
    train(mine, 1)
    before = fingerprint(mine)
    with monkeypatch.context() as patch:
        patch.setattr(writer.os, "fsync", lambda fd: (gate.wait(30), synced(fd)))
        checkpoint.save()
        train(mine, 3)
        gate.set()
        checkpoint.wait()
    checkpoint.load()
    assert fingerprint(mine) == before
    checkpoint.close()


def test_under_echelon_a_save_is_an_event_and_whoever_was_replaced_commits_no_more(tmp_path, monkeypatch, capsys):
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
    assert checkpoint.problem.why.startswith("generation 1 of this run has taken over")
    assert [name.step for name in committed(checkpoint.folder)] == [1]
    assert not [path for path in checkpoint.folder.iterdir() if names.is_debris(path.name)]
    checkpoint.close()
