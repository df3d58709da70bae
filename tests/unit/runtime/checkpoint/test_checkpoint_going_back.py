"""Who goes back to an earlier step goes on from there, and commits keep their order."""

import json
import zlib

import pytest
from small_training import fingerprint, gone_back, saved_at, things

from echelon.codec import encode
from echelon.runtime.checkpoint import names
from echelon.runtime.checkpoint.checkpoint import Checkpoint
from echelon.runtime.checkpoint.verify import committed, read_manifest

pytestmark = pytest.mark.usefixtures("alone")


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
