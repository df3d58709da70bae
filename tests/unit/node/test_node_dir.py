"""What an agent and its ranks leave for each other in the node-local folder."""

import json
import os
import signal
import struct
import subprocess
import sys
import tempfile

import pytest

from echelon.node.messages import ErrorRecord
from echelon.node.node_dir import NodeDir, parse_error, remove_abandoned


@pytest.fixture
def node_dir(tmp_path):
    return NodeDir(tmp_path)


def test_the_folder_is_private_named_after_the_run_and_goes_away():
    node_dir = NodeDir.create("gpt-1")
    assert "echelon-gpt-1-" in node_dir.path.name
    assert node_dir.path.stat().st_mode & 0o777 == 0o700
    node_dir.notice.touch()
    node_dir.remove()
    assert not node_dir.path.exists()
    node_dir.remove()


def test_a_rank_that_has_reported_nothing_has_no_step(node_dir):
    assert node_dir.read_progress(0) == (None, None)
    node_dir.prepare(0)
    assert node_dir.read_progress(0) == (None, None)


@pytest.mark.parametrize(
    ("raw", "read"), [((0, -1), (0, None)), ((7, 5), (7, 5)), ((-1, 5), (None, 5)), ((2**62, 0), (2**62, 0))]
)
def test_steps_are_read_as_they_were_reported(node_dir, raw, read):
    node_dir.progress(3).write_bytes(struct.pack("<qq", *raw))
    assert node_dir.read_progress(3) == read


@pytest.mark.parametrize("data", [b"", b"short", b"x" * 17])
def test_a_torn_progress_file_is_no_progress(node_dir, data):
    node_dir.progress(0).write_bytes(data)
    assert node_dir.read_progress(0) == (None, None)


def test_a_new_generation_starts_with_a_clean_slate(node_dir):
    node_dir.error(0).write_text("{}")
    node_dir.stacks(0).write_text("stacks")
    node_dir.progress(0).write_bytes(struct.pack("<qq", 9, 9))
    node_dir.prepare(0)
    assert not node_dir.error(0).exists()
    assert not node_dir.stacks(0).exists()
    assert node_dir.read_progress(0) == (None, None)


def test_ranks_do_not_share_files(node_dir):
    assert len({node_dir.progress(0), node_dir.progress(1), node_dir.error(0), node_dir.stacks(0)}) == 4


def test_our_own_record_of_an_exception_is_read(node_dir):
    record = {"time": 3, "type": "ValueError", "message": "bad", "traceback": "Traceback"}
    node_dir.error(0).write_text(json.dumps(record))
    assert node_dir.read_error(0) == ErrorRecord(time=3.0, type="ValueError", message="bad", traceback="Traceback")


def test_the_record_that_torch_leaves_is_read():
    extra = {"py_callstack": "Traceback (most recent call last)", "timestamp": "1700000000"}
    record = parse_error({"message": {"message": "KeyError: 'a: b'", "errorCode": 1, "extraInfo": extra}})
    assert record == ErrorRecord(
        time=1.7e9, type="KeyError", message="'a: b'", traceback="Traceback (most recent call last)"
    )


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "3", "null", "{}", '{"type": "X"}', '{"message": "text"}', '{"message": {"message": "a"}}',
     '{"type": "X", "time": "noon", "message": "", "traceback": ""}'],
)  # fmt: skip
def test_last_words_that_make_no_sense_are_none(node_dir, text):
    node_dir.error(0).write_text(text)
    assert node_dir.read_error(0) is None


def test_no_last_words_are_none(node_dir):
    assert node_dir.read_error(5) is None


def test_a_folder_whose_agent_was_killed_is_removed_by_the_next_one(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    code = "from echelon.node.node_dir import NodeDir; import os; NodeDir.create('gpt'); os.kill(os.getpid(), 9)"
    killed = subprocess.run([sys.executable, "-c", code], env={**os.environ, "TMPDIR": str(tmp_path)}, check=False)
    assert killed.returncode == -signal.SIGKILL
    (left,) = tmp_path.iterdir()
    living = NodeDir.create("gpt")
    other = NodeDir.create("gpt")
    assert not left.exists()
    assert living.path.exists()
    assert other.path.exists()


@pytest.mark.parametrize("name", ["echelon-notes", "echelon"])
def test_folders_of_other_people_and_other_things_are_left_alone(tmp_path, name):
    (tmp_path / name).mkdir()
    (tmp_path / "echelon-link").symlink_to(tmp_path / name)
    remove_abandoned(tmp_path)
    assert (tmp_path / name).exists()
    assert (tmp_path / "echelon-link").is_symlink()
