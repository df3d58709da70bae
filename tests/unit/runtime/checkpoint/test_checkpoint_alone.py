"""A world of one that saves, loads, and finds its files damaged."""

import json
import os
import threading
import zlib
from pathlib import Path

import pytest

from echelon.codec import encode
from echelon.errors import ConfigError, EnvironmentProblem
from echelon.events import Kind, append_event, read_events
from echelon.runtime.checkpoint import names, writer
from echelon.runtime.checkpoint.checkpoint import Checkpoint
from echelon.runtime.checkpoint.manifest import BLOCK, File
from echelon.runtime.checkpoint.verify import Damaged, check_all, check_blocks, committed, read_manifest

torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    for name in [name for name in os.environ if name.startswith(("ECHELON_", "SLURM_", "PMI_", "OMPI_"))]:
        monkeypatch.delenv(name)
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)


def things():
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, [3, 5])
    return {"model": model, "optimizer": optimizer, "scheduler": scheduler}


def train(things, steps):
    for _ in range(steps):
        things["model"](torch.randn(6, 4)).square().mean().backward()
        things["optimizer"].step()
        things["optimizer"].zero_grad()
        things["scheduler"].step()


def fingerprint(things):
    return json.dumps({name: repr(thing.state_dict()) for name, thing in things.items()})


def saved_at(folder, *steps, **options):
    """Checkpoints of these steps, and the things as they were at the last."""
    mine = things()
    checkpoint = Checkpoint(folder, every=None, keep=9, **options, **mine)
    for step in steps:
        train(mine, 1)
        checkpoint.step = step
        checkpoint.save(wait=True)
        assert checkpoint.saved == step
    checkpoint.close()
    return mine


def test_everything_comes_back_as_it_was(tmp_path):
    before = saved_at(tmp_path, 7)
    drawn = torch.rand(3)
    after = things()
    with Checkpoint(tmp_path, every=None, **after) as checkpoint:
        assert checkpoint.step == checkpoint.saved == 7
        assert fingerprint(after) == fingerprint(before)
        assert torch.rand(3).equal(drawn), "the generators too"
    assert [str(name) for name in committed(tmp_path)] == ["step-00000007"], "no step was taken, nothing was saved"


def test_without_checkpoints_it_starts_from_nothing(tmp_path):
    checkpoint = Checkpoint(tmp_path / "new" / "folder", **things())
    assert checkpoint.load() is False
    assert (checkpoint.step, checkpoint.saved, checkpoint.epoch) == (0, None, 0)
    assert (tmp_path / "new" / "folder").stat().st_mode & 0o777 == 0o700
    checkpoint.close()


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x10
    path.write_bytes(data)


DAMAGE = {
    "a flipped bit": flip,
    "the last bit flipped": lambda path: path.write_bytes(path.read_bytes()[:-1] + bytes([path.read_bytes()[-1] ^ 1])),
    "a byte short": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "a byte more": lambda path: path.write_bytes(path.read_bytes() + b"\0"),
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:100]),
    "empty": lambda path: path.write_bytes(b""),
    "zeroed": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "missing": Path.unlink,
    "a folder": lambda path: (path.unlink(), path.mkdir()),
}


@pytest.mark.parametrize("what", DAMAGE)
@pytest.mark.parametrize("file", ["rank-0.bin", names.MANIFEST])
def test_damage_is_found_the_file_named_and_the_one_before_loaded(tmp_path, capsys, file, what):
    before = saved_at(tmp_path, 1)
    good = fingerprint(before)
    saved_at(tmp_path, 2)
    DAMAGE[what](tmp_path / "step-00000002" / file)
    after = things()
    checkpoint = Checkpoint(tmp_path, **after)
    assert checkpoint.load()
    assert checkpoint.step == 1
    assert fingerprint(after) == good
    assert f"step-00000002 is left out: step-00000002/{file} " in capsys.readouterr().err
    checkpoint.close()


