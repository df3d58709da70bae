"""Echelon on a real cluster, used by an ordinary user from its login node, and the promise that nothing is left on it."""

import os
from pathlib import Path

import pytest

from cluster import Cluster, missing
from node import ClusterError, wait_for
from pbs.server import Server
from pbs.using import use
from tool import Tool

HERE = Path(__file__).parent
LEAVE_SECONDS = 20  # KillWait and then some
REASON = missing()


def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.cluster)
            if REASON and os.environ.get("SKIP_NOTHING"):
                pytest.exit(f"nothing may be skipped here, but there is no cluster: {REASON}", returncode=1)
            if REASON:
                item.add_marker(pytest.mark.skip(reason=REASON))


@pytest.fixture(scope="session")
def cluster():
    with Cluster(ssh_hosts=2) as up:
        yield up


@pytest.fixture(autouse=True)
def nothing_left(request):
    """Whatever a test did to the cluster, it ends its own jobs; nodes that it broke are mended here."""
    if "cluster" not in request.fixturenames:
        yield
        return
    cluster = request.getfixturevalue("cluster")
    yield
    cluster.restore()
    try:
        wait_for(
            lambda: not cluster.jobs() and not cluster.leftovers(), "every job and process to be gone", LEAVE_SECONDS
        )
    except ClusterError:
        left = cluster.jobs(), cluster.leftovers()
        cluster.cancel_all()
        cluster.end_leftovers()
        cluster.wait_idle()
        pytest.fail(f"left running: jobs {left[0]}, processes {left[1]}")
    cluster.wait_idle()
    debris = cluster.debris()
    cluster.remove_debris()  # the next test is not to blame
    assert debris == {}, "left in the nodes' own temporary folders"


@pytest.fixture
def echelon(cluster):
    folder = cluster.make_folder()
    yield Tool(cluster, folder)
    assert list(folder.glob("runs/*/token")) == [], "a token outlived its attempt"


@pytest.fixture
def pbs(cluster, echelon):
    with Server(cluster) as server:
        use(echelon, server)
        yield server
        wait_for(lambda: not server.unfinished(), f"PBS to be rid of {server.unfinished()}", 20)
