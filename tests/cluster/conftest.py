"""Echelon on a real cluster, used by an ordinary user from its login node, and the promise that nothing is left on it."""

import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from cluster import Cluster, missing
from node import ClusterError, wait_for
from running import Run

HERE = Path(__file__).parent
LEAVE_SECONDS = 20  # KillWait and then some
REASON = missing()


def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.cluster)
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


class Tool:
    """`echelon`, as a user of the cluster types it on the login node, in a folder of its own."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster = cluster
        self.folder = folder
        self.mark = uuid.uuid4().hex
        # torch's compiler, which DDP imports, keeps a cache beside the nodes' temporary files: not a thing of ours
        self.env = {"TEST_MARK": self.mark, "TORCHINDUCTOR_CACHE_DIR": str(folder / "cache")}

    def argv(self, *args: str) -> list[str]:
        return [sys.executable, "-m", "echelon", *map(str, args)]

    def __call__(self, *args, env=None, cwd=None, timeout=90) -> subprocess.CompletedProcess:
        return self.cluster.run(
            "ctl",
            self.argv(*args),
            env={**self.env, **(env or {})},
            cwd=cwd or self.folder,
            timeout=timeout,
            check=False,
        )

    def start(self, *args, env=None, **options) -> subprocess.Popen:
        """Signals to what this returns reach `echelon` itself."""
        return self.cluster.popen("ctl", self.argv(*args), env={**self.env, **(env or {})}, cwd=self.folder, **options)

    def submit(self, *args, env=None) -> Run:
        result = self("submit", *args, env=env)
        assert result.returncode == 0, result.stderr
        return Run(self, result.stdout.strip())

    def only_run(self) -> Run:
        (path,) = (self.folder / "runs").iterdir()
        return Run(self, path.name)

    def script(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.write_text(text)
        path.chmod(0o755)
        return path


@pytest.fixture
def echelon(cluster):
    folder = cluster.make_folder()
    yield Tool(cluster, folder)
    assert list(folder.glob("runs/*/token")) == [], "a token outlived its attempt"
