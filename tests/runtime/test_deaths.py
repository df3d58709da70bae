"""Real deaths of real ranks: the verdict names the cause, and the cause decides what happens next."""

import json
import os
import signal
import subprocess

import pytest

from running import SCRIPTS, marked_processes, wait_for

STEPS = SCRIPTS / "steps.py"


def verdict(run, attempt=0) -> dict:
    return json.loads((run.path / f"attempt-{attempt}" / "error.json").read_text())


def test_the_text_of_sys_exit_is_the_verdict(echelon):
    script = echelon.script("text.py", "import sys\nprint('start')\nsys.exit('no such dataset: cifar11')\n")
    result = echelon("run", "--cold", script)
    assert result.returncode == 1
    assert "rank 0 on node0 exited: no such dataset: cifar11" in result.stderr
    assert "--restarts N" not in result.stderr
    assert echelon.only_run().rank_log(0) == "start\nno such dataset: cifar11\n", "what python prints, once"
    assert verdict(echelon.only_run())["cause"] == "the script exited with a text"


@pytest.mark.parametrize(
    "way", [pytest.param((), marks=pytest.mark.torch, id="warm"), pytest.param(("--cold",), id="cold")]
)
def test_a_segfault_names_the_line_of_the_script(echelon, way):
    script = echelon.script("crash.py", "import ctypes\ndef step():\n    ctypes.string_at(0)\nstep()\n")
    result = echelon("run", *way, script)
    assert result.returncode == 128 + signal.SIGSEGV
    found = verdict(echelon.only_run())
    assert found["sentence"].startswith("rank 0 on node0 crashed with SIGSEGV (segmentation fault) in ")
    assert f"called from {script}:3 (step)" in found["sentence"]
    assert not any("run_script" in line for line in found["details"]), "our own frames are none of the user's business"
    assert echelon.only_run().rank_log(0) == "", "python prints nothing either"


def test_an_exit_code_without_a_message_has_the_last_lines(echelon):
    script = echelon.script(
        "code.py", "import os\nfor n in range(30):\n    print('line', n, flush=True)\nos._exit(4)\n"
    )
    assert echelon("run", "--cold", script).returncode == 4
    assert verdict(echelon.only_run())["details"] == [f"line {n}" for n in range(20, 30)]


def test_a_refused_allocation_stops_at_once(echelon):
    script = echelon.script("large.py", "block = bytearray(1 << 50)\n")
    result = echelon("run", "--cold", "--restarts", "3", "--requeues", "3", "--setup", "ulimit -v 8000000", script)
    assert result.returncode == 1, result.stderr
    run = echelon.only_run()
    assert len(run.events("generation")) == 1, "no restart"
    assert run.events("requeued") == []
    found = verdict(run)
    assert (found["cause"], found["rule"]) == (
        "memory allocation failed",
        "memory allocation failed: a restart would fail in the same way",
    )
    assert "ulimit -v unlimited" in found["hint"], "the limit that was set"
    assert f"echelon resume {run.id}" in found["change"]


def test_a_text_of_cuda_about_memory_stops_at_once(echelon):
    message = "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB of which 1.00 GiB is free."
    script = echelon.script("cuda.py", f"raise RuntimeError({message!r})\n")
    result = echelon("run", "--cold", "--restarts", "3", script)
    assert "rank 0 on node0 ran out of GPU memory: tried to allocate 2.00 GiB" in result.stderr
    assert len(echelon.only_run().events("generation")) == 1


def test_a_killed_starter_is_named_and_not_its_ranks(echelon):
    run = echelon.submit("-N", "2", "-g", "2", "--cold", STEPS, "--steps", "900", "--seconds", "0.05")
    wait_for(lambda: len(run.events("rank_ready")) == 4, "all ranks")
    starters = [pid for pid, line in marked_processes(echelon.mark) if "echelon.pyz starter" in line]
    os.kill(starters[0], signal.SIGKILL)
    assert run.wait()["outcome"] == "failed"
    (fault,) = run.events("fault")
    assert fault["cause"] == "the starter died"
    assert fault["fault"].startswith(f"the starter on {fault['host']} died; rank ")


