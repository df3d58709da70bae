"""The hosts of a PBS job: which they are, how a task starts on one, when the job ends. Plain values."""

import os
import subprocess
import time
from datetime import timedelta

import pytest

from echelon.batch_facts import PBS
from echelon.errors import EnvironmentProblem, SchedulerError
from echelon.events import Kind, read_events
from echelon.job import Job, Policies, Resources, Script, ScriptKind
from echelon.node.clock import Clock
from echelon.node.hosts import Unreachable, pbs_orphans, pbs_tools, slurm_tools
from echelon.node.hosts.batch_job import reserve_of
from echelon.node.hosts.pbs import (
    PbsHosts,
    names_of,
    printing_to,
    read_nodefile,
    submit_successor,
    task_argv,
)
from echelon.node.hosts.pbs_tools import ask, ask_for_standing, find_tool, parse_standing
from echelon.run_dir import RunDir


def job(scheduler="pbs", policies=None, **resources):
    return Job(
        name="x", script=Script(kind=ScriptKind.FILE, target="x.py"), cwd="/", python="python",
        resources=Resources(**resources), policies=policies or Policies(), scheduler=scheduler,
    )  # fmt: skip


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
    assert names_of(job(nodes=nodes, spare_nodes=spare), lines) == names


@pytest.mark.parametrize(("lines", "nodes"), [(["n1", "n1"], 2), (["n1"], 3), (["n1", "n2", "n3"], 2)])
def test_another_number_of_hosts_is_refused_with_the_remedy(lines, nodes):
    with pytest.raises(EnvironmentProblem, match=f"of the {nodes} hosts") as caught:
        names_of(job(nodes=nodes), lines)
    assert "place=scatter" in caught.value.hint


def test_inside_of_an_allocation_fewer_hosts_may_be_used_and_more_may_be_missing():
    assert names_of(job("allocation", nodes=1), ["n1", "n2"]) == ["n1"]
    assert names_of(job("allocation", nodes=3, min_nodes=2), ["n1", "n2"]) == ["n1", "n2"]
    with pytest.raises(EnvironmentProblem):
        names_of(job("allocation", nodes=3), ["n1", "n2"])


@pytest.mark.parametrize(
    "environ", [{}, {"PBS_NODEFILE": ""}, {"PBS_NODEFILE": "/nonexistent"}, {"PBS_NODEFILE": "/dev/null"}]
)
def test_without_a_list_of_hosts_there_is_a_sentence(environ):
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
def test_a_task_is_started_by_what_there_is(way, argv):
    assert task_argv(way, "TOOL", "n2", 3, ["python", "-I", "it's"]) == argv


@pytest.mark.parametrize("there", [True, False])
def test_what_a_task_prints_is_added_to_the_jobs_output_where_there_is_one(tmp_path, there):
    output = tmp_path / "it's $HOME"
    if there:
        output.write_text("before\n")
    argv = printing_to(output, ["sh", "-c", 'echo "$1"; echo why >&2; exit 7', "sh", 'it\'s a "b"'])
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 7
    said = output.read_text().removeprefix("before\n") if there else done.stdout + done.stderr
    assert said == 'it\'s a "b"\nwhy\n'


def test_a_server_that_hangs_is_given_up_soon_enough():
    """A loss may take the heartbeat and four seconds until it is known."""
    assert pbs_tools.ANSWER_SECONDS < 4.0
    assert slurm_tools.ANSWER_SECONDS < 4.0


# Tools


def tool(folder, name, text):
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_tools_are_found_on_path_or_where_pbs_is(tmp_path):
    (tmp_path / "bin").mkdir()
    path = tool(tmp_path / "bin", "qstat", "")
    assert find_tool("qstat", {"PATH": str(tmp_path / "bin")}) == path
    assert find_tool("qstat", {"PATH": "/bin", "PBS_EXEC": str(tmp_path)}) == path
    assert find_tool("qstat", {"PATH": "/bin"}) is None


def test_a_tool_that_cannot_connect_is_unreachable_and_a_refusal_is_none(tmp_path):
    environ = {"PATH": f"{tmp_path}:{os.defpath}"}
    tool(tmp_path, "qsub", 'echo "qsub: cannot connect to server pbs (errno=15010)" >&2; exit 1')
    with pytest.raises(Unreachable):
        ask("qsub", [], environ)
    run = RunDir(tmp_path / "run")
    run.create()
    tool(tmp_path, "qsub", 'echo "qsub: Unauthorized Request" >&2; exit 159')
    with pytest.raises(SchedulerError, match="successor") as caught:
        submit_successor(run, {**environ, "PBS_JOBID": "1.pbs"})
    assert "Unauthorized" in caught.value.why
    assert "echelon resume" in caught.value.hint


def test_a_successor_follows_this_job_under_the_same_seal_and_becomes_the_runs_job(tmp_path):
    tool(tmp_path, "qsub", f'printf "%s\\n" "$@" "$ECHELON_SEAL" "$PBS_JOBID" >{tmp_path}/said; echo 2.pbs')
    run = RunDir(tmp_path / "run")
    run.create()
    submit_successor(run, {"PATH": f"{tmp_path}:{os.defpath}", "PBS_JOBID": "1.pbs", "ECHELON_SEAL": "00"})
    said = (tmp_path / "said").read_text().split("\n")
    assert said[:5] == ["-W", "depend=afterany:1.pbs", "-v", "ECHELON_SEAL", str(run.job_script)]
    assert said[5:7] == ["00", ""], "the key in the environment, and nothing of the job around it"
    assert run.read_native_id() == "2.pbs"


