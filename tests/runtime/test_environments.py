"""Environments on this machine: real modules, virtual environments and a container, and nodes that cannot enter them."""

import json
import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from running import wait_for
from standins.images import bwrap_exec, need

pytestmark = need("/usr/bin/bwrap", "/usr/share/modules/init/bash")

FACTS = """
import json, os, shutil, sys, tempfile
names = ("RANK", "VIRTUAL_ENV", "CONDA_PREFIX", "GREETING", "FROM_HERE", "LINES", "QUOTED", "LOADEDMODULES", "STANDIN_FLAGS")
facts = {name: os.environ.get(name) for name in names}
facts |= {"cwd": os.getcwd(), "python": shutil.which("python"), "image": os.path.exists("/etc/image"), "uid": os.getuid()}
try:
    os.unlink(tempfile.mkstemp(dir="/")[1])
    facts["root"] = "writable"
except OSError:
    facts["root"] = "read-only"
facts["seen"] = sorted(os.listdir(sys.argv[1])) if len(sys.argv) > 1 and os.path.isdir(sys.argv[1]) else None
print(json.dumps(facts), flush=True)
"""
ALL_REDUCE = """
import os
import subprocess
import torch
import torch.distributed as dist
import echelon
dist.init_process_group("gloo")
total = torch.tensor([float(dist.get_rank())])
dist.all_reduce(total)
print("sum", total.item(), "of", dist.get_world_size(), "in", os.path.exists("/etc/image"), flush=True)
dist.destroy_process_group()
"""


@pytest.fixture
def facts(echelon):
    """Runs the script that prints where it runs. Returns the output of each rank."""
    script = echelon.script("facts.py", FACTS)

    def run(*flags, args=(), env=None):
        result = echelon("run", "-N", "2", "--cold", *flags, script, *args, env=env)
        assert result.returncode == 0, result.stderr + result.stdout
        told = [json.loads(line.partition("] ")[2]) for line in result.stdout.splitlines()]
        return {int(one["RANK"]): one for one in told}

    return run


def facts_of(echelon, *flags, args=(), env=None, nodes=1):
    """What the first rank of a run finds in its environment."""
    script = echelon.script("facts.py", FACTS)
    result = echelon("run", "-N", str(nodes), "--cold", *flags, script, *args, env=env)
    assert result.returncode == 0, result.stderr + result.stdout
    return json.loads(result.stdout.splitlines()[0].partition("] ")[2])


def refused(echelon, *flags, env=None):
    """A run that fails at the start, at once, without using restarts."""
    script = echelon.script("never.py", "print('it ran')")
    result = echelon("run", "-N", "2", "--restarts", "3", *flags, script, env=env)
    assert result.returncode == 3, (result.returncode, result.stderr, result.stdout)
    assert "it ran" not in result.stdout
    return result.stderr


# Modules, lines of setup


@pytest.fixture
def modules(tmp_path):
    folder = tmp_path / "modulefiles"
    (folder / "hello").mkdir(parents=True)
    (folder / "hello" / "1.0").write_text(
        "#%Module\nsetenv GREETING {hello from a module}\nprepend-path PATH /opt/hello\n"
    )
    (folder / "other").write_text("#%Module\nsetenv OTHER 1\n")
    return {"MODULEPATH": str(folder)}


def test_modules_are_loaded_in_order_and_setup_comes_after_them(facts, modules):
    line = 'export GREETING="$GREETING, and $(echo "$LOADEDMODULES")"'
    for one in facts("--modules", "other", "--modules", "hello", "--setup", line, env=modules).values():
        assert one["GREETING"] == "hello from a module, and other:hello/1.0"


def test_missing_module_ends_the_run_with_the_error_of_modules(echelon, modules):
    said = refused(echelon, "--modules", "hello", "--modules", "nonsense", env=modules)
    assert "the environment (modules) could not be entered (on node" in said
    assert "the module nonsense cannot be loaded" in said
    assert "Unable to locate a modulefile for 'nonsense'" in said
    assert "module avail nonsense" in said


