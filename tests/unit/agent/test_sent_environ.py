"""The environ of PBS jobs: decrypted in the job script, and sent from the supervisor to agents."""

import os
import socket
import subprocess
import sys
import threading
from dataclasses import replace

import pytest

from echelon.agent.environ import host_environ, wait_for_environment
from echelon.backends.pbs.environment import KEY_VARIABLE, agent_environ, encrypt_environ
from echelon.job import EnvironmentSpec, Job, Resources, Script, ScriptKind
from echelon.run_dir import RunDir
from echelon.submission.bundle import node_side
from echelon.wire.channel import Channel, ChannelClosed
from echelon.wire.messages import BindPort, Ping, SupervisorEnviron, to_wire

JOB = Job(
    name="x",
    script=Script(kind=ScriptKind.FILE, target="x.py"),
    cwd="/",
    python="python",
    resources=Resources(procs_per_node=4),
    scheduler="pbs",
)


@pytest.fixture
def run(tmp_path):
    run = RunDir(tmp_path / "it's a run")
    run.create()
    run.write(run.node_side, node_side())
    return run


def in_a_shell(run, key):
    """What a program sees that the job script starts once it has fetched the environment."""
    fetch = 'environment=$("$0" -I "$1" environment "$2") || exit; eval "$environment"; unset environment; exec env -0'
    argv = ["/bin/sh", "-c", fetch, sys.executable, str(run.node_side), str(run.path)]
    environ = {"PATH": os.defpath, "PBS_JOBID": "1.pbs", **({KEY_VARIABLE: key} if key else {})}
    return subprocess.run(argv, env=environ, capture_output=True, check=False)


def test_the_shell_of_the_job_script_gets_every_byte(run):
    environ = {
        "GREETING": "hello,\n'world' \"$HOME\" `id` \\",
        "PATH": "/opt/my tools/bin:/usr/bin:/bin",
        "EMPTY": "",
        "NOT_UTF8": "\udcff\udcfe",
        "API_TOKEN": "s3cr3t",
        "PBS_JOBID": "0.outer",
    }
    data, key = encrypt_environ(environ)
    run.write(run.sealed, data)
    done = in_a_shell(run, key)
    assert done.returncode == 0, done.stderr
    seen = dict(entry.split(b"=", 1) for entry in done.stdout.rstrip(b"\0").split(b"\0"))
    for name in ("GREETING", "PATH", "EMPTY", "NOT_UTF8", "API_TOKEN"):
        assert seen[name.encode()] == environ[name].encode(errors="surrogateescape")
    assert seen[b"PBS_JOBID"] == b"1.pbs", "the job's own"
    assert b"environment" not in seen


def test_without_a_key_the_job_has_what_pbs_gives_it(run):
    done = in_a_shell(run, None)
    assert done.returncode == 0
    assert b"PBS_JOBID=1.pbs" in done.stdout


@pytest.mark.parametrize("data", [None, b"", b"x" * 100])
def test_undecryptable_environ_ends_the_job_with_a_message(run, data):
    if data is not None:
        run.write(run.sealed, data)
    done = in_a_shell(run, "00" * 32)
    assert done.returncode == 3
    assert str(run.sealed).encode() in done.stderr
    assert b"Traceback" not in done.stderr


# To the agents


@pytest.fixture
def ends():
    ours, theirs = map(Channel.from_socket, socket.socketpair())
    yield ours, theirs
    ours.close()
    theirs.close()


def test_first_message_is_the_environ_and_the_rest_is_kept(ends):
    ours, theirs = ends
    for message in (SupervisorEnviron(variables={"A": "b\nc", "LONG": "x" * 300_000}), BindPort(generation=0)):
        ours.send(to_wire(message))
    pump = threading.Timer(0.01, lambda: [ours.flush() for _ in range(10_000)])
    pump.start()
    variables, rest = wait_for_environment(theirs, 10)
    pump.join()
    assert variables["A"] == "b\nc"
    assert len(variables["LONG"]) == 300_000
    rest = rest or theirs.receive()
    assert rest == [to_wire(BindPort(generation=0))]


def test_any_other_first_message_none_and_an_end_are_refused(ends):
    ours, theirs = ends
    with pytest.raises(ChannelClosed, match="did not send its environ"):
        wait_for_environment(theirs, 0.01)
    ours.send(to_wire(Ping()))
    with pytest.raises(ChannelClosed, match="did not send its environ"):
        wait_for_environment(theirs, 5)


def test_variables_of_the_first_host_are_not_sent():
    environ = {
        "PATH": "/bin",
        "A": "b",
        "CUDA_VISIBLE_DEVICES": "GPU-1",
        "TMPDIR": "/var/tmp/pbs.1",
        "PBS_NODENUM": "0",
        "PBS_NODEFILE": "/x",
        KEY_VARIABLE: "00",
    }
    assert agent_environ(environ) == {"PATH": "/bin", "A": "b"}


def test_a_host_keeps_what_is_its_own_and_takes_the_rest():
    own = {
        "PATH": "/bin:/usr/bin",
        "TMPDIR": "/var/tmp/pbs.1",
        "PBS_NODENUM": "1",
        "CUDA_VISIBLE_DEVICES": "GPU-2",
        "X": "y",
    }
    assert host_environ({"PATH": "/opt/bin", "A": "b"}, own, JOB) == {
        "PATH": "/opt/bin",
        "A": "b",
        "TMPDIR": "/var/tmp/pbs.1",
        "PBS_NODENUM": "1",
        "CUDA_VISIBLE_DEVICES": "GPU-2",
    }


@pytest.mark.parametrize(
    "enclosed",
    [
        {"environment": "venv", "enclosure": EnvironmentSpec(venv="/v")},
        {"enclosure": EnvironmentSpec(modules=("cuda",))},
        {"environment": "enroot", "enclosure": EnvironmentSpec(image="x.sqsh")},
        {},
    ],
)
def test_the_key_to_the_sealed_environment_ends_with_the_agent(enclosed):
    """Ranks do not get it, and it is not written down beside what it opens."""
    environ = host_environ({"A": "b"}, {KEY_VARIABLE: "00", "PBS_NODENUM": "1", "X": "y"}, replace(JOB, **enclosed))
    assert environ["A"] == "b"
    assert environ["PBS_NODENUM"] == "1"
    assert KEY_VARIABLE not in environ


@pytest.mark.parametrize(
    ("sent", "threads"),
    [
        ({"NCPUS": "8", "OMP_NUM_THREADS": "8"}, "2"),
        ({"NCPUS": "8", "OMP_NUM_THREADS": "3"}, "3"),
        ({"NCPUS": "1", "OMP_NUM_THREADS": "1"}, "1"),
        ({"OMP_NUM_THREADS": "5"}, "5"),
        ({"NCPUS": "8"}, None),
    ],
)
def test_pbs_thread_count_is_divided_but_user_value_is_kept(sent, threads):
    assert host_environ(sent, {}, JOB).get("OMP_NUM_THREADS") == threads
