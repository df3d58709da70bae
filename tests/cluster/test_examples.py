"""The unchanged examples on a real cluster, with the commands of their READMEs."""

import os
import re
import shutil
import sys
from pathlib import Path

import pytest

from folder import UID
from pbs.gadi import Gadi
from running import wait_for
from standins.images import image_tree, squashed, standins

EXAMPLES = Path(__file__).parents[2] / "examples"
GRAPH_SAGE = EXAMPLES / "graph_sage" / "train.py"


def test_graph_sage_learns_on_two_nodes_of_slurm(cluster, echelon):
    result = echelon(
        "run",
        "-N",
        "2",
        "--procs-per-node",
        "2",
        GRAPH_SAGE,
        "--nodes",
        "8000",
        "--edges",
        "120000",
        "--epochs",
        "3",
        "--batch-size",
        "64",
    )
    remove_what_pyg_leaves(cluster)
    assert result.returncode == 0, result.stderr + result.stdout
    assert "2 nodes x 2 ranks" in result.stderr
    assert "[0] 4 ranks with 1600 nodes each; 12.5% is chance" in result.stdout
    assert result.stdout.count("made graph-data") == 1
    shares = [float(share) for share in re.findall(r"accuracy (\S+)%", result.stdout)]
    assert len(shares) == 3
    assert shares[-1] > max(40, shares[0] + 5)
    assert echelon.only_run().events("generation")[0]["hosts"] == ["n1", "n2"]


def remove_what_pyg_leaves(cluster):
    """It writes the code that it generates to a temporary file, imports it, and leaves it there."""
    for name, paths in cluster.debris().items():
        its = [path for path in paths if path.name.startswith(("torch_geometric", "__pycache__"))]
        cluster.run(name, ["rm", "-rf", *its], user="root")


# Gadi

SMALL = ("--steps", "51", "--every", "10", "--kill-rank", "3", "--kill-at", "25")


def copied(folder):
    """Copies the examples into the user's home. Returns the folder for the commands."""
    for name in ("gadi", "trainer"):
        shutil.copytree(EXAMPLES / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "runs"))
    for path in (folder / "gadi", folder / "trainer"):
        os.chown(path, UID, UID)
    return folder / "gadi"


def went_on_and_learned(result):
    assert result.returncode == 0, result.stderr + result.stdout
    assert "rank 3 on " in result.stderr
    assert "was killed by SIGKILL" in result.stderr
    assert "(2 restarts left)" in result.stderr
    assert re.search(r"resumed from step [12]0 \(saved by 4 ranks\)", result.stdout)
    losses = [float(loss) for loss in re.findall(r"  loss (\S+)", result.stdout)]
    assert len(losses) == 2
    assert losses[0] > 3
    assert losses[1] < 1
    assert re.search(r"weights \w+ after 51 steps", result.stdout)


def test_the_trainer_as_a_job_on_gadi(cluster, echelon):
    with Gadi(cluster) as pbs:
        path = f"{pbs.bin}:{cluster.environ()['PATH']}"
        echelon.env |= {"PATH": path, "ECHELON_RUNS": str(echelon.folder / "runs")}
        flags = ("--procs-per-node", "2", "--set", "OMP_NUM_THREADS=1")  # the nodes' 48 CPUs are a pose
        result = echelon("run", *flags, "../trainer/train.py", *SMALL, cwd=copied(echelon.folder))
        wait_for(lambda: not pbs.unfinished(), "the job to end")
        asked = pbs.jobs["0.ctl"].request
    went_on_and_learned(result)
    assert "PBS job 0.ctl in gpuvolta, 2 nodes x 2 ranks, 4 GPUs each" in result.stderr
    totals = {name: asked.resources[name] for name in ("ncpus", "ngpus", "mem", "walltime", "wd", "storage")}
    assert totals == {
        "ncpus": "96",
        "ngpus": "8",
        "mem": "764gb",
        "walltime": "02:00:00",
        "wd": "",
        "storage": "gdata/ab12+scratch/ab12",
    }
    assert (asked.options["q"], asked.options["P"]) == ("gpuvolta", "ab12")
    hosts = [event["hosts"] for event in echelon.only_run().events("generation")]
    assert hosts == [["n1", "n2"], ["n1", "n2"]]


@pytest.fixture
def ssh_config(cluster):
    """The names that the example gives to its hosts, in the user's own configuration."""
    path = cluster.home / ".ssh" / "config"
    path.write_text("Host gpu1\n  HostName h1\nHost gpu2\n  HostName h2\n")
    yield
    path.unlink()


@pytest.mark.usefixtures("ssh_config")
def test_the_trainer_on_the_hosts_of_a_table(cluster, echelon):
    folder = cluster.make_folder(cluster.scratch)  # which all of them see
    flags = ("--on", "ssh", "--hosts", "pair", "--procs-per-node", "2", "--python", sys.executable)
    shared = {"ECHELON_RUNS": str(folder / "runs"), "TORCHINDUCTOR_CACHE_DIR": str(folder / "cache")}
    result = echelon("run", *flags, "../trainer/train.py", *SMALL, cwd=copied(folder), env=shared)
    went_on_and_learned(result)
    assert "rank 3 on gpu2" in result.stderr


def test_the_enroot_example_with_torchrun_inside(echelon):
    """Its six lines as they stand, but for what these nodes have: two GPUs each that are none, and no /data."""
    folder = Path(shutil.copytree(EXAMPLES / "enroot", echelon.folder / "enroot"))
    os.chown(folder, UID, UID)
    settings = (folder / "echelon.toml").read_text()
    (folder / "echelon.toml").write_text(settings.replace("gpus_per_node = 8", "gpus_per_node = 2"))
    squashed(image_tree(echelon.folder / "tree", NAME="image"), folder / "pytorch.sqsh").chmod(0o644)
    echelon.env |= standins(echelon.cluster.home, echelon.cluster.environ()["PATH"])
    (echelon.folder / "data").mkdir()
    mount = f"{echelon.folder / 'data'}:/data:ro"
    result = echelon("run", "--mount", mount, "train.py", cwd=folder)
    assert result.returncode == 0, result.stderr + result.stdout
    said = sorted(line for line in result.stdout.splitlines() if "add up to 6" in line)
    assert [line[:18] for line in said] == [f"[{rank}] rank {rank} of 4 on" for rank in range(4)]
    assert sum(" on n1," in line for line in said) == sum(" on n2," in line for line in said) == 2