def test_module_error_with_exit_code_0_is_detected(echelon, modules):
    old = 'module() { echo "ModuleCmd_Load.c(213):ERROR:105: Unable to locate a modulefile for $2" >&2; return 0; }'
    script = echelon.script("old.sh", f"{old}\nexport -f module\n")
    said = refused(echelon, "--modules", "nonsense", env={"BASH_ENV": str(script)})
    assert "the module nonsense cannot be loaded" in said
    assert "ERROR:105" in said


def test_node_without_modules_is_reported(echelon, tmp_path):
    nowhere = ["bwrap", "--dev-bind", "/", "/", "--tmpfs", "/usr/share/modules", "--tmpfs", "/etc/profile.d", "--"]
    run = echelon.submit("--modules", "hello", echelon.script("x.py", ""), env={"MODULESHOME": ""})
    run.wait()
    done = subprocess.run(
        [*nowhere, "/bin/bash", str(run.path / "node.sh"), str(tmp_path / "words"), "true"],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": os.environ["PATH"]},
    )
    assert done.returncode == 78
    assert "this node has no `module`" in done.stderr


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("exit 3", "with exit code 3"),
        ("if then", "with exit code 2"),
        ('echo "', "with exit code 2"),
        ("set -e; false", "with exit code 1"),
    ],
)
def test_setup_that_exits_the_shell_is_reported(echelon, line, why):
    said = refused(echelon, "--setup", "echo before", "--setup", line)
    assert "the environment (setup) could not be entered" in said
    assert why in said


def test_failing_setup_line_is_ignored(facts):
    told = facts("--setup", "[ -e /nonexistent ] && export GREETING=no", "--setup", "export GREETING=$((6 * 7))")
    assert told[1]["GREETING"] == "42"


# Virtual environments, conda


@pytest.fixture
def own_venv(tmp_path):
    folder = tmp_path / "my venv"
    venv.create(folder, symlinks=True)
    return folder


def test_a_virtual_environment(facts, own_venv):
    for one in facts("--venv", own_venv).values():
        assert one["VIRTUAL_ENV"] == str(own_venv)
        assert one["python"] == f"{own_venv}/bin/python"


def test_missing_virtual_environment_is_refused_early(echelon):
    said = refused(echelon, "--venv", "nowhere")
    assert f"no virtual environment at {echelon.folder}/nowhere/bin/python" in said
    assert "from  --venv nowhere" in said
    assert "python3 -m venv" in said
    assert not (echelon.folder / "runs").exists()


def test_removed_virtual_environment_is_reported_by_the_node(echelon, own_venv):
    run = echelon.submit("--venv", own_venv, echelon.script("x.py", ""))
    run.wait()
    (own_venv / "bin" / "python").unlink()
    assert echelon("resume", run.id).returncode == 3
    assert "no virtual environment at" in run.events("finished")[-1]["reason"]


@pytest.fixture
def condas(tmp_path, own_venv):
    """Stand-ins: neither conda nor micromamba can be had from pip or Debian."""
    (tmp_path / "envs").mkdir()
    (tmp_path / "envs" / "ml").symlink_to(own_venv)
    (own_venv / "conda-meta").mkdir()
    folder = Path(__file__).parents[1] / "standins"
    return lambda tool: {"CONDA_EXE": str(folder / tool), "STANDIN_ENVS": str(tmp_path / "envs")}


@pytest.mark.parametrize("tool", ["conda", "micromamba"])
@pytest.mark.parametrize("by", ["ml", "envs/ml"], ids=["name", "path"])
def test_a_conda_environment(facts, condas, tmp_path, tool, by):
    for one in facts("--conda", by, env=condas(tool)).values():
        assert one["CONDA_PREFIX"] == str(tmp_path / "envs" / "ml")
        assert one["python"] == str(tmp_path / "envs" / "ml" / "bin" / "python")


@pytest.mark.parametrize(("tool", "words"), [("conda", "EnvironmentNameNotFound"), ("micromamba", "does not exist")])
def test_a_conda_environment_that_is_not_there(echelon, condas, tool, words):
    said = refused(echelon, "--conda", "nope", env=condas(tool))
    assert "the conda environment nope cannot be activated" in said
    assert words in said


def test_missing_conda_is_reported(echelon):
    assert "this node has neither conda nor micromamba" in refused(echelon, "--conda", "ml", env={"CONDA_EXE": ""})


# A real container


