"""Unusable hosts are all reported at once, and skipped if enough others remain."""

import os
import shlex
import sys
import time

import pytest

from cluster import UID, Cluster
from running import patience
from ssh_hosts import (
    STEPS,
    on,
)


@pytest.fixture(scope="module")
def cluster():
    with Cluster(nodes=0, ssh_hosts=3) as up:
        yield up


def test_all_problems_are_reported_at_once(cluster, echelon):
    """Down, refused, a changed key, an unknown name, no torch, a wrong clock: one error within ten seconds."""
    configure(cluster, changed=cluster.home_of("h2").parent.parent / "h3" / "key.pub")
    cluster.power_off("h1")
    fast, login = wrong_clock(cluster, "h2", "python3"), cluster.home_of("h2") / ".bashrc"
    login.write_text("PATH=$HOME:$PATH\n")
    began = time.monotonic()
    result = echelon("run", "--on", "ssh", "--hosts", "h1,refusing,changed,nobody,h3,h2", STEPS)
    took = time.monotonic() - began
    for file in (cluster.home / ".ssh" / "config", fast, login):
        file.unlink()
    assert result.returncode == 5
    assert "6 of 6 hosts cannot be used" in result.stderr
    for words in (
        "h1: no answer",
        "ssh: connect to host h1 port 22: ",
        "refusing: connection refused",
        "Connection refused",
        "changed: host key has changed",
        "ssh-keygen -R changed",
        "nobody: cannot resolve host name",
        "Could not resolve hostname",
        "h3: /usr/bin/python3 has no torch",
        "--python PATH",
        "h2: clock is 90 s ahead of this machine",
        "synchronize its clock",
    ):
        assert words in result.stderr, result.stderr
    assert took < patience(12)
    assert echelon.only_run().events("generation") == []


def configure(cluster, changed):
    """Names of the user's own for hosts that misbehave."""
    config = cluster.home / ".ssh" / "config"
    known = cluster.home / ".ssh" / "changed_hosts"
    known.write_text(f"changed {changed.read_text()}")
    config.write_text(
        "Host refusing\n  HostName h2\n  HostKeyAlias h2\n  Port 2222\n"
        f"Host changed\n  HostName h2\n  UserKnownHostsFile {known}\n  HostKeyAlias changed\n"
    )
    for file in (config, known):
        os.chown(file, UID, UID)


def test_host_that_is_down_is_skipped_if_others_suffice(cluster, echelon):
    cluster.power_off("h1")
    result = echelon("run", *on("h1,h2,h3", "-N", "2", "--spare-nodes", "1", "--cold"), STEPS)
    assert result.returncode == 0, result.stderr
    assert [event["hosts"] for event in echelon.only_run().events("generation")] == [["h2", "h3"]]
    assert "warning: h1 is not used: no answer" in result.stderr


def wrong_clock(cluster, host, name):
    """The host's Python is replaced by one whose clock is wrong until it has answered."""
    python = cluster.home_of(host) / name
    program = "import sys, time\nright = time.time\ntime.time = lambda: right() + 90\nexec(sys.argv[3])\n"
    python.write_text(f'#!/bin/sh\nexec {shlex.join([sys.executable, "-Ic", program])} "$@"\n')
    python.chmod(0o755)
    return python


def test_host_with_a_wrong_clock_is_skipped_if_others_suffice(cluster, echelon):
    python = wrong_clock(cluster, "h1", "python")
    (cluster.home_of("h2") / "python").symlink_to(sys.executable)
    options = ("--on", "ssh", "--python", "./python", "--cold")
    alone = echelon("run", *options, "--hosts", "h1", "--", "true")
    both = echelon("run", *options, "--hosts", "h1,h2", "-N", "1", "--spare-nodes", "1", "--", "true")
    for file in (python, cluster.home_of("h2") / "python"):
        file.unlink()
    assert alone.returncode == 5, alone.stderr
    assert "h1: clock is 90 s ahead of this machine" in alone.stderr
    assert "try     synchronize its clock" in alone.stderr
    assert both.returncode == 0, both.stderr
    assert "warning: h1 is not used: clock is 90 s ahead of this machine" in both.stderr


def test_an_interface_that_is_not_there_is_named(echelon):
    result = echelon("run", *on("h1,h2", "--cold", "--interface", "ib7"), STEPS)
    assert result.returncode == 3
    assert "no interface ib7 with an address on h" in result.stderr
