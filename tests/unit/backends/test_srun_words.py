"""The meaning of srun's stderr for an agent's node."""

import pytest

from echelon.backends.slurm.step import classify_loss, fault_sentence, slurm_lines, start_problem
from echelon.wire.faults import Loss

MEMORY = """\
slurmstepd-n2: error: StepId=1013.0 exceeded memory limit (323502080 > 104857600), being killed
srun: Job step aborted: Waiting up to 7 seconds for job step to finish.
slurmstepd-n2: error: *** STEP 1013.0 ON n2 CANCELLED AT 2026-11-16T17:34:46 ***
srun: error: n2: task 0: Killed
"""
OOM = """\
slurmstepd-n2: error: Detected 1 oom_kill event in StepId=7.0. Some of the step tasks have been OOM Killed.
srun: error: n2: task 0: Out Of Memory
"""
OPTION = "srun: unrecognized option '--container-image=x'\nTry \"srun --help\" for more information\n"
PROCESSORS = "srun: error: Unable to create step for job 1001: More processors requested than permitted\n"
EXECVE = "slurmstepd-n2: error: execve(): /usr/bin/python9: No such file or directory\nsrun: error: n2: task 0: Exited with exit code 2\n"
KILLED = "srun: error: n2: task 0: Killed\n"
TRACEBACK = "Traceback (most recent call last):\nOSError: no space\nsrun: error: n2: task 0: Exited with exit code 1\n"
CANCELLED = (
    "srun: Job step aborted: Waiting up to 7 seconds for job step to finish.\nsrun: error: n2: task 0: Terminated\n"
)
NODE = "srun: error: Node failure on n2\nsrun: Job step aborted: Waiting up to 7 seconds for job step to finish.\n"
LAUNCH = "srun: error: Task launch for StepId=7.0 failed on node n2: Communication connection failure\n"
CONTROLLER = "srun: error: Unable to create step for job 7: Unable to contact slurm controller (connect failure)\n"
CHDIR = "slurmstepd-n2: error: couldn't chdir to `/scratch': No such file or directory: going to /tmp instead\n"


@pytest.mark.parametrize(
    ("code", "words", "loss"),
    [
        (137, MEMORY, Loss.STEP),
        (None, MEMORY.splitlines()[0], Loss.STEP),
        (137, OOM, Loss.STEP),
        (1, OPTION, Loss.STEP),
        (1, PROCESSORS, Loss.STEP),
        (2, EXECVE, Loss.STEP),
        (-9, "", Loss.STEP),
        (137, KILLED, Loss.PROCESS),
        (1, TRACEBACK, Loss.PROCESS),
        (143, CANCELLED, Loss.PROCESS),
        (None, "", Loss.PROCESS),
        (1, CONTROLLER, Loss.PROCESS),
        (137, CHDIR + KILLED, Loss.PROCESS),
        (1, NODE, Loss.HOST),
        (1, LAUNCH, Loss.HOST),
    ],
)
def test_loss_by_exit_code_and_stderr_of_srun(code, words, loss):
    assert classify_loss(code, words) is loss


def test_memory_verdict_has_slurms_line():
    assert fault_sentence("n2", 137, MEMORY) == (
        "the step on n2 was killed for memory: "
        "slurmstepd-n2: error: StepId=1013.0 exceeded memory limit (323502080 > 104857600), being killed"
    )


@pytest.mark.parametrize(
    ("code", "words", "sentence"),
    [
        (1, PROCESSORS, f"srun of n2 failed: {PROCESSORS.strip()}"),
        (-9, "", "srun of n2 failed: srun was killed by SIGKILL"),
    ],
)
def test_srun_verdict_has_its_last_lines(code, words, sentence):
    assert fault_sentence("n2", code, words) == sentence


@pytest.mark.parametrize("words", [OPTION, PROCESSORS, EXECVE])
def test_srun_start_failure_is_a_start_problem(words):
    problem = start_problem("n2", 1, words)
    assert problem is not None
    assert problem.what == "srun could not start the agent on n2"
    assert slurm_lines(words)[0] in problem.why
    assert "exit code 1" in problem.why


@pytest.mark.parametrize(
    ("code", "words"), [(0, ""), (137, KILLED), (1, TRACEBACK), (143, CANCELLED), (1, NODE), (1, CONTROLLER)]
)
def test_other_ends_are_not_start_problems(code, words):
    assert start_problem("n2", code, words) is None


def test_early_memory_kill_has_a_memory_hint():
    problem = start_problem("n2", 137, MEMORY)
    assert problem is not None
    assert problem.hint == "--mem SIZE asks for more memory per node"


def test_lines_of_the_agent_are_ignored():
    assert slurm_lines(TRACEBACK) == ["srun: error: n2: task 0: Exited with exit code 1"]
