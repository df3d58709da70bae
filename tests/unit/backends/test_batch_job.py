"""How long the hosts of a batch job wait for the program that started an agent."""

import subprocess
import sys
from pathlib import Path

import pytest

from echelon.backends import batch_hosts
from echelon.backends.batch_hosts import BatchHosts
from echelon.backends.slurm.hosts import SlurmHosts
from echelon.environments.pyxis import REMOVAL_SECONDS
from echelon.job import EnvironmentSpec, Job, Script, ScriptKind
from echelon.run_dir import RunDir

SCRIPT = Script(kind=ScriptKind.FILE, target="x.py")
ENVIRON = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n1"}


def pyxis(**enclosure):
    return Job(
        name="gpt",
        script=SCRIPT,
        cwd="/work",
        python="python3",
        scheduler="slurm",
        environment="pyxis",
        enclosure=EnvironmentSpec(**enclosure),
    )


def leaving(seconds, text="pass"):
    """What starts an agent: it lives on for a while after the agent has left."""
    return subprocess.Popen([sys.executable, "-c", f"import time; time.sleep({seconds}); {text}"])


@pytest.mark.parametrize(("removal", "joined", "code"), [(60.0, True, 0), (0.0, True, -15), (60.0, False, 0)])
def test_srun_may_outlive_its_agent_to_remove_a_container(monkeypatch, removal, joined, code):
    monkeypatch.setattr(batch_hosts, "LEAVE_SECONDS", 0.0)
    hosts = OneHost()
    hosts.container_removal_seconds = removal
    process = leaving(0.5 if code == 0 else 60)
    hosts.end_agent(process, Path("/tmp/node") if joined else None)
    hosts.close()
    assert process.returncode == code


@pytest.mark.parametrize(("name", "seconds"), [(None, REMOVAL_SECONDS), ("mine", 0.0)])
def test_only_unnamed_containers_have_a_removal_time(tmp_path, name, seconds):
    hosts = SlurmHosts(pyxis(image="/a.sqsh", container_name=name), RunDir(tmp_path), ENVIRON)
    assert hosts.container_removal_seconds == seconds


class OneHost(BatchHosts):
    """The hosts of a batch job, of which nothing is started here."""

    def start_agent(self, node, argv):
        raise NotImplementedError

    def listen_address(self):
        return "127.0.0.1"

    def start_query(self):
        return None

    def requeue(self, lost):
        raise NotImplementedError
