"""Files that an agent and its ranks exchange in the node folder."""

import json
import os
import signal
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from echelon.wire.node_dir import MARK, NodeDir, parse_error, remove_abandoned
from echelon.wire.reports import ErrorRecord


@pytest.fixture
def node_dir(tmp_path):
    return NodeDir(tmp_path)


def test_folder_is_private_named_after_the_run_and_removed():
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
def test_steps_are_read_as_reported(node_dir, raw, read):
    node_dir.progress(3).write_bytes(struct.pack("<qq", *raw))
    assert node_dir.read_progress(3) == read


@pytest.mark.parametrize("data", [b"", b"short", b"x" * 17])
def test_incomplete_progress_file_is_not_progress(node_dir, data):
    node_dir.progress(0).write_bytes(data)
    assert node_dir.read_progress(0) == (None, None)


def test_new_generation_removes_files_of_the_previous_one(node_dir):
    node_dir.error(0).write_text("{}")
    node_dir.stacks(0).write_text("stacks")
    node_dir.fatal(0).write_text("stack of a crash")
    node_dir.progress(0).write_bytes(struct.pack("<qq", 9, 9))
    node_dir.prepare(0)
    assert not node_dir.error(0).exists()
    assert not node_dir.stacks(0).exists()
    assert not node_dir.fatal(0).exists()
    assert node_dir.read_progress(0) == (None, None)


def test_ranks_do_not_share_files(node_dir):
    paths = {node_dir.progress(0), node_dir.progress(1), node_dir.error(0), node_dir.stacks(0), node_dir.fatal(0)}
    assert len(paths) == 5


CRASH = (
    "Fatal Python error: Segmentation fault\n\n"
    'Thread 0x1 (most recent call first):\n  File "/lib/queue.py", line 1 in get\n\n'
    'Current thread 0x2 (most recent call first):\n  File "/home/me/train.py", line 3 in step\n'
)
OWN = '  File "echelon/agent/run_script.py", line 161 in _run_code\n  File "<frozen runpy>", line 88 in _run_code\n'
SHORT = (
    "Fatal Python error: Segmentation fault\n\n"
    'Current thread 0x2 (most recent call first):\n  File "/home/me/train.py", line 3 in step\n'
)


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("", ""),
        ("no crash", ""),
        (CRASH, SHORT),
        (CRASH + OWN, SHORT),
        (CRASH.replace("train.py", "worker.py") + OWN + CRASH, SHORT),
        ("x" * (1 << 19) + CRASH, SHORT),
    ],
    ids=["empty", "other text", "other threads", "own frames", "a child crashed before", "huge"],
)
def test_a_crash_leaves_the_stack_of_its_thread(node_dir, written, read):
    node_dir.fatal(0).write_text(written)
    assert node_dir.read_fatal_stack(0) == read


def test_stack_is_empty_without_a_crash_file(node_dir):
    assert node_dir.read_fatal_stack(0) == ""
    node_dir.fatal(0).symlink_to("/etc/passwd")
    assert node_dir.read_fatal_stack(0) == ""


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
    [
        "",
        "{",
        "[]",
        "3",
        "null",
        "{}",
        '{"type": "X"}',
        '{"message": "text"}',
        '{"message": {"message": "a"}}',
        '{"type": "X", "time": "noon", "message": "", "traceback": ""}',
    ],
)
def test_invalid_error_record_is_none(node_dir, text):
    node_dir.error(0).write_text(text)
    assert node_dir.read_error(0) is None


def test_missing_error_record_is_none(node_dir):
    assert node_dir.read_error(5) is None


RUN = "gpt-20260115-101500-7f3a"


