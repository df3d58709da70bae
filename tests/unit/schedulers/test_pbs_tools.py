"""Submitting, asking and deleting, with programs first on PATH that answer as PBS's own do."""

import json
import os

import pytest

from echelon.config.choice import chosen
from echelon.errors import SchedulerError, SchedulerUnreachable
from echelon.job import Job, Script, ScriptKind
from echelon.run_dir import RunDir
from echelon.schedulers import allocation, pbs
from echelon.sealed import unseal
from echelon.states import JobState

TEXT = "Job Id: 1.pbs\n    job_state = {}\n\n"


@pytest.fixture
def tool(tmp_path, monkeypatch):
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")

    def make(name, text):
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)

    return make


@pytest.fixture
def run(tmp_path):
    run = RunDir(tmp_path / "run")
    run.create()
    run.write(run.native_id, b"1.pbs\n")
    return run


# Submitting


def test_qsub_gets_the_script_and_the_name_of_the_key_and_nothing_of_the_environment(tool, run, tmp_path):
    tool("qsub", f'printf "%s\\n" "$@" >{tmp_path}/argv; env >{tmp_path}/env; echo "welcome"; echo 7.pbs')
    environ = {**os.environ, "API_TOKEN": "s3cr3t\nx", "PBS_JOBID": "0.outer", "PBS_DPREFIX": "#X", "PBS_SERVER": "pbs"}
    assert pbs.submit(run, environ) == "7.pbs"
    assert (tmp_path / "argv").read_text().split("\n")[:3] == ["-v", "ECHELON_SEAL", str(run.job_script)]
    said = dict(line.split("=", 1) for line in (tmp_path / "env").read_text().splitlines() if "=" in line)
    assert said["PBS_SERVER"] == "pbs"
    assert not {"PBS_JOBID", "PBS_DPREFIX"} & set(said)
    assert b"s3cr3t" not in run.sealed.read_bytes()
    assert run.sealed.stat().st_mode & 0o777 == 0o600
    assert unseal(run.sealed.read_bytes(), said["ECHELON_SEAL"])["API_TOKEN"] == environ["API_TOKEN"]


@pytest.mark.parametrize(
    ("code", "words", "hint"),
    [
        (170, "qsub: Unknown queue", "qstat -Q"),
        (187, "qsub: Unknown resource Resource_List.storage", "--pbs"),
        (159, "qsub: Unauthorized Request", "qstat -Qf"),
    ],
)
def test_a_refusal_says_what_to_try(tool, run, code, words, hint):
    tool("qsub", f'echo "{words}" >&2; exit {code}')
    with pytest.raises(SchedulerError, match="PBS refused") as caught:
        pbs.submit(run, os.environ)
    assert caught.value.why == words
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    "words", ["Connection refused\nqsub: cannot connect to server pbs (errno=111)", "qsub: End of File"]
)
def test_a_server_that_does_not_answer_is_worth_another_try(tool, run, words):
    tool("qsub", f'echo "{words}" >&2; exit 1')
    with pytest.raises(SchedulerUnreachable):
        pbs.submit(run, os.environ)


def test_an_answer_without_an_id_is_nonsense(tool, run):
    tool("qsub", "echo submitted")
    with pytest.raises(SchedulerError, match="named no job"):
        pbs.submit(run, os.environ)


# Asking


def test_json_is_asked_for_first(tool, run):
    answer = json.dumps({"Jobs": {"1.pbs": {"job_state": "F", "Exit_status": -29}}})
    tool("qstat", f"""[ "$*" = "-x -f -F json 1.pbs" ] || exit 2; echo '{answer}'""")
    [status] = pbs.query([run])
    assert (status.state, status.exit_code, status.reason) == (JobState.FAILED, 124, "its time limit was reached")


def test_text_does_where_json_is_broken(tool, run):
    text = TEXT.format("R")
    tool(
        "qstat",
        f"""case "$*" in *json*) echo '{{"Jobs":{{"1.pbs":{{"comment":"a "b""}}}}}}';; *) echo '{text}';; esac""",
    )
    [status] = pbs.query([run])
    assert status.native == "R"


