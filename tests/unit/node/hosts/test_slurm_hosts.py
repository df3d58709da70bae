"""The nodes of a Slurm job, as far as that can be told from variables and from what scontrol prints."""

import time

import pytest

from echelon.batch_facts import SLURM
from echelon.errors import EnvironmentProblem
from echelon.job import Job, Resources, Script, ScriptKind
from echelon.node.hosts.slurm import cpus_of, names_of, srun_argv
from echelon.node.hosts.slurm_requeue import successor_id
from echelon.node.hosts.slurm_tools import parse_standing
from echelon.scontrol import fields_of

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


def test_hosts_in_slurms_order_as_many_as_the_job_uses():
    environ = {"SLURM_JOB_NODELIST": "n[03-05,07]"}
    assert names_of(job(nodes=2), environ) == ["n03", "n04"]
    assert names_of(job(nodes=2, spare_nodes=1), environ) == ["n03", "n04", "n05"]


def test_a_job_may_start_on_fewer_nodes_down_to_its_smallest_size():
    environ = {"SLURM_JOB_NODELIST": "n[1-2]"}
    assert names_of(job(nodes=3, min_nodes=2), environ) == ["n1", "n2"]
    with pytest.raises(EnvironmentProblem, match="has 2 of the 3 nodes") as error:
        names_of(job(nodes=3), environ)
    assert error.value.hint == "-N 2 fits it"


def test_outside_of_a_job_that_is_said():
    with pytest.raises(EnvironmentProblem) as error:
        names_of(job(nodes=1), {})
    assert error.value.hint == "run this inside of a Slurm job"


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
def test_cpus_are_restated_to_srun(listed, node, asked, cpus):
    assert cpus_of({"SLURM_JOB_CPUS_PER_NODE": listed}, node, asked) == cpus


def test_srun_shares_what_the_job_has_and_reads_nothing():
    argv = srun_argv(job(nodes=2, gpus_per_node=4), "n2", 8, ["python", "it's", "a b"])
    assert argv[0] == "srun"
    assert argv[-3:] == ["python", "it's", "a b"]
    assert {"--overlap", "--kill-on-bad-exit=0", "--no-kill", "--input=none", "--nodelist=n2"} <= set(argv)
    assert {"--cpus-per-task=8", "--gpus-per-node=4"} <= set(argv)
    assert not any(word.startswith(("--gpus", "--cpus")) for word in srun_argv(job(), "n1", None, ["python"]))


@pytest.mark.parametrize(("ours", "taken_back"), [(0, True), (1, False), (2, False)])
def test_a_job_was_taken_back_when_slurm_counts_more_restarts_than_we_know_of(ours, taken_back):
    line = SHOWN.replace("JobName=Restarts=9 EndTime=never", "JobName=gpt")
    assert parse_standing(line, ours).taken_back is taken_back


def test_when_it_ends_is_a_local_time():
    line = SHOWN.replace("JobName=Restarts=9 EndTime=never", "JobName=gpt")
    end = parse_standing(line, 0).end_at
    assert time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(end)) == "2026-11-16T03:23:27"


@pytest.mark.parametrize("text", ["EndTime=Unknown", "EndTime=N/A", "EndTime=", "", "slurm_load_jobs error"])
def test_no_end_is_no_limit(text):
    standing = parse_standing(text, 0)
    assert standing.end_at is None
    assert not standing.taken_back


def test_fields_are_the_first_of_their_name():
    assert fields_of("A=1 B=two A=3 C= D")["A"] == "1"
    assert fields_of("A=1 C= D")["C"] == ""


@pytest.mark.parametrize(
    "words",
    [
        "slurm_load_jobs error: Unable to contact slurm controller (connect failure)",
        "scontrol: error: Socket timed out on send/recv operation",
        "Connection refused",
    ],
)
def test_words_that_mean_try_again(words):
    assert SLURM.nobody_answers(words)


@pytest.mark.parametrize("words", ["Invalid job id specified", "Access/permission denied", "Requested operation is"])
def test_words_that_mean_no(words):
    assert not SLURM.nobody_answers(words)


def test_what_belongs_to_the_job_around_us_is_left_behind():
    environ = {"SLURM_CONF": "/etc/s", "SLURM_NTASKS": "4", "SBATCH_X": "1", "PMI_RANK": "0", "HOME": "/h"}
    assert SLURM.outside({**environ, "SLURM_JWT": "j"}) == {"SLURM_CONF": "/etc/s", "SLURM_JWT": "j", "HOME": "/h"}


@pytest.mark.parametrize(
    ("printed", "task", "native_id"),
    [("123\n", None, "123"), ("123;big\n", None, "123;big"), ("123\n", "4", "123_4"), ("123;big", "4", "123_4;big")],
)
def test_a_successor_goes_by_an_id_that_the_control_side_understands(printed, task, native_id):
    assert successor_id(printed, task) == native_id
