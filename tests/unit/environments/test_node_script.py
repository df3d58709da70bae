"""node.sh and the job script for every scheduler and environment, compared with golden files."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from echelon.backends import backend
from echelon.config.decode import Machine, Settings, build_job
from echelon.config.sources import default_layer, flag_layer, merge_layers
from echelon.environments import ENVIRONMENTS
from echelon.environments.node_script import node_script
from echelon.job import Resources, Script, ScriptKind
from echelon.run_dir import RunDir

GOLDEN = Path(__file__).parents[2] / "golden"
RUN = RunDir(Path("/home/ada/gpt/runs/gpt-20260115-101500-7f3a"))
MACHINE = Machine(
    cwd="/home/ada/gpt",
    python="/home/ada/gpt/.venv/bin/python",
    host_python="/opt/echelon/bin/python",
    hosts=("gpu1", "gpu2"),
    gpus=4,
)
SCRIPT = Script(kind=ScriptKind.FILE, target="train.py", args=("--lr", "1e-4"))
MOUNTS = ("/data/images:/images:ro", "scratch:/scratch")
FLAGS = {
    "bare": {},
    "modules": {"modules": ("cuda/12.4", "gcc")},
    "setup": {"setup": ("export NCCL_DEBUG=INFO", "ulimit -l unlimited")},
    "venv": {"venv": ".venv"},
    "conda": {"conda": "ml"},
    "enroot": {"image": "/data/torch.sqsh", "mount": MOUNTS, "container_writable": True},
    "pyxis": {"env": "pyxis", "image": "/data/torch.sqsh", "mount": MOUNTS},
    "apptainer": {"image": "/data/torch.sif", "mount": MOUNTS, "modules": ("apptainer",)},
    "singularity": {"env": "singularity", "image": "docker://pytorch/pytorch", "container_workdir": "/scratch"},
    "container": {"container_exec": "ch-run --bind={run}:{run} --cd={cwd} /var/tmp/image --"},
}
NASTY = {
    "venv-nasty": {"venv": "/home/ada/it's $HOME", "modules": ("a b", "$(id)"), "setup": ('echo "it\'s $HOME"',)},
    "container-nasty": {"container_exec": ["my box", "$HOME", "`id`", "it's", "{cwd}:{run}"]},
    "enroot-made": {"image": "/data/torch.sqsh", "container_name": "mine"},
    "enroot-named": {"env": "enroot", "container_name": "mine", "container_root": True},
}
SCHEDULERS = ("local", "slurm", "pbs", "ssh")


def job(scheduler, flags):
    settings = Settings(merge_layers([default_layer(), flag_layer({"on": scheduler, **flags})]))
    made = build_job(settings, SCRIPT, MACHINE)
    return replace(
        made, name="gpt", scheduler=scheduler, resources=Resources(nodes=2, procs_per_node=4, gpus_per_node=4)
    )


def test_every_environment_has_its_golden_script():
    assert tuple(FLAGS) == ENVIRONMENTS


@pytest.mark.parametrize("scheduler", SCHEDULERS)
@pytest.mark.parametrize("name", [*FLAGS, *NASTY])
def test_node_script_is_the_same_for_every_scheduler(scheduler, name):
    made = job("slurm" if name == "pyxis" else scheduler, {**FLAGS, **NASTY}[name])
    if name == "bare":
        assert not made.is_enclosed
        return
    assert node_script(made) == (GOLDEN / f"env-{name}.sh").read_text()


@pytest.mark.parametrize("gpus", [0, 4])
@pytest.mark.parametrize("name", [name for name in (*FLAGS, *NASTY) if name != "bare"])
def test_shellcheck_passes(name, gpus):
    """SC2016 is of words that must stay as they are."""
    made = job("slurm", {**FLAGS, **NASTY}[name])
    text = node_script(replace(made, resources=replace(made.resources, gpus_per_node=gpus)))
    argv = ["shellcheck", "--exclude=SC2016", "-"]
    done = subprocess.run(argv, input=text, capture_output=True, text=True, check=False)
    assert done.stdout + done.stderr == ""


@pytest.mark.parametrize("scheduler", SCHEDULERS)
@pytest.mark.parametrize("name", [name for name in FLAGS if name != "bare"])
def test_supervisor_runs_outside_every_environment(scheduler, name, monkeypatch):
    monkeypatch.setattr("sys.executable", MACHINE.host_python)
    made = job("slurm" if name == "pyxis" else scheduler, FLAGS[name])
    rendered = backend(scheduler).render(replace(made, scheduler=scheduler), RUN)
    assert rendered == (GOLDEN / f"enclosed-{scheduler}.sh").read_text()