def test_a_server_without_a_history_is_asked_without_it(tool, run):
    refusal = "qstat: PBS is not configured to maintain job history"
    tool("qstat", f"""case "$*" in *-x*) echo "{refusal}" >&2; exit 99;; *) echo '{TEXT.format("Q")}';; esac""")
    [status] = pbs.query([run])
    assert status.state is JobState.QUEUED


@pytest.mark.parametrize("code", [153, 35])
def test_an_unknown_or_forgotten_job_is_no_answer(tool, run, code):
    tool("qstat", f'echo "qstat: Unknown Job Id 1.pbs" >&2; exit {code}')
    assert pbs.query([run]) == [None]


def test_the_known_ones_are_told_though_another_is_unknown(tool, run, tmp_path):
    other = RunDir(tmp_path / "other")
    other.create()
    other.write(other.native_id, b"2.pbs\n")
    tool("qstat", f"""echo '{TEXT.format("R")}'; echo "qstat: Unknown Job Id 2.pbs" >&2; exit 153""")
    known, unknown = pbs.query([run, other])
    assert known.native == "R"
    assert unknown is None


def test_anything_else_is_passed_on(tool, run):
    tool("qstat", 'echo "qstat: what?" >&2; exit 1')
    with pytest.raises(SchedulerError) as caught:
        pbs.query([run])
    assert caught.value.why == "qstat: what?"


# Deleting


@pytest.mark.parametrize(("code", "deleted"), [(0, True), (35, False), (153, False)])
def test_deleting(tool, run, code, deleted):
    tool("qstat", f"echo '{TEXT.format('R')}'")
    tool("qdel", f'[ "$*" = 1.pbs ] || exit 2; exit {code}')
    assert pbs.cancel(run) is deleted


def test_a_job_that_is_over_is_not_deleted(tool, run):
    tool("qstat", "exit 153")
    assert pbs.cancel(run) is False


def test_a_refused_deletion_is_an_error(tool, run):
    tool("qstat", f"echo '{TEXT.format('R')}'")
    tool("qdel", 'echo "qdel: Unauthorized Request 1.pbs" >&2; exit 159')
    with pytest.raises(SchedulerError, match="did not delete"):
        pbs.cancel(run)


# Which scheduler is meant


@pytest.fixture
def programs(tmp_path):
    def path(*names):
        folder = tmp_path / "-".join(names or ("none",))
        folder.mkdir()
        for name in names:
            (folder / name).touch(mode=0o755)
        return {"PATH": str(folder)}

    return path


def test_pbs_is_chosen_where_there_is_qsub_and_no_sbatch(programs):
    inside = {"PBS_JOBID": "1.pbs", "PBS_NODEFILE": "/x"}
    assert chosen(programs("qsub"), inside=True).value == "pbs"
    assert chosen(programs("sbatch", "qsub"), inside=True).value == "slurm"
    assert chosen(programs(), inside=True).value == "local"
    assert chosen({**inside}, inside=True).value == "allocation"
    assert chosen({**inside, "PATH": ""}, inside=False).value == "local"


def test_the_hosts_of_the_job_around_us_are_counted_once(tmp_path):
    (tmp_path / "nodes").write_text("n1\nn1\nn2\n")
    environ = {"PBS_JOBID": "1.pbs", "PBS_NODEFILE": str(tmp_path / "nodes")}
    assert allocation.nodes_of(environ) == (2, f"PBS_NODEFILE={tmp_path}/nodes")


def test_a_summary_names_the_job():
    job = Job(name="x", script=Script(kind=ScriptKind.FILE, target="x.py"), cwd="/", python="python", scheduler="pbs")
    assert pbs.summary(job, "7.pbs") == "PBS job 7.pbs"
    assert allocation.summary(job, "1 2 n1 7.pbs") == "in PBS job 7.pbs"
    assert allocation.summary(job, "1 2 n1 7") == "in Slurm job 7"
