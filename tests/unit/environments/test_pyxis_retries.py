"""Retries of agents in a pyxis container that another job may be creating."""

import subprocess
import sys
from datetime import timedelta

import pytest

from echelon.backends.batch_hosts import BatchHosts
from echelon.environments import pyxis as pyxis_module
from echelon.environments.pyxis import Retries, container_may_be_incomplete
from echelon.job import EnvironmentSpec, Job, Policies, Script, ScriptKind
from echelon.run_dir import RunDir
from echelon.supervisor.connections import Agents
from echelon.wire.reports import FatalNodeProblem

SCRIPT = Script(kind=ScriptKind.FILE, target="x.py")
TAKEN = "slurmstepd: error: pyxis:     [ERROR] File already exists: /data/pyxis_mine\n"
NO_BASH = "slurmstepd: error: execve(): /bin/bash: No such file or directory\n"
NOT_STARTED = "slurmstepd: error: pyxis: container start failed with error code: 1\n"
FULL_DISK = """slurmstepd: error: pyxis: failed to create container filesystem for image: /a.sqsh
slurmstepd: error: pyxis:     Write on output file failed because No space left on device
slurmstepd: error: pyxis: couldn't start container
"""
MISSING = 'slurmstepd: error: pyxis: error: a container with name "pyxis_mine" does not exist\n'
FAILED = FatalNodeProblem(what="the environment (pyxis) could not be entered", why="it failed", hint="")
NO_PYTHON = FatalNodeProblem(what=FAILED.what, why="cannot run python3 in the image /a.sqsh", hint="")


def pyxis(environment="pyxis", name="mine", join_timeout=60):
    enclosure, policies = (
        EnvironmentSpec(image="/a.sqsh", container_name=name),
        Policies(join_timeout=timedelta(seconds=join_timeout)),
    )
    return Job(
        name="gpt",
        script=SCRIPT,
        cwd="/work",
        python="python3",
        scheduler="slurm",
        environment=environment,
        enclosure=enclosure,
        policies=policies,
    )


@pytest.mark.parametrize(
    ("trouble", "output", "expected"),
    [
        (FAILED, TAKEN, True),
        (FAILED, NO_BASH, True),
        (FAILED, NOT_STARTED, True),
        (NO_PYTHON, "", True),
        (FAILED, FULL_DISK, False),
        (FAILED, MISSING, False),
        (FAILED, "pyxis: invalid option", False),
    ],
)
def test_failures_of_a_container_that_may_be_incomplete(trouble, output, expected):
    assert container_may_be_incomplete(pyxis(), trouble, output) is expected
    assert not container_may_be_incomplete(pyxis(name=None), trouble, output), "no other job uses it"
    assert not container_may_be_incomplete(pyxis("enroot"), trouble, output), "node.sh has a lock"


def test_pauses_grow_until_the_join_timeout():
    retries = Retries(pyxis(), give_up_at=1200.0)
    now, pauses = 0.0, []
    while (at := retries.next_at(now, FAILED, TAKEN)) is not None:
        pauses.append(at - now)
        now = at
    assert pauses[:6] == [2.0, 4.0, 8.0, 16.0, 32.0, 32.0]
    assert 1160.0 < now < 1200.0


class OneHost(BatchHosts):
    """A host whose srun ends at once."""

    all = (type("Host", (), {"name": "n1", "source": ""})(),)
    agent_environ = None

    def __init__(self, code=1):
        super().__init__()
        self.code, self.started = code, 0

    def start_agent(self, node, argv):  # noqa: ARG002
        self.started += 1
        process = subprocess.Popen([sys.executable, "-c", f"raise SystemExit({self.code})"])
        process.wait()
        return process

    def listen_address(self):
        return "127.0.0.1"

    def start_query(self):
        return None

    def requeue(self, lost):
        raise NotImplementedError


@pytest.fixture
def agents_after(tmp_path, monkeypatch):
    """The agents of a run whose only srun has failed with that output."""
    monkeypatch.setattr(pyxis_module, "FIRST_PAUSE_SECONDS", 0.0)

    def agents(output, **options):
        RunDir(tmp_path).job_output.write_text(output)
        job, warnings = pyxis(**options), []
        agents = Agents(
            job=job, hosts=OneHost(), run_path=tmp_path, attempt=0, token=b"", listener=None, warn=warnings.append
        )
        agents.start(0)
        return agents, warnings

    return agents


@pytest.mark.parametrize("output", [TAKEN, NO_BASH])
def test_an_agent_whose_container_may_be_incomplete_starts_again(agents_after, output):
    agents, warnings = agents_after(output)
    assert agents.failed_starts() == []
    assert agents.lost_agents(1.0) == [], "it is no lost node"
    agents.failed_starts()
    agents.failed_starts()
    assert agents.hosts.started == 2
    (warning,) = warnings
    assert warning.startswith("n1: the container mine cannot be used yet (")


def test_it_is_refused_after_the_join_timeout(agents_after):
    agents, _ = agents_after(TAKEN, join_timeout=0)
    assert agents.failed_starts()
    assert agents.hosts.started == 1


def test_any_other_failure_of_pyxis_is_refused_at_once(agents_after):
    agents, warnings = agents_after("slurmstepd: error: pyxis: no such image\n")
    assert agents.failed_starts()
    assert (agents.hosts.started, warnings) == (1, [])
