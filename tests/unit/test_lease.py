"""One writer at a time, for as long as its process lives."""

import os
import socket
import subprocess
import sys

import pytest

from echelon import lease


@pytest.fixture
def path(tmp_path):
    return tmp_path / "lease"


def test_untaken_lease_is_not_held(path):
    assert not lease.is_held(path)
    assert not path.exists()


@pytest.fixture
def holder(path):
    """Another process that holds the lease."""
    code = f"""
import time
from pathlib import Path
from echelon import lease
lease.acquire(Path({str(path)!r}))
print("taken", flush=True)
time.sleep(600)
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"taken\n"
    yield process
    process.kill()
    process.communicate()


def test_second_taker_gets_the_holder(path, holder):
    with pytest.raises(lease.LeaseHeld, match=f"pid {holder.pid}"):
        lease.acquire(path)


def test_refused_process_keeps_the_lease_file(path, holder):
    before = path.read_bytes()
    with pytest.raises(lease.LeaseHeld):
        lease.acquire(path)
    assert path.read_bytes() == before
    assert lease.is_held(path)


def test_next_holder_replaces_the_name_in_the_file(path):
    os.close(lease.acquire(path))
    os.close(lease.acquire(path))
    assert path.read_text() == f"pid {os.getpid()} on {socket.gethostname()}\n"


def test_is_held_does_not_take_the_lease(path):
    os.close(lease.acquire(path))
    lease.is_held(path)
    os.close(lease.acquire(path))


def test_killed_holder_releases_the_lease(path, holder):
    assert lease.is_held(path)
    holder.kill()
    holder.wait()
    assert not lease.is_held(path)


def test_the_file_is_private(path):
    os.close(lease.acquire(path))
    assert path.stat().st_mode & 0o777 == 0o600
