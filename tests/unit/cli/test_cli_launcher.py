"""`render` shows how each launcher is started, and the command line refuses what could not work."""

from dataclasses import replace
from pathlib import Path

import pytest

from echelon.cli.render import render_scripts
from echelon.job import EnvironmentSpec, Job, LauncherOptions, Resources, Script, ScriptKind
from echelon.run_dir import RunDir

GOLDEN = Path(__file__).parents[2] / "golden"
RUN = RunDir(Path("/home/ada/gpt/runs/gpt-20260115-101500-7f3a"))
ENVIRON = {"HOME": "/home/ada", "PATH": "/usr/bin:/bin"}
JOB = Job(
    name="gpt",
    script=Script(kind=ScriptKind.FILE, target="train.py", args=("--lr", "1e-4")),
    cwd="/home/ada/gpt",
    python="/home/ada/gpt/.venv/bin/python",
    scheduler="slurm",
    resources=Resources(nodes=2, procs_per_node=4, gpus_per_node=4, cpus=32),
    env={"LR": "1e-4"},
    secret_env=("HF_TOKEN",),
)


@pytest.mark.parametrize(
    ("name", "launching"),
    [
        ("torchrun", LauncherOptions()),
        ("torchrun-c10d", LauncherOptions(rdzv="c10d")),
        ("accelerate", LauncherOptions(options={"mixed_precision": "bf16"})),
        ("legacy", LauncherOptions()),
        ("srun", LauncherOptions(options={"mpi": "pmix"})),
        ("mpirun", LauncherOptions(options={"mca": "btl_tcp_if_include eth0"})),
    ],
)
def test_the_script_is_the_golden_one(name, launching):
    job = replace(JOB, launcher=name.partition("-")[0], launching=launching)
    assert render_scripts(job, RUN, ENVIRON) == (GOLDEN / f"launcher-{name}.sh").read_text()


def test_workers_of_a_job_wide_launcher_enter_the_environment():
    job = replace(JOB, launcher="srun", enclosure=EnvironmentSpec(modules=("cuda",)))
    last = render_scripts(job, RUN, ENVIRON).splitlines()[-1]
    assert f"/bin/bash {RUN.node_script} {RUN.path}/node.words /home/ada/gpt/.venv/bin/python -I" in last


def test_without_a_launcher_there_is_nothing_to_show():
    assert "----" not in render_scripts(JOB, RUN, ENVIRON)
