"""Combinations of launchers with schedulers and environments, and reserved launcher options."""

from dataclasses import replace

import pytest

from echelon.backends import backend
from echelon.job import Job, LauncherOptions, Script, ScriptKind
from echelon.launchers import LAUNCHERS, find_incompatible_pair, reserved_option

SCHEDULERS = ("local", "allocation", "slurm", "pbs", "ssh")
ENVIRONMENTS = ("bare", "modules", "venv", "conda", "setup", "enroot", "pyxis", "apptainer", "container")
JOB = Job(
    name="gpt", script=Script(kind=ScriptKind.FILE, target="train.py"), cwd="/", python="python3", scheduler="local"
)


def refused(launcher, scheduler, environment="bare", in_slurm=False):
    ours, environ = backend(scheduler), {"SLURM_JOB_ID": "7"} if in_slurm else {}
    srun, mpirun = ours.uses_srun(environ), ours.mpirun_reaches_nodes
    return find_incompatible_pair(launcher, environment, has_srun=srun, mpirun_reaches_nodes=mpirun) is not None


@pytest.mark.parametrize("launcher", ["ranks", "torchrun", "accelerate", "legacy"])
@pytest.mark.parametrize("scheduler", SCHEDULERS)
@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_node_launchers_work_everywhere(launcher, scheduler, environment):
    assert not refused(launcher, scheduler, environment)


@pytest.mark.parametrize(
    ("launcher", "scheduler", "in_slurm", "works"),
    [
        ("srun", "slurm", False, True),
        ("srun", "allocation", True, True),
        ("srun", "allocation", False, False),
        ("srun", "local", False, False),
        ("srun", "local", True, False),
        ("srun", "pbs", False, False),
        ("srun", "ssh", True, False),
        ("mpirun", "local", False, True),
        ("mpirun", "slurm", False, True),
        ("mpirun", "allocation", False, True),
        ("mpirun", "pbs", False, True),
        ("mpirun", "ssh", False, False),
    ],
)
def test_limits_of_launchers_of_the_whole_job(launcher, scheduler, in_slurm, works):
    assert refused(launcher, scheduler, in_slurm=in_slurm) == (not works)


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_mpirun_does_not_work_with_pyxis(environment):
    assert refused("mpirun", "slurm", environment) == (environment == "pyxis")
    assert not refused("srun", "slurm", environment)


def test_incompatible_pair_has_reason_and_hint():
    found = find_incompatible_pair("srun", "bare", has_srun=False, mpirun_reaches_nodes=True)
    assert "Slurm" in found.why
    assert "--launcher ranks" in found.hint


@pytest.mark.parametrize(
    ("launcher", "option", "setting"),
    [
        ("torchrun", "nnodes", "--nodes"),
        ("torchrun", "max_restarts", "--restarts"),
        ("torchrun", "rdzv-endpoint", ""),
        ("legacy", "node_rank", ""),
        ("accelerate", "num_processes", "--gpus-per-node or --procs-per-node"),
        ("accelerate", "machine_rank", ""),
        ("srun", "ntasks-per-node", "--gpus-per-node or --procs-per-node"),
        ("mpirun", "np", "--gpus-per-node or --procs-per-node"),
    ],
)
def test_reserved_launcher_options_are_found(launcher, option, setting):
    job = replace(JOB, launcher=launcher, launching=LauncherOptions(options={option: "1"}))
    assert reserved_option(job) == (option, setting)


@pytest.mark.parametrize("launcher", [name for name in LAUNCHERS if name != "ranks"])
def test_other_launcher_options_are_allowed(launcher):
    assert reserved_option(replace(JOB, launcher=launcher, launching=LauncherOptions(options={"verbose": ""}))) is None
