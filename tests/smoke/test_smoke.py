"""A few real runs on every Python and torch version of tools/smoke_environments.py that this machine has."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from loopback_ssh import HOST
from smoke_environments import ready_environments

from echelon.job import ScriptKind
from echelon.train.checkpoint.verify import committed_checkpoints
from running import DEADLINE_SECONDS, ONCE_MORE, SCRIPTS, wait_for

GLOBALS = """
x: int = 3
main = __import__("sys").modules["__main__"]
print(sorted(globals()), main.__annotations__)
"""
RUN_AS_MAIN = """
import pathlib, sys
from echelon.job import Script, ScriptKind
from echelon.agent.run_script import run_as_main
script = Script(kind=ScriptKind(sys.argv[1]), target=sys.argv[2], args=())
run_as_main(script, pathlib.Path("error"), None)
"""
TRAIN = Path(__file__).with_name("smoke_train.py")
SUM = Path(__file__).with_name("smoke_sum.py")


def newest_step(run):
    return max((name.step for name in committed_checkpoints(run.path / "checkpoints")), default=0)


def minor_version(python):
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def assert_sums(result, python):
    assert result.returncode == 0, result.stderr + result.stdout
    lines = sorted(re.sub(r"^\[\d\] ", "", line) for line in result.stdout.splitlines() if "sum" in line)
    assert lines == [f"rank {rank} of 2: sum 3.0 on Python {minor_version(python)}" for rank in range(2)]
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("words", [("script.py",), ("-m", "script")], ids=["file", "module"])
def test_script_has_the_globals_of_its_python(use, any_python, words):
    echelon = use(any_python)
    echelon.script("script.py", GLOBALS)
    kind = ScriptKind.MODULE if words[0] == "-m" else ScriptKind.FILE
    expected, found = (
        subprocess.run(
            [any_python, *argv], env=echelon.env, cwd=echelon.folder, capture_output=True, text=True, check=True
        )
        for argv in (words, ("-c", RUN_AS_MAIN, kind.value, words[-1]))
    )
    assert found.stdout == expected.stdout


def test_program_without_torch_is_restarted(use, any_python):
    echelon = use(any_python)
    flags = ("-g", "2", "--cold", "--restarts", "1")
    result = echelon("run", *flags, SCRIPTS / "steps.py", *ONCE_MORE, "--do", "kill", "--report")
    assert result.returncode == 0, result.stderr + result.stdout
    assert result.stdout.count("done") == 2
    (fault,) = echelon.only_run().events("fault")
    assert fault["fault"].startswith("rank 1 on node0 was killed by SIGKILL")


@pytest.mark.torch
def test_killed_and_preempted_warm_run_resumes(use, python):
    run = use(python).submit("-g", "2", "--restarts", "1", "--requeues", "1", TRAIN)
    wait_for(lambda: newest_step(run) >= 4, "the first checkpoints", DEADLINE_SECONDS)
    os.kill(run.pid_of(1), signal.SIGKILL)
    run.pid_of(1, generation=1)
    saved = newest_step(run)
    wait_for(lambda: newest_step(run) > saved, "a checkpoint of the second generation")
    os.kill(run.supervisor(), signal.SIGUSR1)
    (end,) = wait_for(lambda: run.events("finished"), "the end of the run", DEADLINE_SECONDS)
    assert end["outcome"] == "succeeded", (run.events(), run.rank_log(0), run.rank_log(0, 1))
    (fault,) = run.events("fault")
    assert fault["fault"].startswith("rank 1 on node0 was killed by SIGKILL")
    assert [event["reason"] for event in run.events("requeued")] == ["the ranks stopped in time"]
    logs = [run.rank_log(rank, 1) for rank in range(2)]
    ends = [re.search(r"of 2 ends at step 40 with (.*)", log)[1] for log in logs]
    assert ends[0] == ends[1]


@pytest.mark.torch
@pytest.mark.parametrize("flags", [("--cold",), ("--launcher", "torchrun")], ids=["cold", "torchrun"])
def test_ranks_add_up(use, python, flags):
    assert_sums(use(python)("run", "-g", "2", *flags, SUM), python)


@pytest.mark.torch
def test_ranks_add_up_over_ssh(use, python, ssh):
    flags = ("--on", "ssh", "--hosts", HOST, "--python", python, "-g", "2")
    assert_sums(use(python)("run", *flags, SUM, env=ssh), python)


@pytest.mark.torch
@pytest.mark.parametrize("environment", ready_environments()[-1:], ids=lambda environment: environment.name)
def test_host_may_have_another_python(use, environment, ssh):
    here, there = Path(sys.executable), environment.executable
    for control, remote in ((here, there), (there, here)):
        flags = ("--on", "ssh", "--hosts", HOST, "--python", remote, "-g", "2")
        assert_sums(use(control)("run", *flags, SUM, env=ssh), remote)
