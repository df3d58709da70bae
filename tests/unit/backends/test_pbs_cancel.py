"""qsub, qstat and qdel on the control side, with fake programs first on PATH."""

import os

import pytest

from echelon.backends.allocation import BACKEND as ALLOCATED
from echelon.backends.allocation import count_nodes
from echelon.backends.pbs import control as pbs
from echelon.backends.pbs.environment import decrypt_environ
from echelon.config.sources import detect_backend_setting
from echelon.errors import SchedulerError, SchedulerUnreachable
from echelon.job import Job, Script, ScriptKind
from echelon.run_dir import RunDir
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


def test_qsub_gets_script_and_key_name_but_no_environment(tool, run, tmp_path):
    tool("qsub", f'printf "%s\\n" "$@" >{tmp_path}/argv; env >{tmp_path}/env; echo "welcome"; echo 7.pbs')
    environ = {**os.environ, "API_TOKEN": "s3cr3t\nx", "PBS_JOBID": "0.outer", "PBS_DPREFIX": "#X", "PBS_SERVER": "pbs"}
    assert pbs.submit(run, environ) == "7.pbs"
    assert (tmp_path / "argv").read_text().split("\n")[:3] == ["-v", "ECHELON_SEAL", str(run.job_script)]
    said = dict(line.split("=", 1) for line in (tmp_path / "env").read_text().splitlines() if "=" in line)
    assert said["PBS_SERVER"] == "pbs"
    assert not {"PBS_JOBID", "PBS_DPREFIX"} & set(said)
    assert b"s3cr3t" not in run.sealed.read_bytes()
    assert run.sealed.stat().st_mode & 0o777 == 0o600
    assert decrypt_environ(run.sealed.read_bytes(), said["ECHELON_SEAL"])["API_TOKEN"] == environ["API_TOKEN"]


@pytest.mark.parametrize(
    ("code", "words", "hint"),
    [
        (170, "qsub: Unknown queue", "qstat -Q"),
        (187, "qsub: Unknown resource Resource_List.storage", "--pbs"),
        (159, "qsub: Unauthorized Request", "qstat -Qf"),
    ],
)
def test_refusal_of_qsub_has_a_hint(tool, run, code, words, hint):
    tool("qsub", f'echo "{words}" >&2; exit {code}')
    with pytest.raises(SchedulerError, match="PBS refused") as caught:
        pbs.submit(run, os.environ)
    assert caught.value.why == words
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    "words", ["Connection refused\nqsub: cannot connect to server pbs (errno=111)", "qsub: End of File"]
)
def test_unreachable_server_is_a_temporary_error(tool, run, words):
    tool("qsub", f'echo "{words}" >&2; exit 1')
    with pytest.raises(SchedulerUnreachable):
        pbs.submit(run, os.environ)


def test_output_without_job_id_is_an_error(tool, run):
    tool("qsub", "echo submitted")
    with pytest.raises(SchedulerError, match="printed no valid job id"):
        pbs.submit(run, os.environ)


# Asking


def test_a_finished_job_is_looked_up_in_the_history(tool, run):
    over = "Job Id: 1.pbs\n    job_state = F\n    Exit_status = -29\n"
    tool("qstat", f"""case "$*" in "-x -f 1.pbs") echo '{over}';; *) exit 35;; esac""")
    [status] = pbs.query([run])
    assert (status.state, status.exit_code, status.reason) == (JobState.FAILED, 124, "its time limit was reached")


def test_without_a_history_a_queued_job_is_still_known(tool, run):
    """OpenPBS's default: qstat -x exits 0 and shows no job."""
    refusal = "qstat: PBS is not configured to maintain job history 1.pbs"
    tool("qstat", f"""case "$*" in *-x*) echo "{refusal}" >&2; exit 0;; *) echo '{TEXT.format("Q")}';; esac""")
    [status] = pbs.query([run])
    assert status.state is JobState.QUEUED


def test_without_a_history_an_ended_job_is_unknown(tool, run):
    tool("qstat", """case "$*" in *-x*) exit 0;; *) echo "qstat: Unknown Job Id 1.pbs" >&2; exit 153;; esac""")
    assert pbs.query([run]) == [None]


@pytest.mark.parametrize("code", [153, 35])
def test_unknown_job_has_no_status(tool, run, code):
    tool("qstat", f'echo "qstat: Unknown Job Id 1.pbs" >&2; exit {code}')
    assert pbs.query([run]) == [None]


