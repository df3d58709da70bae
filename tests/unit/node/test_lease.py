"""One writer at a time, for as long as its process lives."""

import os
import socket
import subprocess
import sys

import pytest

from echelon.node import lease


@pytest.fixture
def path(tmp_path):
    return tmp_path / "lease"


def test_a_lease_nobody_took_is_not_held(path):
    assert not lease.is_held(path)
    assert not path.exists()


@pytest.fixture
def holder(path):
    """Another process that holds the lease."""
    code = f"""
import time
from pathlib import Path
from echelon.node import lease
lease.take(Path({str(path)!r}))
print("taken", flush=True)
time.sleep(600)
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"taken\n"
    yield process
    process.kill()
    process.communicate()


def test_a_second_taker_is_told_who_holds_it(path, holder):
    with pytest.raises(lease.LeaseHeld, match=f"pid {holder.pid}"):
        lease.take(path)


def test_a_refused_taker_leaves_it_as_it_was(path, holder):
    before = path.read_bytes()
    with pytest.raises(lease.LeaseHeld):
        lease.take(path)
    assert path.read_bytes() == before
    assert lease.is_held(path)


def test_the_next_taker_writes_its_own_name_over_the_last(path):
    os.close(lease.take(path))
    os.close(lease.take(path))
    assert path.read_text() == f"pid {os.getpid()} on {socket.gethostname()}\n"


def test_looking_does_not_take_it(path):
    os.close(lease.take(path))
    lease.is_held(path)
    os.close(lease.take(path))


def test_a_holder_that_was_killed_holds_nothing(path, holder):
    assert lease.is_held(path)
    holder.kill()
    holder.wait()
    assert not lease.is_held(path)


def test_the_file_is_private(path):
    os.close(lease.take(path))
    assert path.stat().st_mode & 0o777 == 0o600
