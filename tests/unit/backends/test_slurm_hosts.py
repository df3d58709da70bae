"""The nodes of a Slurm job, from its variables and from the output of scontrol."""

import time

import pytest

from echelon.backends.batch import SLURM
from echelon.backends.slurm.hosts import (
    addresses_or_names,
    cpu_remark,
    cpus_on_node,
    parse_node_addresses,
    srun_argv,
    used_hosts,
)
from echelon.backends.slurm.query import parse_fields
from echelon.backends.slurm.requeue import parse_scheduler_view, successor_id
from echelon.errors import EnvironmentProblem
from echelon.job import Job, Resources, Script, ScriptKind

SHOWN = (
    "JobId=1002 JobName=Restarts=9 EndTime=never UserId=ada(5001) Account=(null) JobState=RUNNING Reason=None "
    "Requeue=1 Restarts=1 BatchFlag=1 ExitCode=0:0 RunTime=00:00:02 TimeLimit=00:05:00 "
    "StartTime=2026-11-16T03:18:27 EndTime=2026-11-16T03:23:27 Deadline=N/A Comment=Restarts=7 "
)


def job(scheduler="slurm", **resources):
    script = Script(kind=ScriptKind.FILE, target="train.py")
    return Job(
        name="gpt", script=script, cwd="/", python="python", scheduler=scheduler, resources=Resources(**resources)
    )


def test_hosts_are_in_slurm_order_and_limited():
    environ = {"SLURM_JOB_NODELIST": "n[03-05,07]"}
    assert used_hosts(job(nodes=2), environ) == ["n03", "n04"]
    assert used_hosts(job(nodes=2, spare_nodes=1), environ) == ["n03", "n04", "n05"]


def test_job_may_start_on_its_smallest_number_of_nodes():
    environ = {"SLURM_JOB_NODELIST": "n[1-2]"}
    assert used_hosts(job(nodes=3, min_nodes=2), environ) == ["n1", "n2"]
    with pytest.raises(EnvironmentProblem, match="has 2 of the 3 nodes") as error:
        used_hosts(job(nodes=3), environ)
    assert error.value.hint == "-N 2 fits it"


def test_outside_a_job_is_an_error():
    with pytest.raises(EnvironmentProblem) as error:
        used_hosts(job(nodes=1), {})
    assert error.value.hint == "run this inside a Slurm job"


@pytest.mark.parametrize(
    ("listed", "node", "asked", "cpus"),
    [
        ("8(x2),4", 0, None, 8),
        ("8(x2),4", 2, None, 4),
        ("8(x2),4", 3, None, None),
        ("8(x2),4", 0, 6, 6),
        ("", 0, None, None),
        ("eight", 0, None, None),
        ("", 0, 3, 3),
    ],
)
def test_agent_srun_gets_explicit_cpus(listed, node, asked, cpus):
    assert cpus_on_node({"SLURM_JOB_CPUS_PER_NODE": listed}, node, asked) == cpus


@pytest.mark.parametrize(
    ("listed", "ranks", "remark"),
    [
        ("1(x2)", 2, "2 ranks share 1 CPU on each node (SLURM_JOB_CPUS_PER_NODE=1(x2)); try --cpus 8"),
        ("8,3", 4, "4 ranks share 3 CPUs on each node (SLURM_JOB_CPUS_PER_NODE=8,3); try --cpus 16"),
        ("2(x2)", 2, None),
        ("1", 1, None),
        ("", 4, None),
        ("nonsense", 4, None),
    ],
)
def test_too_few_cpus_give_a_remark(listed, ranks, remark):
    assert cpu_remark(job(nodes=2, procs_per_node=ranks), {"SLURM_JOB_CPUS_PER_NODE": listed}) == remark


def test_srun_shares_resources_and_reads_no_input():
    argv = srun_argv(job(nodes=2, gpus_per_node=4), "n2", 8, ["python", "it's", "a b"])
    assert argv[0] == "srun"
    assert argv[-3:] == ["python", "it's", "a b"]
    assert {"--overlap", "--kill-on-bad-exit=0", "--no-kill", "--input=none", "--nodelist=n2"} <= set(argv)
    assert {"--cpus-per-task=8", "--gpus-per-node=4"} <= set(argv)
    assert not any(word.startswith(("--gpus", "--cpus")) for word in srun_argv(job(), "n1", None, ["python"]))


@pytest.mark.parametrize(("ours", "is_requeued"), [(0, True), (1, False), (2, False)])
def test_higher_restart_count_shows_a_requeue(ours, is_requeued):
    line = SHOWN.replace("JobName=Restarts=9 EndTime=never", "JobName=gpt")
    assert parse_scheduler_view(line, ours).is_requeued is is_requeued