def test_where_all_are_damaged_nothing_is_touched_and_all_are_named(tmp_path):
    saved_at(tmp_path, 1, 2)
    for step in (1, 2):
        flip(tmp_path / f"step-0000000{step}" / "rank-0.bin")
    mine = things()
    before = fingerprint(mine)
    checkpoint = Checkpoint(tmp_path, **mine)
    with pytest.raises(EnvironmentProblem, match="none of 2 checkpoints is whole") as error:
        checkpoint.load()
    assert "step-00000001/rank-0.bin" in error.value.why
    assert "step-00000002/rank-0.bin" in error.value.why
    assert fingerprint(mine) == before
    checkpoint.close()


def test_a_manifest_from_another_step_is_no_manifest(tmp_path):
    saved_at(tmp_path, 1)
    (tmp_path / "step-00000001").rename(tmp_path / "step-00000009")
    with pytest.raises(Damaged, match="is of step 1"):
        check_all(tmp_path / "step-00000009")


def test_a_step_by_its_number(tmp_path):
    saved_at(tmp_path, 1, 2, 3)
    checkpoint = Checkpoint(tmp_path, **things())
    assert checkpoint.load(2)
    assert checkpoint.step == 2
    with pytest.raises(ConfigError, match="no checkpoint of step 5"):
        checkpoint.load(5)
    checkpoint.close()


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


def gone_back(folder, to, step):
    """A start that loads an earlier step, goes another way from there, and saves."""
    mine = things()
    checkpoint = Checkpoint(folder, every=None, keep=3, **mine)
    checkpoint.load(to)
    train(mine, 1)
    checkpoint.step = step
    checkpoint.save(wait=True)
    checkpoint.close()
    return fingerprint(mine)


def test_who_goes_back_to_an_earlier_step_goes_on_from_there(tmp_path):
    saved_at(tmp_path, 500, 1000, 1500, 2000)
    saved = gone_back(tmp_path, 500, 600)
    assert [name.step for name in committed(tmp_path)] == [500, 1500, 2000, 600], "with what it came from"
    after = things()
    with Checkpoint(tmp_path, every=None, **after) as checkpoint:
        assert checkpoint.step == 600
        assert fingerprint(after) == saved


def test_the_order_of_commits_is_that_of_their_numbers_whatever_the_clocks_say(tmp_path, monkeypatch):
    saved_at(tmp_path, 500, 1000, 1500)
    monkeypatch.setattr("echelon.runtime.checkpoint.save.time.time", lambda: 1.0)
    gone_back(tmp_path, 500, 600)
    assert [name.step for name in committed(tmp_path)] == [500, 1000, 1500, 600]


@pytest.mark.parametrize("damage", ["a flipped bit", "missing"])
def test_a_damaged_commit_of_an_earlier_step_is_still_the_last_one_and_is_told(tmp_path, capsys, damage):
    saved_at(tmp_path, 500, 1000, 1500)
    gone_back(tmp_path, 500, 600)
    DAMAGE[damage](tmp_path / "step-00000600" / names.MANIFEST)
    assert [name.step for name in committed(tmp_path)] == [500, 1000, 1500, 600]
    checkpoint = Checkpoint(tmp_path, every=None, **things())
    assert checkpoint.load()
    assert "step-00000600 is left out" in capsys.readouterr().err
    checkpoint.close()


def test_after_a_damaged_one_training_goes_on_from_what_it_came_from(tmp_path, capsys):
    saved_at(tmp_path, 500, 1000, 1500, 2000)
    gone_back(tmp_path, 500, 600)
    DAMAGE["a flipped bit"](tmp_path / "step-00000600" / "rank-0.bin")
    with Checkpoint(tmp_path, every=None, **things()) as checkpoint:
        assert checkpoint.step == 500, "2000 was committed later, and belongs to what was abandoned"
        checkpoint.step = 550
        checkpoint.save(wait=True)
    assert "step-00000600 is left out" in capsys.readouterr().err
    assert read_manifest(tmp_path / "step-00000550").parent == "step-00000500"


