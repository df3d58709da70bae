"""Snapshots on real nodes: the code at submission runs, also after a requeue and without a shared folder."""

import os
import sys

from cluster import Cluster
from folder import UID
from running import Run, wait_for

TRAIN = """
import os, pathlib, sys, time
print("waiting", flush=True)
while os.environ["ECHELON_ATTEMPT"] == "0" and not pathlib.Path(os.environ["ECHELON_SUBMIT_DIR"], "go").exists():
    time.sleep(0.02)
import model
print("ran", model.VERSION, os.getcwd(), flush=True)
sys.exit(75 if os.environ["ECHELON_ATTEMPT"] == "0" else 0)
"""


def project(cluster: Cluster, echelon) -> None:
    """A repository of the user's, whose working tree is edited in place later."""
    echelon.script("train.py", TRAIN)
    echelon.script("model.py", "VERSION = 'old'\n")
    echelon.script(".gitignore", "runs/\ngo\ncache/\n")
    for path in echelon.folder.iterdir():
        os.chown(path, UID, UID)
    cluster.run("ctl", ["git", "init", "-q"], cwd=echelon.folder)


def edit(echelon) -> None:
    echelon.script("model.py", "VERSION = 'new'\n")
    echelon.script("train.py", "raise SystemExit('edited')\n")
    (echelon.folder / "go").touch()


def test_on_slurm_the_old_code_runs_before_and_after_a_requeue(cluster, echelon):
    project(cluster, echelon)
    run = echelon.submit("-N", "2", "--cold", "--snapshot", "--requeues", "1", "train.py")
    wait_for(lambda: "waiting" in run.rank_log(0) and "waiting" in run.rank_log(1), "both ranks")
    edit(echelon)
    assert run.wait()["outcome"] == "succeeded"
    assert len(run.events("started")) == 2
    for attempt in range(2):
        assert f"ran old {run.path}/code\n" in run.rank_log(1, attempt)
    assert not (run.path / "code.tar.gz").exists()


def test_the_runs_of_an_array_share_one_snapshot(cluster, echelon):
    project(cluster, echelon)
    (echelon.folder / "go").touch()
    result = echelon("submit", "--array", "0-1", "--cold", "--snapshot", "--requeues", "1", "train.py")
    assert result.returncode == 0, result.stderr
    assert result.stderr.count("snapshot of") == 1
    runs = [Run(echelon, line) for line in result.stdout.split()]
    for run in runs:
        assert run.wait()["outcome"] == "succeeded"
        assert f"ran old {run.path}/code\n" in run.rank_log(0)
    first, second = (run.path / "code" / "model.py" for run in runs)
    assert first.samefile(second)


def test_unshared_hosts_get_the_snapshot_not_the_working_tree(cluster, echelon):
    project(cluster, echelon)
    echelon.script("train.py", "import model, sys; print(model.VERSION, flush=True); sys.exit(3)")
    words = ["--on", "ssh", "--hosts", "h1", "--cold", "--python", sys.executable, "--snapshot"]
    assert echelon("run", *words, "train.py").returncode == 3
    edit(echelon)
    run = echelon.only_run()
    again = echelon("resume", run.id)
    assert (again.returncode, run.rank_log(0, attempt=1)) == (3, "old\n"), again.stderr
    assert (run.path / "code.tar.gz").exists()