def test_a_killed_agent_is_named(echelon):
    run = echelon.submit("-N", "2", "--cold", STEPS, "--steps", "900", "--seconds", "0.05")
    wait_for(lambda: len(run.events("rank_ready")) == 2, "all ranks")
    agents = [pid for pid, line in marked_processes(echelon.mark) if "echelon.pyz agent" in line]
    os.kill(agents[0], signal.SIGKILL)
    run.wait()
    (fault,) = run.events("fault")
    assert (fault["cause"], fault["fault"]) == ("the agent died", f"lost {fault['host']}: its agent died")


@pytest.fixture
def small_disk(tmp_path):
    path = tmp_path / "small"
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", path], check=True)
    yield path
    subprocess.run(["umount", path], check=True)


@pytest.mark.root
def test_a_full_disk_is_named_with_its_path_and_stops(echelon, small_disk):
    script = echelon.script(
        "full.py",
        "import os, sys\npath = sys.argv[1] + '/model.pt'\n"
        "try:\n    open(path, 'wb').write(bytes(1 << 20))\n"
        "except OSError as error:\n    raise OSError(error.errno, os.strerror(error.errno), path) from None\n",
    )
    result = echelon("run", "--cold", "--restarts", "3", script, small_disk)
    assert result.returncode == 1
    found = verdict(echelon.only_run())
    assert found["cause"] == "no space on the file system"
    assert found["details"] == [f"0 B free on the file system of {small_disk}/model.pt"]
    assert found["hint"].startswith(f"free space on the file system of {small_disk}/model.pt, then echelon resume ")
    assert len(echelon.only_run().events("generation")) == 1


def test_the_same_exception_in_the_next_attempt_stops(echelon):
    """The first attempt fails, restarts and asks for a requeue. The second one fails at the same step."""
    script = echelon.script(
        "again.py",
        "import os, sys\nimport echelon\nechelon.report(7)\n"
        "if os.environ['ECHELON_GENERATION'] == '1':\n    sys.exit(75)\n"
        "raise ValueError('bad batch %d' % os.getpid())\n",
    )
    result = echelon("run", "--cold", "--restarts", "5", "--requeues", "5", script)
    assert result.returncode == 1
    run = echelon.only_run()
    assert [event["attempt"] for event in run.events("fault")] == [0, 1]
    assert [event["attempt"] for event in run.events("generation")] == [0, 0, 1]
    assert "same exception at the same step twice; not restarting" in result.stderr
    assert verdict(run, 1)["rule"] == "same exception at the same step twice; not restarting"


def test_new_submission_starts_without_earlier_failures(echelon):
    script = echelon.script(
        "later.py", "import os\nif os.environ['ECHELON_GENERATION'] == '0':\n    raise ValueError('bad batch')\n"
    )
    run = echelon.submit("--cold", script)
    assert run.wait()["outcome"] == "failed"
    assert run.events("fault")[0]["rule"] == "--restarts is not set"
    assert echelon("resume", run.id).returncode in (0, 1)
    assert run.events("fault")[-1]["rule"] == "--restarts is not set", "not: the same exception twice"


def test_a_cancel_ends_the_delay_before_a_restart(echelon):
    script = echelon.script("kill.py", "import os\nos.kill(os.getpid(), 9)\n")
    run = echelon.submit("--cold", "--restarts", "9", script)
    wait_for(lambda: len(run.events("fault")) == 2, "the second failure")
    assert run.events("fault")[-1]["rule"] == "killed by SIGKILL: possibly temporary; restarting after 1 s"
    os.kill(run.supervisor(), signal.SIGTERM)
    assert run.wait()["outcome"] == "cancelled"
