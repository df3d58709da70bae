"""Other launchers on rehearsed nodes: faults, requeues and verdicts, and no process is left."""

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from running import ONCE_MORE, SCRIPTS, marked_processes, wait_for

STEPS = SCRIPTS / "steps.py"
TWO_BY_TWO = ("-N", "2", "-g", "2")
NO_MPI = shutil.which("mpirun") is None and "SKIP_NOTHING" not in os.environ
MPIRUN = pytest.param("mpirun", marks=pytest.mark.skipif(NO_MPI, reason="Open MPI is not installed"))
LAUNCHERS = ["torchrun", "accelerate", "legacy", MPIRUN]
ONE_OF_EACH_SCOPE = ["torchrun", MPIRUN]
PROGRAMS = {"torchrun": "torch.distributed.run --nnodes=2 --node-rank=0", "mpirun": "mpirun -n"}

pytestmark = pytest.mark.torch


def lines_with(mark, words):
    return [pid for pid, line in marked_processes(mark) if words in line]


def is_pending(pid, signum):
    """Whether the signal was sent and is still pending because it is blocked."""
    status = Path(f"/proc/{pid}/status").read_text().splitlines()
    (mask,) = [line.split()[1] for line in status if line.startswith("ShdPnd:")]
    return bool(int(mask, 16) >> (signum - 1) & 1)


@pytest.mark.parametrize("launcher", ONE_OF_EACH_SCOPE)
def test_killed_rank_starts_a_generation_with_working_all_reduce(echelon, launcher):
    script = echelon.script(
        "add_up.py",
        "import os, signal, torch, torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "total = torch.ones(1)\n"
        "dist.all_reduce(total)\n"
        "print('sum', int(total), 'of', os.environ['LOCAL_RANK'], 'on', os.environ['GROUP_RANK'], flush=True)\n"
        "if dist.get_rank() == 3 and os.environ['TORCHELASTIC_RESTART_COUNT'] == '0':\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "dist.barrier()\n"
        "dist.destroy_process_group()\n",
    )
    result = echelon("run", *TWO_BY_TWO, "--launcher", launcher, "--restarts", "1", script)
    assert result.returncode == 0, result.stderr + result.stdout
    run = echelon.only_run()
    (fault,) = run.events("fault")
    assert fault["fault"].startswith("rank 3 on node1 was killed by SIGKILL")
    for rank in range(4):
        assert run.rank_log(rank).count(f"sum 4 of {rank % 2} on {rank // 2}\n") == 2


def test_torchrun_by_c10d(echelon):
    result = echelon("run", *TWO_BY_TWO, "--launcher", "torchrun", "--rdzv", "c10d", SCRIPTS / "env_init.py")
    assert result.returncode == 0, result.stderr + result.stdout
    ranks = [json.loads(line.partition("] ")[2]) for line in result.stdout.splitlines() if "] {" in line]
    assert sorted((fact["rank"], fact["local_rank"]) for fact in ranks) == [(0, 0), (1, 1), (2, 0), (3, 1)]


@pytest.mark.parametrize("launcher", ["accelerate", "legacy"])  # the others are told of on real nodes
def test_failing_rank_gives_one_verdict(echelon, launcher):
    result = echelon("run", *TWO_BY_TWO, "--launcher", launcher, STEPS, "--do", "raise", "--who", "2")
    assert result.returncode == 1
    assert "rank 2 on node1 raised ValueError: rank 2 is unhappy" in result.stderr
    assert result.stderr.count("Traceback (most recent call last)") == 1
    run = echelon.only_run()
    assert len(run.events("fault")) == 1
    assert f"[{launcher}]" not in result.stdout, "what a launcher makes of it is no news"


@pytest.mark.parametrize("launcher", ONE_OF_EACH_SCOPE)
def test_exit_75_waits_for_the_other_ranks_and_requeues(echelon, launcher):
    """Launchers end all ranks when the first one leaves in error; here each takes its own time."""
    script = echelon.script(
        "save.py",
        "import os, sys, time\n"
        "if os.environ['ECHELON_ATTEMPT'] == '0':\n"
        "    time.sleep(0.5 * int(os.environ['RANK']))\n"
        "    print('saved', flush=True)\n"
        "    sys.exit(75)\n",
    )
    result = echelon("run", *TWO_BY_TWO, "--launcher", launcher, "--requeues", "1", script)
    assert result.returncode == 0, result.stderr + result.stdout
    run = echelon.only_run()
    assert [event["reason"] for event in run.events("requeued")] == ["the ranks stopped in time"]
    assert [run.rank_log(rank) for rank in range(4)] == ["saved\n"] * 4


