"""Fixtures: echelon on a real cluster, run by an ordinary user on the login node. Checks that no process is left."""

import contextlib
import functools
import os
from pathlib import Path

import pytest

from cluster import Cluster, missing
from node import ClusterError, wait_for
from pbs.server import Server
from pbs.using import use
from tool import Tool
from versions import tree_of, version_of

HERE = Path(__file__).parent
LEAVE_SECONDS = 20  # KillWait and then some
REASON = missing()
# sid changes from day to day: a day on which its Slurm cannot be had is not an error
collect_ignore = [] if version_of("sid") else ["test_slurm_newest.py"]


def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.cluster)
            if REASON and os.environ.get("SKIP_NOTHING"):
                pytest.exit(f"nothing may be skipped here, but there is no cluster: {REASON}", returncode=1)
            if REASON:
                item.add_marker(pytest.mark.skip(reason=REASON))


@pytest.fixture(scope="session")
def clusters():
    """A function that returns the cluster with the Slurm of a Debian suite, None for the machine's own."""
    with contextlib.ExitStack() as ends:

        @functools.cache
        def up(suite: str | None) -> Cluster:
            hosts = 0 if suite else 2
            return ends.enter_context(Cluster(ssh_hosts=hosts, slurm=tree_of(suite) if suite else None))

        yield up


@pytest.fixture
def slurm():
    """The Debian suite whose Slurm a test runs on; None is the machine's own. Tests parametrise it."""
    return


@pytest.fixture
def cluster(clusters, slurm, record_property):
    up = clusters(slurm)
    record_property("slurm", version_of(slurm) if slurm else machine_version(up))
    return up


@functools.cache
def machine_version(cluster: Cluster) -> str:
    return cluster.version()


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