def create_and_die(folder):
    """A node folder whose agent was killed."""
    code = f"from echelon.wire.node_dir import NodeDir; import os; print(NodeDir.create('{RUN}').path, flush=True); os.kill(os.getpid(), 9)"
    argv, env = [sys.executable, "-c", code], {**os.environ, "TMPDIR": str(folder)}
    killed = subprocess.run(argv, env=env, stdout=subprocess.PIPE, text=True, check=False)
    assert killed.returncode == -signal.SIGKILL
    return Path(killed.stdout.strip())


@pytest.mark.parametrize("run_id", [RUN, f"{RUN}-12", "my-net-2-20260115-101500-7f3a"])
def test_the_folder_of_a_killed_agent_is_removed_by_the_next(tmp_path, monkeypatch, run_id):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    left = create_and_die(tmp_path)
    left = left.rename(left.with_name(left.name.replace(RUN, run_id)))
    living = NodeDir.create(run_id)
    other = NodeDir.create(run_id)
    assert not left.exists()
    assert living.path.exists()
    assert other.path.exists()


@pytest.mark.parametrize("name", ["echelon", "echelon-notes", "echelon-gpt-abcdefgh", f"echelon-{RUN}-results"])
def test_a_folder_of_another_name_is_never_removed(tmp_path, name):
    left = create_and_die(tmp_path).rename(tmp_path / name)
    remove_abandoned(tmp_path)
    assert left.exists()


@pytest.mark.parametrize("lock", [None, b"", b"mine\n", MARK + b"and more"])
def test_a_folder_without_our_mark_is_never_removed(tmp_path, lock):
    folder = tmp_path / f"echelon-{RUN}-abcdefgh"
    folder.mkdir()
    if lock is not None:
        (folder / "lock").write_bytes(lock)
    remove_abandoned(tmp_path)
    assert folder.exists()


def test_links_to_a_node_folder_or_lock_are_never_followed(tmp_path):
    kept = create_and_die(tmp_path).rename(tmp_path / "kept")
    folder = tmp_path / f"echelon-{RUN}-abcdefgh"
    folder.mkdir()
    (folder / "lock").symlink_to(kept / "lock")
    (tmp_path / f"echelon-{RUN}-ijklmnop").symlink_to(kept)
    remove_abandoned(tmp_path)
    assert kept.exists()
    assert folder.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")
@pytest.mark.parametrize("path", ["", "lock"])
def test_a_folder_of_another_user_is_never_removed(tmp_path, path):
    folder = create_and_die(tmp_path)
    os.chown(folder / path, 12345, 12345)
    remove_abandoned(tmp_path)
    assert folder.exists()


def test_folder_being_created_is_not_removed_by_others(tmp_path):
    """Another agent looks for abandoned folders between any two lines of the one that creates its folder."""
    looks = 0

    def trace(frame, event, _):
        nonlocal looks
        if not frame.f_code.co_filename.endswith("node_dir.py"):
            return None
        if event == "line" and frame.f_code.co_name in ("create", "lock_folder"):
            looks += 1
            remove_abandoned(tmp_path)
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        node_dir = NodeDir.create(RUN, tmp_path)
    finally:
        sys.settrace(before)
    assert looks > 5
    assert sorted(path.name for path in node_dir.path.iterdir()) == ["lock"]


CREATE_MANY = """
import sys
from pathlib import Path
from echelon.wire.node_dir import NodeDir
for number in range(int(sys.argv[2])):
    node_dir = NodeDir.create(sys.argv[3], Path(sys.argv[1]))
    node_dir.prepare(number)
    assert node_dir.read_progress(number) == (None, None)
    node_dir.remove()
"""


def test_agents_starting_together_keep_their_folders(tmp_path):
    many = os.environ.get("NODE_FOLDERS_PER_PROCESS", "40")
    argv = [sys.executable, "-c", CREATE_MANY, str(tmp_path), many, RUN]
    processes = [subprocess.Popen(argv, stderr=subprocess.PIPE, text=True) for _ in range(8)]
    assert [process.communicate()[1] for process in processes] == [""] * 8
    assert list(tmp_path.iterdir()) == []