@pytest.mark.parametrize("launcher", ONE_OF_EACH_SCOPE)
def test_a_hang_is_found_and_stacks_are_saved(echelon, launcher):
    result = echelon(
        "run", *TWO_BY_TWO, "--launcher", launcher, "--hang-timeout", "3s", STEPS, "--do", "stop", "--who", "2"
    )
    assert result.returncode == 1
    assert "rank 2 on node1 is stopped by a signal (SIGSTOP)" in result.stderr
    evidence = echelon.only_run().path / "attempt-0" / "evidence" / "generation-0"
    assert "state T" in (evidence / "rank-2.stacks").read_text()
    for rank in (0, 1, 3):
        assert "steps.py" in (evidence / f"rank-{rank}.stacks").read_text()


@pytest.mark.parametrize("launcher", ONE_OF_EACH_SCOPE)
def test_notice_reaches_ranks_without_a_signal_to_the_launcher(echelon, launcher):
    """A scheduler may send USR1 and TERM to every process; torchrun would die of either, mpirun end its ranks."""
    script = echelon.script(
        "listen.py",
        "import signal, sys, time\n"
        "signal.signal(signal.SIGUSR1, lambda *_: sys.exit(75))\n"
        "print('ready', flush=True)\n"
        "time.sleep(600)\n",
    )
    run = echelon.submit(*TWO_BY_TWO, "--launcher", launcher, "--requeues", "0", script)
    wait_for(lambda: all("ready" in run.rank_log(rank) for rank in range(4)), "all ranks")
    program = lines_with(echelon.mark, PROGRAMS[launcher])[0]
    for signum in (signal.SIGUSR1, signal.SIGTERM, signal.SIGHUP):
        os.kill(program, signum)
        os.kill(lines_with(echelon.mark, "echelon.pyz worker")[0], signum)
        assert is_pending(program, signum), "it waits for ever"
    os.kill(run.supervisor(), signal.SIGUSR1)
    assert run.wait()["exit_code"] == 75
    assert run.events("fault") == []


@pytest.mark.parametrize(
    ("launcher", "victim", "sentence"),
    [
        ("torchrun", "launcher", "{launcher} on node0 was killed by SIGKILL"),
        ("torchrun", "worker", "was killed by SIGKILL"),
        ("torchrun", "agent", ": its agent died"),
        ("torchrun", "starter", "the starter on node"),
        pytest.param("mpirun", "launcher", "{launcher} on node0 was killed by SIGKILL", marks=MPIRUN.marks),
    ],
)
def test_any_killed_process_is_one_fault_and_the_run_recovers(echelon, launcher, victim, sentence):
    words = {
        "launcher": PROGRAMS[launcher],
        "worker": "echelon.pyz worker",
        "agent": "echelon.pyz agent",
        "starter": "echelon.pyz starter",
    }[victim]
    run = echelon.submit(*TWO_BY_TWO, "--launcher", launcher, "--restarts", "1", STEPS, *ONCE_MORE)
    wait_for(lambda: all("step 3" in run.rank_log(rank) for rank in range(4)), "a few steps")
    os.kill(lines_with(echelon.mark, words)[0], signal.SIGKILL)
    wait_for(lambda: len(run.events("generation")) == 2, "the next generation")
    assert len(lines_with(echelon.mark, "echelon.pyz rank")) <= 4, "of the last one nothing is left"
    assert run.wait()["outcome"] == "succeeded"
    (fault,) = run.events("fault")
    assert sentence.format(launcher=launcher) in fault["fault"]


@pytest.mark.parametrize("launcher", ONE_OF_EACH_SCOPE)
def test_killed_supervisor_leaves_no_process(echelon, launcher):
    run = echelon.submit(*TWO_BY_TWO, "--launcher", launcher, STEPS, "--steps", "9000", "--seconds", "0.1")
    run.pid_of(3)
    os.kill(run.supervisor(), signal.SIGKILL)
    wait_for(lambda: not marked_processes(echelon.mark), "all to leave", 15)
    (run.path / "token").unlink()  # nobody was left to take it away


