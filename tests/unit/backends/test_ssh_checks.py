"""Checks of ssh hosts, and the error for unusable ones."""

from dataclasses import replace

import pytest

from echelon.backends.ssh.connection import HostReport
from echelon.backends.ssh.diagnose import (
    Problem,
    clock_problem,
    exclusion_remark,
    host_problem,
    host_remarks,
    required_script,
    unusable_hosts_error,
)
from echelon.job import Job, Resources, Script, ScriptKind

JOB = Job(
    name="gpt",
    script=Script(kind=ScriptKind.FILE, target="train.py"),
    cwd="/home/ada/gpt",
    python="python3",
    scheduler="local",
    resources=Resources(nodes=2, gpus_per_node=4),
)
GOOD = HostReport(
    version=(3, 10, 0),
    python="/usr/bin/python3",
    torch=True,
    time=1000.0,
    shared=False,
    cwd=True,
    script=True,
    gpus=4,
    address="10.0.0.1",
)


@pytest.mark.parametrize(
    ("wrong", "what", "hint"),
    [
        ({"version": (3, 9, 18)}, "Python 3.9.18; 3.10 or newer is needed", "--python"),
        ({"torch": False}, "/usr/bin/python3 has no torch", "--cold"),
        ({"script": False}, "no script at /home/ada/gpt/train.py", "--snapshot"),
        ({"gpus": 2}, "2 GPUs, but 4 requested", "-g 2"),
    ],
)
def test_host_problem_has_a_hint(wrong, what, hint):
    problem = host_problem("gpu1", JOB, replace(GOOD, **wrong))
    assert what in problem.what
    assert hint in problem.hint


def test_good_host_has_no_problem():
    assert host_problem("gpu1", JOB, GOOD) is None
    assert host_problem("gpu1", JOB, replace(GOOD, gpus=0)) is None
    assert host_problem("gpu1", replace(JOB, cold=True), replace(GOOD, torch=False)) is None


@pytest.mark.parametrize(
    ("job", "path"),
    [
        (JOB, "/home/ada/gpt/train.py"),
        (replace(JOB, script=Script(kind=ScriptKind.FILE, target="/x/train.py")), "/x/train.py"),
        (replace(JOB, snapshot=True), ""),
        (replace(JOB, script=Script(kind=ScriptKind.MODULE, target="gpt.train")), ""),
    ],
)
def test_script_must_exist_only_without_snapshot(job, path):
    assert required_script(job) == path


@pytest.mark.parametrize(
    ("clock", "words"),
    [
        (1000.0, None),
        (1005.9, None),
        (995.1, None),
        (1091.0, "90 s ahead of this machine"),
        (910.0, "90 s behind this machine"),
    ],
)
def test_clock_error_excludes_the_travel_time(clock, words):
    problem = clock_problem("gpu1", replace(GOOD, time=clock), 1000.0, 1001.0)
    assert problem is None if words is None else words in problem.what
    assert problem is None or "synchronize its clock" in problem.hint


def test_error_for_one_problem():
    error = unusable_hosts_error([Problem(host="gpu1", what="no answer", why="No route to host", hint="wait")], 3)
    assert (error.what, error.why, error.hint, error.host) == (
        "gpu1: no answer",
        "No route to host",
        "wait",
        "gpu1",
    )


def test_error_for_several_problems():
    down = Problem(host="gpu1", what="no answer", why="ssh: No route to host", hint="wait")
    bare = Problem(host="gpu2", what="no torch", hint="--python")
    error = unusable_hosts_error([down, bare], 3)
    assert error.exit_code == 5
    assert error.what == "2 of 3 hosts cannot be used"
    assert error.why.splitlines() == [
        "",
        "  gpu1: no answer",
        "    | ssh: No route to host",
        "    try  wait",
        "  gpu2: no torch",
        "    try  --python",
    ]
    same = unusable_hosts_error([bare, replace(bare, host="gpu3")], 2)
    assert same.hint == "--python"
    assert "try" not in same.why


def test_unexpected_facts_give_remarks():
    bare, elsewhere = replace(GOOD, gpus=0), replace(GOOD, cwd=False)
    assert host_remarks({"a": GOOD, "b": GOOD}, JOB) == []
    assert "no GPU on b" in host_remarks({"a": GOOD, "b": bare}, JOB)[0]
    assert host_remarks({"a": bare, "b": bare}, JOB) == []
    assert "no folder /home/ada/gpt on a" in host_remarks({"a": elsewhere}, JOB)[0]
    assert host_remarks({"a": elsewhere}, replace(JOB, snapshot=True)) == []
    lost = Problem(host="gpu1", what="no answer", why="one\ntwo", hint="wait")
    assert exclusion_remark(lost) == "gpu1 is not used: no answer: two"