def test_a_cancel_in_the_meantime_is_for_the_successor_too(tmp_path):
    tool(tmp_path, "qsub", "echo 2.pbs")
    tool(tmp_path, "qdel", f"echo $1 >{tmp_path}/deleted")
    run = RunDir(tmp_path / "run")
    run.create()
    run.cancel_mark.touch()
    submit_successor(run, {"PATH": f"{tmp_path}:{os.defpath}", "PBS_JOBID": "1.pbs"})
    assert (tmp_path / "deleted").read_text() == "2.pbs\n"


def test_the_environment_of_another_job_is_left_out():
    environ = {"PATH": "/bin", "PBS_JOBID": "1", "PBS_O_WORKDIR": "/", "PBS_SERVER": "s", "PBS_CONF_FILE": "/c"}
    assert PBS.outside(environ) == {"PATH": "/bin", "PBS_SERVER": "s", "PBS_CONF_FILE": "/c"}


# Orphans


def test_a_successor_is_submitted_in_the_end_though_the_server_did_not_answer_at_first(tmp_path, monkeypatch):
    """The event comes after it: a run that says it was requeued is."""
    run_dir = RunDir(tmp_path / "run")
    run_dir.path.mkdir()
    run_dir.attempt(0).path.mkdir()
    run_dir.native_id.write_text("1.pbs.in.full\n")
    tool(tmp_path, "qstat", "printf 'Job Id: 1.pbs\\n    job_state = R\\n'")
    tool(tmp_path, "qdel", "exit 0")
    down = f"[ -e {tmp_path}/tried ] || {{ : > {tmp_path}/tried; echo 'Connection refused' >&2; exit 1; }}"
    tool(tmp_path, "qsub", f"{down}; echo 2.pbs")
    monkeypatch.setattr(pbs_orphans, "LOOK_SECONDS", 0.01)
    environ = {"PATH": f"{tmp_path}:{os.defpath}", "PBS_JOBID": "1.pbs"}
    orphaned = job(policies=Policies(requeues=1, heartbeat=timedelta(0)))
    pbs_orphans.follow_up(orphaned, run_dir, run_dir.attempt(0), environ, patience=30)
    assert run_dir.read_native_id() == "2.pbs"
    assert [event.kind for event in read_events(run_dir.events)] == [Kind.REQUEUED]


# Time


def shown(state="R", walltime="00:10:00", stime="Thu Jan 15 10:15:00 2026"):
    return f"Job Id: 1.pbs\n    job_state = {state}\n    Resource_List.walltime = {walltime}\n    stime = {stime}\n\n"


def test_how_a_job_stands():
    standing = parse_standing(shown(), "1.pbs")
    assert standing.end_at == time.mktime((2026, 1, 15, 10, 25, 0, 0, 0, -1))
    assert not standing.taken_back
    assert parse_standing(shown(state="Q"), "1.pbs").taken_back
    assert parse_standing("", "1.pbs").end_at is None


def answered(question):
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        standing = question.answer()
        if standing is not None:
            return standing
    raise AssertionError("no answer")


def test_a_question_does_not_wait_and_takes_a_long_answer(tmp_path):
    (tmp_path / "text").write_text(shown() + "    Variable_List = " + "x" * 300_000 + "\n")
    environ = {"PATH": os.defpath}
    assert (
        answered(ask_for_standing(tool(tmp_path, "qstat", f"cat {tmp_path}/text"), "1.pbs", environ)).end_at is not None
    )
    with pytest.raises(Unreachable):
        answered(ask_for_standing(tool(tmp_path, "qstat", "exit 153"), "1.pbs", environ))


def test_nobody_is_asked_where_there_is_no_qstat(tmp_path):
    (tmp_path / "nodes").write_text("n1\n")
    environ = {"PATH": "/nonexistent", "PBS_NODEFILE": str(tmp_path / "nodes"), "PBS_JOBID": "1.pbs", "A": "b"}
    hosts = PbsHosts(job(), RunDir(tmp_path), environ)
    assert hosts.ask() is None
    assert hosts.carried == {"PATH": "/nonexistent", "A": "b"}
    assert hosts.listen_address() == "127.0.0.1"


@pytest.mark.parametrize(
    ("limit", "grace", "reserve"), [(None, 5, 15.0), (3600, 5, 15.0), (100, 5, 10.0), (12, 5, 1.2), (3600, 60, 70.0)]
)
def test_some_time_is_kept_for_the_successor_but_not_much_of_a_short_job(limit, grace, reserve):
    policies = Policies(grace=timedelta(seconds=grace))
    time_limit = None if limit is None else timedelta(seconds=limit)
    assert reserve_of(job(policies=policies, time_limit=time_limit)) == pytest.approx(reserve)


def test_the_clock_keeps_its_reserve_also_of_a_limit_that_it_learns_later():
    clock = Clock.of(job(time_limit=timedelta(seconds=100)), 0.0, 10.0)
    assert clock.end_at == 90.0
    clock.ends(95.0, 1.0)
    assert clock.end_at == 85.0
    unknown = Clock.of(job(), 0.0, 15.0)
    unknown.ends(20.0, 0.0)
    assert unknown.end_at == 18.0
