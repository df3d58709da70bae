"""The hosts of a PBS job, tasks on them, and the end of the job. Plain values and fake tools."""

import os
import signal
import subprocess
import time
from datetime import timedelta
from pathlib import Path

import pytest

from echelon.backends.batch import PBS
from echelon.backends.batch_hosts import end_reserve_seconds
from echelon.backends.hosts import Unreachable
from echelon.backends.pbs import failover as pbs_failover
from echelon.backends.pbs import hosts as pbs_hosts
from echelon.backends.pbs.hosts import (
    PbsHosts,
    find_tool,
    kill_command,
    parse_scheduler_view,
    read_nodefile,
    run_pbs,
    start_view_query,
    submit_successor,
    task_argv,
    task_command,
    used_hosts,
)
from echelon.backends.slurm import requeue as slurm_requeue
from echelon.errors import EnvironmentProblem, SchedulerError
from echelon.events import Kind, read_events
from echelon.job import Job, Policies, Resources, Script, ScriptKind
from echelon.run_dir import RunDir
from echelon.supervisor.clock import Clock
from echelon.system import processes
from running import wait_for


def job(scheduler="pbs", policies=None, **resources):
    return Job(
        name="x",
        script=Script(kind=ScriptKind.FILE, target="x.py"),
        cwd="/",
        python="python",
        resources=Resources(**resources),
        policies=policies or Policies(),
        scheduler=scheduler,
    )


@pytest.mark.parametrize(
    ("lines", "nodes", "spare", "names"),
    [
        (["n1"], 1, 0, ["n1"]),
        (["n1", "n2"], 2, 0, ["n1", "n2"]),
        (["n2", "n1"], 2, 0, ["n2", "n1"]),
        (["n1", "n1", "n2", "n2"], 2, 0, ["n1", "n2"]),
        (["n1", "n2", "n1"], 2, 0, ["n1", "n2"]),
        (["a.b.c", "b.b.c", "c.b.c"], 2, 1, ["a.b.c", "b.b.c", "c.b.c"]),
    ],
)
def test_hosts_are_the_unique_names_in_order(lines, nodes, spare, names):
    assert used_hosts(job(nodes=nodes, spare_nodes=spare), lines) == names


@pytest.mark.parametrize(("lines", "nodes"), [(["n1", "n1"], 2), (["n1"], 3), (["n1", "n2", "n3"], 2)])
def test_wrong_number_of_hosts_has_a_hint(lines, nodes):
    with pytest.raises(EnvironmentProblem, match=f"of the {nodes} hosts") as caught:
        used_hosts(job(nodes=nodes), lines)
    assert "place=scatter" in caught.value.hint


def test_allocation_may_have_more_or_fewer_hosts():
    assert used_hosts(job(nodes=1), ["n1", "n2"], keeps_allocation=True) == ["n1"]
    assert used_hosts(job(nodes=3, min_nodes=2), ["n1", "n2"], keeps_allocation=True) == ["n1", "n2"]
    with pytest.raises(EnvironmentProblem):
        used_hosts(job(nodes=3), ["n1", "n2"], keeps_allocation=True)


@pytest.mark.parametrize(
    "environ", [{}, {"PBS_NODEFILE": ""}, {"PBS_NODEFILE": "/nonexistent"}, {"PBS_NODEFILE": "/dev/null"}]
)
def test_missing_host_list_is_an_error(environ):
    with pytest.raises(EnvironmentProblem):
        read_nodefile(environ)


@pytest.mark.parametrize(
    ("way", "argv"),
    [
        ("pbs_tmrsh", ["TOOL", "n2", "python", "-I", "it's"]),
        ("pbsdsh", ["TOOL", "-n", "3", "--", "python", "-I", "it's"]),
        ("ssh", ["TOOL", "-n", "-o", "BatchMode=yes", "n2", "python -I 'it'\"'\"'s'"]),
    ],
)
def test_task_command_of_each_program(way, argv):
    assert task_argv(way, "TOOL", "n2", 3, ["python", "-I", "it's"]) == argv


@pytest.mark.parametrize("there", [True, False])
def test_task_output_is_appended_to_job_output(tmp_path, there):
    output = tmp_path / "it's $HOME"
    if there:
        output.write_text("before\n")
    words = ["sh", "-c", 'echo "$1"; echo why >&2; exit 7', "sh", 'it\'s a "b"']
    done = subprocess.run(task_command(output, tmp_path / "pid", words), capture_output=True, text=True, check=False)
    assert done.returncode == 7
    assert (tmp_path / "pid").read_text().strip().isdecimal()
    said = output.read_text().removeprefix("before\n") if there else done.stdout + done.stderr
    assert said == 'it\'s a "b"\nwhy\n'


