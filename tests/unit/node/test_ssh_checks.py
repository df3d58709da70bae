"""Which hosts can be used, and the one error for those that cannot."""

from dataclasses import replace

import pytest

from echelon.job import Job, Resources, Script, ScriptKind
from echelon.node.hosts.ssh_checks import problem_of_clock, problem_of_host, refusal, remark_of, remarks_of, script_of
from echelon.node.hosts.ssh_connection import Report
from echelon.node.hosts.ssh_words import Problem

JOB = Job(
    name="gpt", script=Script(kind=ScriptKind.FILE, target="train.py"), cwd="/home/ada/gpt", python="python3",
    resources=Resources(nodes=2, gpus_per_node=4),
)  # fmt: skip
GOOD = Report(
    version=(3, 10, 0), python="/usr/bin/python3", torch=True, time=1000.0, shared=False, cwd=True, script=True, gpus=4,
    address="10.0.0.1",
)  # fmt: skip


@pytest.mark.parametrize(
    ("wrong", "what", "hint"),
    [
        ({"version": (3, 9, 18)}, "Python 3.9.18, and 3.10 is needed", "--python"),
        ({"torch": False}, "no torch: /usr/bin/python3", "--cold"),
        ({"script": False}, "no script at /home/ada/gpt/train.py", "--snapshot"),
        ({"gpus": 2}, "it has 2 GPUs, and 4 were asked for", "-g 2"),
    ],
)
def test_what_is_missing_is_named_with_its_fix(wrong, what, hint):
    problem = problem_of_host("gpu1", JOB, replace(GOOD, **wrong))
    assert what in problem.what
    assert hint in problem.hint


def test_a_good_host_has_no_problem_and_ranks_alone_run_where_there_are_no_gpus():
    assert problem_of_host("gpu1", JOB, GOOD) is None
    assert problem_of_host("gpu1", JOB, replace(GOOD, gpus=0)) is None
    assert problem_of_host("gpu1", replace(JOB, cold=True), replace(GOOD, torch=False)) is None


@pytest.mark.parametrize(
    ("job", "path"),
    [
        (JOB, "/home/ada/gpt/train.py"),
        (replace(JOB, script=Script(kind=ScriptKind.FILE, target="/x/train.py")), "/x/train.py"),
        (replace(JOB, snapshot=True), ""),
        (replace(JOB, script=Script(kind=ScriptKind.MODULE, target="gpt.train")), ""),
    ],
)
def test_only_a_script_that_is_not_sent_must_be_there(job, path):
    assert script_of(job) == path


@pytest.mark.parametrize(
    ("clock", "words"),
    [(1000.0, None), (1005.9, None), (995.1, None), (1091.0, "90 s ahead of ours"), (910.0, "90 s behind ours")],
)
def test_a_clock_counts_as_wrong_beyond_what_the_way_took(clock, words):
    problem = problem_of_clock("gpu1", replace(GOOD, time=clock), 1000.0, 1001.0)
    assert problem is None if words is None else words in problem.what
    assert problem is None or "set its clock" in problem.hint


def test_one_problem_is_an_error_of_its_own():
    error = refusal([Problem(host="gpu1", what="it does not answer", why="No route to host", hint="wait")], 3)
    assert (error.what, error.why, error.hint, error.host) == (
        "gpu1: it does not answer",
        "No route to host",
        "wait",
        "gpu1",
    )


def test_several_problems_are_one_error():
    down = Problem(host="gpu1", what="it does not answer", why="ssh: No route to host", hint="wait")
    bare = Problem(host="gpu2", what="no torch", hint="--python")
    error = refusal([down, bare], 3)
    assert error.exit_code == 5
    assert error.what == "2 of 3 hosts cannot be used"
    assert error.why.splitlines() == [
        "", "  gpu1: it does not answer", "    | ssh: No route to host", "    try  wait", "  gpu2: no torch", "    try  --python",
    ]  # fmt: skip
    same = refusal([bare, replace(bare, host="gpu3")], 2)
    assert same.hint == "--python"
    assert "try" not in same.why


def test_what_may_surprise_is_said():
    bare, elsewhere = replace(GOOD, gpus=0), replace(GOOD, cwd=False)
    assert remarks_of({"a": GOOD, "b": GOOD}, JOB) == []
    assert "no GPU on b" in remarks_of({"a": GOOD, "b": bare}, JOB)[0]
    assert remarks_of({"a": bare, "b": bare}, JOB) == []
    assert "no folder /home/ada/gpt on a" in remarks_of({"a": elsewhere}, JOB)[0]
    assert remarks_of({"a": elsewhere}, replace(JOB, snapshot=True)) == []
    lost = Problem(host="gpu1", what="it does not answer", why="one\ntwo", hint="wait")
    assert remark_of(lost) == "gpu1 is left out: it does not answer: two"
