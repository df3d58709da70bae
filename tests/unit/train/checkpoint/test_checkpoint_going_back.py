"""Training that returns to an earlier step continues from it, and commits keep their order."""

import json
import zlib

import pytest
from small_training import fingerprint, gone_back, saved_at, things

from echelon.codec import encode
from echelon.train.checkpoint import file_format
from echelon.train.checkpoint.api import Checkpoint
from echelon.train.checkpoint.verify import committed_checkpoints, read_manifest

pytestmark = pytest.mark.usefixtures("alone")


def test_training_from_earlier_step_is_the_newest(tmp_path):
    saved_at(tmp_path, 500, 1000, 1500, 2000)
    saved = gone_back(tmp_path, 500, 600)
    assert [name.step for name in committed_checkpoints(tmp_path)] == [500, 1500, 2000, 600], "with what it came from"
    after = things()
    with Checkpoint(tmp_path, every=None, **after) as checkpoint:
        assert checkpoint.step == 600
        assert fingerprint(after) == saved


def test_commit_numbers_order_commits_despite_wrong_clock(tmp_path, monkeypatch):
    saved_at(tmp_path, 500, 1000, 1500)
    monkeypatch.setattr("echelon.train.checkpoint.write.time.time", lambda: 1.0)
    gone_back(tmp_path, 500, 600)
    assert [name.step for name in committed_checkpoints(tmp_path)] == [500, 1000, 1500, 600]


def test_manifest_names_its_parent(tmp_path):
    saved_at(tmp_path, 1, 2)
    assert [read_manifest(tmp_path / str(name)).parent for name in committed_checkpoints(tmp_path)] == [
        "",
        "step-00000001",
    ]


def test_manifests_without_a_number_are_older(tmp_path):
    saved_at(tmp_path, 3, 7)
    for name in ("step-00000003", "step-00000007"):
        manifest = read_manifest(tmp_path / name)
        body = {key: value for key, value in encode(manifest).items() if key not in ("commit", "parent")}
        text = json.dumps({"crc": zlib.crc32(json.dumps(body, sort_keys=True).encode()), "manifest": body})
        (tmp_path / name / file_format.MANIFEST_FILE).write_text(text)
    gone_back(tmp_path, 3, 5)
    assert [name.step for name in committed_checkpoints(tmp_path)] == [3, 7, 5]


def restored_step(folder):
    with Checkpoint(folder, every=None, **things()) as checkpoint:
        return checkpoint.step


@pytest.fixture
def reject(tmp_path, monkeypatch):
    monkeypatch.setenv("ECHELON_RUN_DIR", str(tmp_path / "run"))
    return lambda name: monkeypatch.setenv("ECHELON_REJECTED_CHECKPOINT", name)


def test_run_set_to_go_back_loads_the_older_checkpoint(tmp_path, reject, capsys):
    saved_at(tmp_path, 10, 20)
    files = sorted(tmp_path.rglob("*"))
    reject("step-00000020")
    assert restored_step(tmp_path) == 10
    text = "set aside step-00000020: the run failed several times soon after a restore"
    assert text in capsys.readouterr().err
    assert set(tmp_path.rglob("*")) <= set(files), "nothing is written"
    gone_back(tmp_path, 10, 20)
    assert restored_step(tmp_path) == 20, "another checkpoint of the same step is not set aside"


def test_rejected_checkpoint_that_was_removed_rejects_no_other(tmp_path, reject, capsys):
    saved_at(tmp_path, 10, 30)
    reject("step-00000020")
    assert restored_step(tmp_path) == 30
    assert "set aside" not in capsys.readouterr().err


def test_only_checkpoint_is_never_set_aside(tmp_path, reject, capsys):
    saved_at(tmp_path, 20)
    reject("step-00000020")
    assert restored_step(tmp_path) == 20
    assert "set aside" not in capsys.readouterr().err


def test_checkpoint_that_was_set_aside_is_the_last_resort(tmp_path, reject):
    saved_at(tmp_path, 10, 20)
    reject("step-00000020")
    (tmp_path / "step-00000010" / "rank-0.bin").write_bytes(b"damaged")
    assert restored_step(tmp_path) == 20


def test_checkpoint_that_the_script_asks_for_is_loaded(tmp_path, reject):
    saved_at(tmp_path, 10, 20)
    reject("step-00000020")
    with Checkpoint(tmp_path, every=None, **things()) as checkpoint:
        assert checkpoint.load(20)
        assert checkpoint.step == 20