def test_end_time_is_a_local_time():
    line = SHOWN.replace("JobName=Restarts=9 EndTime=never", "JobName=gpt")
    end = parse_scheduler_view(line, 0).end_at
    assert time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(end)) == "2026-11-16T03:23:27"


@pytest.mark.parametrize("text", ["EndTime=Unknown", "EndTime=N/A", "EndTime=", "", "slurm_load_jobs error"])
def test_unknown_end_time_is_none(text):
    standing = parse_scheduler_view(text, 0)
    assert standing.end_at is None
    assert not standing.is_requeued


def test_fields_are_the_first_of_their_name():
    assert parse_fields("A=1 B=two A=3 C= D")["A"] == "1"
    assert parse_fields("A=1 C= D")["C"] == ""


@pytest.mark.parametrize(
    "words",
    [
        "slurm_load_jobs error: Unable to contact slurm controller (connect failure)",
        "scontrol: error: Socket timed out on send/recv operation",
        "Connection refused",
    ],
)
def test_messages_of_an_unreachable_controller(words):
    assert SLURM.is_unreachable(words)


@pytest.mark.parametrize("words", ["Invalid job id specified", "Access/permission denied", "Requested operation is"])
def test_messages_of_a_refusal(words):
    assert not SLURM.is_unreachable(words)


def test_slurm_job_variables_are_removed():
    environ = {"SLURM_CONF": "/etc/s", "SLURM_NTASKS": "4", "SBATCH_X": "1", "PMI_RANK": "0", "HOME": "/h"}
    assert SLURM.environ_outside_job({**environ, "SLURM_JWT": "j"}) == {
        "SLURM_CONF": "/etc/s",
        "SLURM_JWT": "j",
        "HOME": "/h",
    }


@pytest.mark.parametrize(
    ("printed", "task", "native_id"),
    [("123\n", None, "123"), ("123;big\n", None, "123;big"), ("123\n", "4", "123_4"), ("123;big", "4", "123_4;big")],
)
def test_successor_id_has_control_side_format(printed, task, native_id):
    assert successor_id(printed, task) == native_id


# Nodes whose names do not resolve

NODES = (
    "NodeName=n1 Arch=x86_64 CoresPerSocket=1 CPUAlloc=0 NodeAddr=10.77.0.11 NodeHostName=n1 State=IDLE\n"
    "NodeName=n2 Arch=x86_64 CoresPerSocket=1 CPUAlloc=0 NodeAddr=10.77.0.12 NodeHostName=n2 State=IDLE\n"
    "NodeName=n3 Arch=x86_64 CoresPerSocket=1 CPUAlloc=0 NodeAddr=n3 NodeHostName=n3 State=IDLE\n"
)


def test_node_addresses_are_parsed():
    assert parse_node_addresses(NODES) == {"n1": "10.77.0.11", "n2": "10.77.0.12", "n3": "n3"}
    assert parse_node_addresses("Node n9 not found\n") == {}


@pytest.fixture
def scontrol(tmp_path):
    """A stand-in that prints NODES and notes what it was asked."""
    (tmp_path / "nodes").write_text(NODES)
    program = tmp_path / "scontrol"
    program.write_text(f'#!/bin/sh\necho "$*" >> {tmp_path}/asked\ncat {tmp_path}/nodes\n')
    program.chmod(0o755)
    return tmp_path


def looked_up(names, resolve, folder, monkeypatch):
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return addresses_or_names(names, resolve, {"PATH": f"{folder}:/usr/bin:/bin"})


@pytest.mark.parametrize(
    ("resolve", "asked", "found"),
    [
        ({}.get, "n1,n2,n3", ["10.77.0.11", "10.77.0.12", "n3"]),
        ({"n1": "10.0.0.1", "n3": "10.0.0.3"}.get, "n2", ["n1", "10.77.0.12", "n3"]),
        ({"n1": "127.0.1.1", "n2": "10.0.0.2", "n3": "10.0.0.3"}.get, "n1", ["10.77.0.11", "n2", "n3"]),
    ],
    ids=["none", "some", "loopback"],
)
def test_unresolved_names_are_looked_up_in_slurm(scontrol, monkeypatch, resolve, asked, found):
    assert looked_up(["n1", "n2", "n3"], resolve, scontrol, monkeypatch) == found
    assert (scontrol / "asked").read_text() == f"show node {asked} -o\n"


def test_slurm_is_not_asked_if_all_names_resolve(scontrol, monkeypatch):
    assert looked_up(["n2", "n3"], lambda _: "10.0.0.1", scontrol, monkeypatch) == ["n2", "n3"]
    assert not (scontrol / "asked").exists()


def test_names_are_used_if_slurm_does_not_answer(scontrol, monkeypatch):
    (scontrol / "scontrol").write_text("#!/bin/sh\nexit 1\n")
    assert looked_up(["n2"], lambda _: None, scontrol, monkeypatch) == ["n2"]
