"""Which launcher works where, as a table, and the options of theirs that are ours."""

from dataclasses import replace

import pytest

from echelon.job import Job, Launching, Script, ScriptKind
from echelon.launchers import LAUNCHERS
from echelon.launchers.pairs import objection, taken_option

SCHEDULERS = ("local", "allocation", "slurm", "pbs", "ssh")
ENVIRONMENTS = ("bare", "modules", "venv", "conda", "setup", "enroot", "pyxis", "apptainer", "container")
JOB = Job(name="gpt", script=Script(kind=ScriptKind.FILE, target="train.py"), cwd="/", python="python3")


def refused(launcher, scheduler, environment="bare", in_slurm=False):
    return objection(launcher, scheduler, environment, in_slurm=in_slurm) is not None


@pytest.mark.parametrize("launcher", ["ranks", "torchrun", "accelerate", "legacy"])
@pytest.mark.parametrize("scheduler", SCHEDULERS)
@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_what_is_started_on_each_node_works_everywhere(launcher, scheduler, environment):
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
def test_what_starts_the_ranks_of_all_nodes(launcher, scheduler, in_slurm, works):
    assert refused(launcher, scheduler, in_slurm=in_slurm) == (not works)


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_pyxis_encloses_steps_and_mpirun_makes_its_own(environment):
    assert refused("mpirun", "slurm", environment) == (environment == "pyxis")
    assert not refused("srun", "slurm", environment)


def test_an_objection_says_why_and_what_to_do():
    found = objection("srun", "local", "bare", in_slurm=False)
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
def test_options_that_are_decided_by_us(launcher, option, setting):
    job = replace(JOB, launcher=launcher, launching=Launching(options={option: "1"}))
    assert taken_option(job) == (option, setting)


@pytest.mark.parametrize("launcher", [name for name in LAUNCHERS if name != "ranks"])
def test_any_other_option_is_the_users(launcher):
    assert taken_option(replace(JOB, launcher=launcher, launching=Launching(options={"verbose": ""}))) is None