def test_known_jobs_are_reported_beside_an_unknown_one(tool, run, tmp_path):
    other = RunDir(tmp_path / "other")
    other.create()
    other.write(other.native_id, b"2.pbs\n")
    tool("qstat", f"""echo '{TEXT.format("R")}'; echo "qstat: Unknown Job Id 2.pbs" >&2; exit 153""")
    known, unknown = pbs.query([run, other])
    assert known.native == "R"
    assert unknown is None


def test_other_qstat_errors_are_raised(tool, run):
    tool("qstat", 'echo "qstat: what?" >&2; exit 1')
    with pytest.raises(SchedulerError) as caught:
        pbs.query([run])
    assert caught.value.why == "qstat: what?"


# Deleting


@pytest.mark.parametrize(("code", "deleted"), [(0, True), (35, False), (153, False)])
def test_cancel_runs_qdel(tool, run, code, deleted):
    tool("qstat", f"echo '{TEXT.format('R')}'")
    tool("qdel", f'[ "$*" = 1.pbs ] || exit 2; exit {code}')
    assert pbs.cancel(run) is deleted


@pytest.mark.parametrize("answer", ["exit 153", "echo 'qstat: what?' >&2; exit 1", "echo 'End of File' >&2; exit 1"])
def test_qdel_runs_without_qstat(tool, run, tmp_path, answer):
    tool("qstat", answer)
    tool("qdel", f'echo "$@" >{tmp_path}/deleted')
    assert pbs.cancel(run) is True
    assert (tmp_path / "deleted").read_text() == "1.pbs\n"


def test_a_second_cancel_deletes_by_force(tool, run):
    tool("qstat", f"echo '{TEXT.format('R')}'")
    tool("qdel", '[ "$*" = "-W force 1.pbs" ]')
    assert pbs.cancel(run, force=True) is True


def test_a_run_without_a_job_id_is_not_deleted(tool, run):
    tool("qdel", "exit 0")
    run.native_id.unlink()
    assert pbs.cancel(run) is False


def test_a_refused_deletion_is_an_error(tool, run):
    tool("qstat", f"echo '{TEXT.format('R')}'")
    tool("qdel", 'echo "qdel: Unauthorized Request 1.pbs" >&2; exit 159')
    with pytest.raises(SchedulerError, match="did not delete"):
        pbs.cancel(run)


@pytest.mark.parametrize(
    ("answer", "undecided"),
    [("exec sleep 600", True), ("echo 'qdel: cannot connect to server pbs (errno=111)' >&2; exit 1", False)],
)
def test_a_qdel_that_times_out_may_have_been_accepted(tool, answer, undecided):
    tool("qdel", answer)
    with pytest.raises(SchedulerUnreachable) as caught:
        pbs.qdel("1.pbs", force=False, seconds=1.0)
    assert caught.value.undecided is undecided
    assert ("again to force it" in caught.value.hint) is undecided


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


def test_pbs_is_detected_by_qsub_without_sbatch(programs):
    inside = {"PBS_JOBID": "1.pbs", "PBS_NODEFILE": "/x"}
    assert detect_backend_setting(programs("qsub"), inside=True).value == "pbs"
    assert detect_backend_setting(programs("sbatch", "qsub"), inside=True).value == "slurm"
    assert detect_backend_setting(programs(), inside=True).value == "local"
    assert detect_backend_setting({**inside}, inside=True).value == "allocation"
    assert detect_backend_setting({**inside, "PATH": ""}, inside=False).value == "local"


def test_hosts_of_the_surrounding_job_are_counted_once(tmp_path):
    (tmp_path / "nodes").write_text("n1\nn1\nn2\n")
    environ = {"PBS_JOBID": "1.pbs", "PBS_NODEFILE": str(tmp_path / "nodes")}
    assert count_nodes(environ) == (2, f"PBS_NODEFILE={tmp_path}/nodes")


def test_a_summary_names_the_job():
    job = Job(name="x", script=Script(kind=ScriptKind.FILE, target="x.py"), cwd="/", python="python", scheduler="pbs")
    assert pbs.submission_summary(job, "7.pbs") == "PBS job 7.pbs"
    assert ALLOCATED.submission_summary(job, "1 2 n1 7.pbs") == "in PBS job 7.pbs"
    assert ALLOCATED.submission_summary(job, "1 2 n1 7") == "in Slurm job 7"
