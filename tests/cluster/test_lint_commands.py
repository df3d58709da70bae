"""The `echelon run` commands that `echelon lint` suggests for five tutorials: each starts the world of its script."""

import json
import os
import re
import shlex
import sys

import pytest

from folder import UID
from pbs.gadi import Gadi
from running import wait_for
from standins.images import image_tree, squashed, standins
from test_lint_traps import found_rules
from tutorials import IN_PARTS, PBS_TOTALS, REQUEUE, TWO_REQUESTS

RANKS = "import os, socket\nprint(socket.gethostname(), os.environ['RANK'], os.environ['WORLD_SIZE'], flush=True)\n"
SCRIPTS = ("sample.py", "train.py", "main.py", "trainer.py")
ON_SLURM = [
    pytest.param("a.md", IN_PARTS, [["n1", "n2"]], 2, id="in parts"),
    pytest.param("a.rst", TWO_REQUESTS.replace("16Go", "1Go"), [["n1", "n2", "n3"]], 4, id="two requests"),
    pytest.param("a.md", REQUEUE, [["n1", "n2"], ["n1", "n2"]], 4, id="requeue"),
]


def suggested_commands(echelon, name, text):
    """The arguments of each suggested command."""
    echelon.script(name, text)
    replacements = json.loads(echelon("lint", "--json", name).stdout)["replacements"]
    return [re.sub(r"^echelon ", "", one["command"]) for one in replacements]


def user_environment(echelon):
    """What the scripts use besides Slurm: a conda environment and a file to source."""
    conda = echelon.folder / "envs" / "torch"
    for folder in (conda / "conda-meta", conda / "bin"):
        folder.mkdir(parents=True)
    for name in ("python", "python3"):
        (conda / "bin" / name).write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
        (conda / "bin" / name).chmod(0o755)
    echelon.script("setup_env.sh", "export SET_UP=1\n")
    path = standins(echelon.cluster.home, echelon.cluster.environ()["PATH"])
    return {**path, "STANDIN_ENVS": str(conda.parent), "CONDA_EXE": "conda", "ECHELON_COLD": "1"}


def places(result):
    """Host, rank and number of ranks, as each rank printed them."""
    assert result.returncode == 0, result.stderr + result.stdout
    return sorted(re.findall(r"(n\d) (\d+) (\d+)$", result.stdout, re.MULTILINE), key=lambda one: int(one[1]))


def expected_places(hosts, per_node):
    size = len(hosts) * per_node
    return [(hosts[rank // per_node], str(rank), str(size)) for rank in range(size)]


@pytest.mark.parametrize(("name", "text", "worlds", "per_node"), ON_SLURM)
def test_suggested_command_starts_the_ranks_of_the_script(echelon, name, text, worlds, per_node):
    for script in SCRIPTS:
        echelon.script(script, RANKS)
    environ = user_environment(echelon)
    commands = suggested_commands(echelon, name, text)
    assert len(commands) == len(worlds)
    for command, hosts in zip(commands, worlds, strict=True):
        typed = ["bash", "-c", f"{sys.executable} -m echelon {command}"]  # quoted as a user would paste it
        result = echelon.cluster.run("ctl", typed, cwd=echelon.folder, env={**echelon.env, **environ}, check=False)
        assert places(result) == expected_places(hosts, per_node), command


def test_suggested_command_of_a_pbs_script_starts_its_ranks(cluster, echelon):
    train = echelon.script("train.py", RANKS)
    module = echelon.script("cuda", "#%Module\n")
    text = PBS_TOTALS.replace("/data/train.py", str(train)).replace("load cuda", f"load {module}")
    (command,) = suggested_commands(echelon, "a.pbs", text)
    with Gadi(cluster) as pbs:
        environ = {
            **echelon.env,
            "PATH": f"{pbs.bin}:{cluster.environ()['PATH']}",
            "ECHELON_COLD": "1",
            "ECHELON_ACCOUNT": "ab12",  # the tutorial leaves it to its reader
            "ECHELON_TIME": "10m",
            "ECHELON_MEM": "16G",
        }
        typed = ["bash", "-c", f"{sys.executable} -m echelon {command}"]
        result = cluster.run("ctl", typed, cwd=echelon.folder, env=environ, check=False)
        wait_for(lambda: not pbs.unfinished(), "the job to end")
    assert places(result) == expected_places(["n1", "n2"], 4), command


START = "#!/bin/bash\n#SBATCH -N 1\nexport NODE_RANK=$SLURM_NODEID\n"
TRAP = f"{START}enroot start torch bash -c 'echo \"rank [$NODE_RANK]\"'\n"
CORRECTED = f"{START}enroot start --env NODE_RANK torch bash -c 'echo \"rank [$NODE_RANK]\"'\n"


def test_enroot_passes_only_the_variables_that_are_named(cluster, echelon):
    """The stand-in passes variables as the real enroot 4.1.2 was seen to do."""
    image = squashed(image_tree(echelon.folder / "tree"), echelon.folder / "torch.sqsh")
    image.chmod(0o644)
    environ = {**echelon.env, **standins(cluster.home, cluster.environ()["PATH"])}
    cluster.run("ctl", ["enroot", "create", "-n", "torch", image], cwd=echelon.folder, env=environ)
    printed = []
    for number, text in enumerate((TRAP, CORRECTED)):
        script = echelon.script(f"{number}.sh", text)
        os.chown(script, UID, UID)
        cluster.run("ctl", ["sbatch", "--wait", "-o", f"{number}.out", script], cwd=echelon.folder, env=environ)
        printed.append((echelon.folder / f"{number}.out").read_text().strip())
        assert ("enroot-variable-not-passed" in found_rules(text)) is (number == 0)
    assert printed == ["rank []", "rank [0]"]