def test_a_manifest_says_what_training_came_from(tmp_path):
    saved_at(tmp_path, 1, 2)
    assert [read_manifest(tmp_path / str(name)).parent for name in committed(tmp_path)] == ["", "step-00000001"]


def test_manifests_that_have_no_number_yet_are_older_than_those_that_do(tmp_path):
    saved_at(tmp_path, 3, 7)
    for name in ("step-00000003", "step-00000007"):
        manifest = read_manifest(tmp_path / name)
        body = {key: value for key, value in encode(manifest).items() if key not in ("commit", "parent")}
        text = json.dumps({"crc": zlib.crc32(json.dumps(body, sort_keys=True).encode()), "manifest": body})
        (tmp_path / name / names.MANIFEST).write_text(text)
    gone_back(tmp_path, 3, 5)
    assert [name.step for name in committed(tmp_path)] == [3, 7, 5]


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


class Counter:
    def __init__(self):
        self.state = {"count": 0, "extra": None}

    def state_dict(self):
        return self.state

    def load_state_dict(self, state):
        self.state = state


def test_anything_with_a_state_is_saved_and_anything_without_is_refused(tmp_path):
    counter, own = Counter(), Counter()
    counter.state = {"count": 3, "list": [1, (2.5, None)], "tensor": torch.arange(3)}
    own.state = {"mine": torch.ones(2, 2, dtype=torch.bfloat16)}
    checkpoint = Checkpoint(tmp_path, counter=counter, per_rank={"own": own})
    checkpoint.save(wait=True)
    counter.state, own.state = {}, {}
    checkpoint.load()
    assert counter.state["list"] == [1, (2.5, None)]
    assert counter.state["tensor"].equal(torch.arange(3))
    assert own.state["mine"].equal(torch.ones(2, 2, dtype=torch.bfloat16))
    counter.state = {"thread": threading.Lock()}
    with pytest.raises(ConfigError, match=r"counter\['thread'\] is of type _thread.lock"):
        checkpoint.save()
    checkpoint.close()
    with pytest.raises(ConfigError, match="'what' cannot be saved: it is a int"):
        Checkpoint(tmp_path, what=3)


def test_what_does_not_fit_is_refused_with_what_does_not(tmp_path):
    saved_at(tmp_path, 1)
    other = {**things(), "model": torch.nn.Linear(3, 3)}
    checkpoint = Checkpoint(tmp_path, **other)
    with pytest.raises(ConfigError, match="'model' does not fit the Linear that is there now"):
        checkpoint.load()
    checkpoint.close()
    more = Checkpoint(tmp_path, **things(), scaler=torch.amp.GradScaler("cpu"))
    with pytest.raises(ConfigError, match="the checkpoint has no 'scaler'") as error:
        more.load()
    assert "model, optimizer, scheduler" in error.value.why
    more.close()


def test_the_default_folder_is_the_runs_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    elsewhere = Checkpoint(**things())
    assert elsewhere.folder == tmp_path / "checkpoints"
    elsewhere.close()
    monkeypatch.setenv("ECHELON_RUN_DIR", str(tmp_path / "run"))
    ours = Checkpoint(**things())
    assert ours.folder == tmp_path / "run" / "checkpoints"
    ours.close()


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


def test_parts_of_the_checking_are_together_all_of_it(tmp_path):
    data = os.urandom(1 << 20) * 40
    size, crcs = writer.write_shard(tmp_path / "rank-0.bin", [memoryview(data), b"index"])
    file = File(name="rank-0.bin", size=size, crcs=tuple(crcs), begin=0, end=0, index=0)
    assert size == len(data) + 5
    assert len(crcs) == 3
    with (tmp_path / "rank-0.bin").open("r+b") as damaged:
        damaged.seek(BLOCK + 17)
        damaged.write(b"\0\1\2")
    found = []
    for part in range(4):
        try:
            check_blocks(tmp_path, [file], part=part, parts=4)
        except Damaged as damage:
            found.append((part, str(damage)))
    assert [part for part, _ in found] == [1]
    assert f"bytes {BLOCK} to {2 * BLOCK}" in found[0][1]