BWRAP = bwrap_exec("/tmp", "/var")


@pytest.fixture
def in_bwrap(echelon):
    """The test's own folder is in /tmp, and so is the run; both are seen again through their own mounts."""
    return ("--container-exec", BWRAP, "--python", sys.executable)


@pytest.mark.torch
def test_training_in_a_container(echelon, in_bwrap):
    result = echelon("run", "-N", "2", "-g", "2", *in_bwrap, echelon.script("train.py", ALL_REDUCE))
    assert result.returncode == 0, result.stderr + result.stdout
    assert sorted(result.stdout.splitlines()) == [f"[{rank}] sum 6.0 of 4 in False" for rank in range(4)]


def test_ranks_in_a_container_are_stopped_and_restarted(echelon, in_bwrap):
    script = echelon.script(
        "train.py",
        "import os, time\nprint('begun', flush=True)\n"
        "while os.environ['TORCHELASTIC_RESTART_COUNT'] == '0': time.sleep(0.01)\n",
    )
    run = echelon.submit("-N", "2", "--cold", "--restarts", "1", *in_bwrap, script)
    wait_for(lambda: "begun" in run.rank_log(0) and "begun" in run.rank_log(1), "both ranks")
    os.kill(run.pid_of(1), 9)
    assert run.wait()["outcome"] == "succeeded"
    assert run.events("fault")[0]["fault"].startswith("rank 1 on node1 was killed by SIGKILL")


def test_a_cancel_reaches_into_a_container(echelon, in_bwrap):
    script = echelon.script("train.py", "import time\nprint('begun', flush=True)\ntime.sleep(60)\n")
    run = echelon.submit("-N", "2", "--cold", *in_bwrap, script)
    wait_for(lambda: "begun" in run.rank_log(0) and "begun" in run.rank_log(1), "both ranks")
    assert echelon("cancel", run.id).returncode == 0
    assert run.wait()["outcome"] == "cancelled"


def test_the_supervisor_stays_outside(facts, in_bwrap, echelon):
    assert facts(*in_bwrap)[0]["GREETING"] == "inside"
    assert "bwrap" not in (echelon.only_run().path / "job.sh").read_text()


def test_a_container_without_python(echelon):
    said = refused(echelon, "--container-exec", f"{BWRAP} --setenv PATH /nowhere")
    assert "cannot run python3 in the container of bwrap" in said
    assert "Python 3.10 and torch are needed in the image" in said


def test_a_container_with_an_old_python(echelon):
    (echelon.folder / "old").write_text("#!/bin/sh\necho 3.8\nexit 9\n")
    (echelon.folder / "old").chmod(0o755)
    said = refused(echelon, "--container-exec", BWRAP, "--python", echelon.folder / "old")
    assert "is Python 3.8, and 3.10 is needed" in said


def test_container_that_cannot_be_created_shows_its_own_error(echelon):
    said = refused(echelon, "--container-exec", "bwrap --nonsense")
    assert "the command that enters it failed with exit code 1" in said
    assert "bwrap: Unknown option --nonsense" in said


def test_a_container_without_the_working_directory(echelon):
    said = refused(echelon, "--container-exec", BWRAP, "--python", sys.executable, "--container-workdir", "/nowhere")
    assert "has no folder /nowhere" in said


@pytest.mark.torch
def test_a_checkpoint_made_in_a_container_is_exported_in_it(echelon, in_bwrap):
    script = echelon.script(
        "train.py",
        "import torch, echelon\n"
        "model = torch.nn.Linear(2, 2)\n"
        "with echelon.Checkpoint(model=model, every=1) as checkpoint:\n"
        "    for _ in checkpoint.steps(range(2)): pass\n",
    )
    result = echelon("run", *in_bwrap, script)
    assert result.returncode == 0, result.stderr + result.stdout
    result = echelon("export", echelon.only_run().id, "out.pt")
    assert result.returncode == 0, result.stderr
    assert (echelon.folder / "out.pt").exists()


@pytest.mark.torch
def test_image_without_torch_is_refused_with_a_hint(echelon, own_venv):
    said = refused(echelon, "--container-exec", BWRAP, "--python", own_venv / "bin" / "python")
    assert "torch is not installed for" in said
    assert "use an --image with torch" in said