@pytest.mark.parametrize(("run_path", "killed"), [("/runs/it's", True), ("/runs/other", False)])
def test_a_task_is_killed_only_if_it_belongs_to_the_run(tmp_path, run_path, killed):
    argv = task_command(tmp_path / "none", tmp_path / "pid", ["sh", "-c", "sleep 600 & wait", "/runs/it's"])
    with subprocess.Popen(argv, start_new_session=True) as task:
        wait_for(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text(), "the process id")
        wait_for(lambda: processes.children(task.pid), "a process in the group of the task")
        [child] = processes.children(task.pid)
        subprocess.run(kill_command(tmp_path / "pid", Path(run_path)), check=False)
        if killed:
            wait_for(lambda: processes.start_time(child) is None, "the whole group to be killed", 10)
        else:
            assert task.poll() is None
            os.killpg(task.pid, signal.SIGKILL)
    assert task.returncode == -signal.SIGKILL


SLOW_KILLERS = """\
shift
case "$*" in
*grep*) (until [ -e {folder}/go ]; do sleep 0.05; done; exec "$@") & echo $$ >>{folder}/killers; exec sleep 600;;
*) exec setsid -w "$@";;
esac"""


def test_slow_kill_command_is_ended_after_it_found_its_task(tmp_path):
    """The task of a pbs_tmrsh that was killed continues, as with the real one."""
    tool(tmp_path, "pbs_tmrsh", SLOW_KILLERS.format(folder=tmp_path))
    (tmp_path / "nodes").write_text("n1\nn2\n")
    run = RunDir(tmp_path / "run")
    run.create()
    hosts = PbsHosts(job(nodes=2), run, {"PATH": f"{tmp_path}:{os.defpath}", "PBS_NODEFILE": str(tmp_path / "nodes")})
    agent = hosts.start_agent(1, ["sh", "-c", "sleep 600 & wait", str(run.path)])
    wait_for(lambda: any(path.read_text() for path in run.path.glob(".task-*")), "the process id of the task")
    hosts.terminate(agent)
    wait_for(lambda: (tmp_path / "killers").exists(), "the killer")
    hosts.close()
    assert processes.start_time(int((tmp_path / "killers").read_text())) is None
    assert agent.poll() is None
    (tmp_path / "go").touch()
    wait_for(lambda: agent.poll() is not None, "the task to be killed")
    wait_for(lambda: not list(run.path.glob(".task-*")), "the file with the process id to be removed")


def test_query_timeouts_are_below_four_seconds():
    """A loss may take the heartbeat and four seconds until it is known."""
    assert pbs_hosts.ANSWER_SECONDS < 4.0
    assert slurm_requeue.ANSWER_SECONDS < 4.0


# Tools


def tool(folder, name, text):
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_tools_are_found_on_path_or_in_pbs_exec(tmp_path):
    (tmp_path / "bin").mkdir()
    path = tool(tmp_path / "bin", "qstat", "")
    assert find_tool("qstat", {"PATH": str(tmp_path / "bin")}) == path
    assert find_tool("qstat", {"PATH": "/bin", "PBS_EXEC": str(tmp_path)}) == path
    assert find_tool("qstat", {"PATH": "/bin"}) is None


def test_unreachable_server_and_refusal_are_distinct(tmp_path):
    environ = {"PATH": f"{tmp_path}:{os.defpath}"}
    tool(tmp_path, "qsub", 'echo "qsub: cannot connect to server pbs (errno=15010)" >&2; exit 1')
    with pytest.raises(Unreachable):
        run_pbs("qsub", [], environ)
    run = RunDir(tmp_path / "run")
    run.create()
    tool(tmp_path, "qsub", 'echo "qsub: Unauthorized Request" >&2; exit 159')
    with pytest.raises(SchedulerError, match="successor") as caught:
        submit_successor(run, {**environ, "PBS_JOBID": "1.pbs"})
    assert "Unauthorized" in caught.value.why
    assert "echelon resume" in caught.value.hint


def test_successor_depends_on_job_and_keeps_the_key(tmp_path):
    tool(tmp_path, "qsub", f'printf "%s\\n" "$@" "$ECHELON_SEAL" "$PBS_JOBID" >{tmp_path}/said; echo 2.pbs')
    run = RunDir(tmp_path / "run")
    run.create()
    submit_successor(run, {"PATH": f"{tmp_path}:{os.defpath}", "PBS_JOBID": "1.pbs", "ECHELON_SEAL": "00"})
    said = (tmp_path / "said").read_text().split("\n")
    assert said[:5] == ["-W", "depend=afterany:1.pbs", "-v", "ECHELON_SEAL", str(run.job_script)]
    assert said[5:7] == ["00", ""], "the key in the environment, and nothing of the job around it"
    assert run.read_native_id() == "2.pbs"