@pytest.mark.parametrize("launcher", [MPIRUN])
def test_cancel_gives_the_ranks_the_grace_period(echelon, launcher):
    script = echelon.script(
        "grace.py",
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: (time.sleep(1), print('goodbye', flush=True), sys.exit(0)))\n"
        "print('ready', flush=True)\n"
        "time.sleep(600)\n",
    )
    run = echelon.submit(*TWO_BY_TWO, "--launcher", launcher, script)
    wait_for(lambda: all("ready" in run.rank_log(rank) for rank in range(4)), "all ranks")
    assert echelon("cancel", run.id).returncode == 0
    assert run.wait()["outcome"] == "cancelled"
    assert ["goodbye" in run.rank_log(rank) for rank in range(4)] == [True] * 4


def test_cancel_before_any_rank_has_started(echelon):
    run = echelon.submit(*TWO_BY_TWO, "--launcher", "torchrun", STEPS)
    wait_for(lambda: run.events("generation"), "the launchers to be started")
    assert echelon("cancel", run.id).returncode == 0
    assert run.wait()["outcome"] == "cancelled"


def test_missing_launcher_is_named_and_uses_no_restart(echelon):
    empty = {"PATH": "/nowhere"}
    result = echelon("run", *TWO_BY_TWO, "--launcher", "mpirun", "--restarts", "3", STEPS, env=empty)
    assert result.returncode == 3
    assert "mpirun cannot start the ranks (on node0): cannot run mpirun: No such file or directory" in result.stderr
    assert echelon.only_run().events("fault") == []


def test_launcher_error_is_the_reason(echelon):
    result = echelon(
        "run", *TWO_BY_TWO, "--launcher", "torchrun", "--launcher-option", "no-such-option=1", "--restarts", "3", STEPS
    )
    assert result.returncode == 3
    assert "torchrun cannot start the ranks" in result.stderr
    assert "unrecognized arguments" in result.stderr or "no-such-option" in result.stderr


def test_accelerate_uses_its_config_file_and_runs_the_script(echelon):
    folder = echelon.folder / "hf" / "accelerate"
    folder.mkdir(parents=True)
    (folder / "default_config.yaml").write_text(
        "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_CPU\nmixed_precision: bf16\n"
        "num_machines: 7\nnum_processes: 9\nmachine_rank: 5\nmain_process_port: 1\nuse_cpu: false\n"
    )
    script = echelon.script(
        "prepared.py",
        "from accelerate import Accelerator\n"
        "accelerator = Accelerator()\n"
        "print(accelerator.process_index, accelerator.num_processes, accelerator.mixed_precision, flush=True)\n"
        "accelerator.wait_for_everyone()\n"
        "accelerator.end_training()\n",
    )
    result = echelon("run", *TWO_BY_TWO, "--launcher", "accelerate", script, env={"HF_HOME": str(folder.parent)})
    assert result.returncode == 0, result.stderr + result.stdout
    run = echelon.only_run()
    assert [run.rank_log(rank).splitlines()[0] for rank in range(4)] == [f"{rank} 4 bf16" for rank in range(4)]


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_single_rank_and_a_command_run(echelon, launcher):
    result = echelon("run", "--launcher", launcher, "--", "sh", "-c", "echo rank $RANK of $WORLD_SIZE; exit 3")
    assert result.returncode == 3
    assert "[0] rank 0 of 1" in result.stdout


@pytest.mark.parametrize("launcher", [MPIRUN])
def test_secrets_are_not_in_arguments(echelon, launcher):
    script = echelon.script(
        "secret.py", "import os, time\nprint(os.environ['THE_TOKEN'], flush=True)\ntime.sleep(600)\n"
    )
    run = echelon.submit("-g", "2", "--launcher", launcher, "--set", "THE_TOKEN=s3cret", script)
    wait_for(lambda: "s3cret" in run.rank_log(1), "the rank")
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    ours = [line for line in listed.splitlines() if "s3cret" in line and "pytest" not in line]
    assert ours == []
    assert echelon("cancel", run.id).returncode == 0
    run.wait()
