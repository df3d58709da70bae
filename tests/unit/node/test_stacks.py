"""What is saved of a process before a hang is ended."""

import os
import subprocess
import time
from pathlib import Path

import pytest

from echelon.node import stacks

NOW = 1000.0


@pytest.fixture
def files(tmp_path):
    """Three files, last written ten seconds ago."""
    made = [tmp_path / str(index) for index in range(3)]
    for file in made:
        file.write_text("stack")
        os.utime(file, (NOW - 10, NOW - 10))
    return made


def test_files_that_were_left_alone_for_a_moment_are_settled(files):
    assert stacks.is_settled(files, 0.5, NOW)


def test_no_files_are_settled():
    assert stacks.is_settled([], 0.5, NOW)


def test_a_file_that_still_grows_is_not(files):
    os.utime(files[1], (NOW - 0.2, NOW - 0.2))
    assert not stacks.is_settled(files, 0.5, NOW)


def test_an_empty_file_is_not(files):
    files[2].write_text("")
    os.utime(files[2], (NOW - 10, NOW - 10))
    assert not stacks.is_settled(files, 0.5, NOW)


def test_a_file_that_is_not_there_is_not(files):
    files[0].unlink()
    assert not stacks.is_settled(files, 0.5, NOW)


@pytest.fixture
def sleeper():
    process = subprocess.Popen(["sleep", "600"])
    deadline = time.monotonic() + 30
    while b"sleep" not in Path(f"/proc/{process.pid}/cmdline").read_bytes() and time.monotonic() < deadline:
        time.sleep(0.001)  # empty while the kernel is still about to run it
    yield process.pid
    process.kill()
    process.wait()


def test_a_process_is_described_with_its_children_and_its_stacks(sleeper):
    text = stacks.describe(os.getpid(), "Thread 0x1 in train")
    assert f"pid {os.getpid()}  State:" in text
    assert f"pid {sleeper}  State:" in text
    assert "sleep 600" in text
    assert text.endswith("Thread 0x1 in train\n")


def test_that_there_are_no_python_stacks_is_said(sleeper):
    assert "no Python stacks" in stacks.describe(sleeper, "")


def test_a_process_that_is_gone_is_said_to_be():
    assert "State: gone" in stacks.describe(2**22 + 1, "")