def test_cancel_during_requeue_reaches_the_successor(tmp_path):
    tool(tmp_path, "qsub", "echo 2.pbs")
    tool(tmp_path, "qdel", f"echo $1 >{tmp_path}/deleted")
    run = RunDir(tmp_path / "run")
    run.create()
    run.cancel_mark.touch()
    submit_successor(run, {"PATH": f"{tmp_path}:{os.defpath}", "PBS_JOBID": "1.pbs"})
    assert (tmp_path / "deleted").read_text() == "2.pbs\n"


def test_pbs_job_variables_are_removed():
    environ = {"PATH": "/bin", "PBS_JOBID": "1", "PBS_O_WORKDIR": "/", "PBS_SERVER": "s", "PBS_CONF_FILE": "/c"}
    assert PBS.environ_outside_job(environ) == {"PATH": "/bin", "PBS_SERVER": "s", "PBS_CONF_FILE": "/c"}


# Orphans


def test_successor_submission_is_retried(tmp_path, monkeypatch):
    """The event comes after it: a run that says it was requeued is."""
    run_dir = RunDir(tmp_path / "run")
    run_dir.path.mkdir()
    run_dir.attempt(0).path.mkdir()
    run_dir.native_id.write_text("1.pbs.in.full\n")
    tool(tmp_path, "qstat", "printf 'Job Id: 1.pbs\\n    job_state = R\\n'")
    tool(tmp_path, "qdel", "exit 0")
    down = f"[ -e {tmp_path}/tried ] || {{ : > {tmp_path}/tried; echo 'Connection refused' >&2; exit 1; }}"
    tool(tmp_path, "qsub", f"{down}; echo 2.pbs")
    monkeypatch.setattr(pbs_failover, "POLL_SECONDS", 0.01)
    environ = {"PATH": f"{tmp_path}:{os.defpath}", "PBS_JOBID": "1.pbs"}
    orphaned = job(policies=Policies(requeues=1, heartbeat=timedelta(0)))
    pbs_failover.continue_without_supervisor(orphaned, run_dir.attempt(0), environ, patience=30)
    assert run_dir.read_native_id() == "2.pbs"
    assert [event.kind for event in read_events(run_dir.events)] == [Kind.REQUEUED]


# Time


def shown(state="R", walltime="00:10:00", stime="Thu Jan 15 10:15:00 2026"):
    return f"Job Id: 1.pbs\n    job_state = {state}\n    Resource_List.walltime = {walltime}\n    stime = {stime}\n\n"


def test_scheduler_view_has_end_and_requeue():
    standing = parse_scheduler_view(shown(), "1.pbs")
    assert standing.end_at == time.mktime((2026, 1, 15, 10, 25, 0, 0, 0, -1))
    assert not standing.is_requeued
    assert parse_scheduler_view(shown(state="Q"), "1.pbs").is_requeued
    assert parse_scheduler_view("", "1.pbs").end_at is None


def answered(question):
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        standing = question.result()
        if standing is not None:
            return standing
    raise AssertionError("no answer")


def test_query_does_not_block_and_reads_long_output(tmp_path):
    (tmp_path / "text").write_text(shown() + "    Variable_List = " + "x" * 300_000 + "\n")
    environ = {"PATH": os.defpath}
    assert (
        answered(start_view_query(tool(tmp_path, "qstat", f"cat {tmp_path}/text"), "1.pbs", environ)).end_at is not None
    )
    with pytest.raises(Unreachable):
        answered(start_view_query(tool(tmp_path, "qstat", "exit 153"), "1.pbs", environ))


def test_no_query_without_qstat(tmp_path):
    (tmp_path / "nodes").write_text("n1\n")
    environ = {"PATH": "/nonexistent", "PBS_NODEFILE": str(tmp_path / "nodes"), "PBS_JOBID": "1.pbs", "A": "b"}
    hosts = PbsHosts(job(), RunDir(tmp_path), environ)
    assert hosts.start_query() is None
    assert hosts.agent_environ == {"PATH": "/nonexistent", "A": "b"}
    assert hosts.listen_address() == "127.0.0.1"


@pytest.mark.parametrize(
    ("limit", "grace", "reserve"), [(None, 5, 15.0), (3600, 5, 15.0), (100, 5, 10.0), (12, 5, 1.2), (3600, 60, 70.0)]
)
def test_reserve_is_at_most_a_tenth_of_the_limit(limit, grace, reserve):
    policies = Policies(grace=timedelta(seconds=grace))
    time_limit = None if limit is None else timedelta(seconds=limit)
    assert end_reserve_seconds(job(policies=policies, time_limit=time_limit)) == pytest.approx(reserve)


def test_clock_subtracts_its_reserve_from_a_later_limit():
    clock = Clock.for_job(job(time_limit=timedelta(seconds=100)), 0.0, 10.0)
    assert clock.end_at == 90.0
    clock.set_end(95.0, 1.0)
    assert clock.end_at == 85.0
    unknown = Clock.for_job(job(), 0.0, 15.0)
    unknown.set_end(20.0, 0.0)
    assert unknown.end_at == 18.0
