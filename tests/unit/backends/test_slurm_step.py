"""One srun and its stderr, with a fake srun."""

import os

import pytest

from echelon.backends.slurm.step import MOST_BYTES, Step
from echelon.diagnosis.causes import Cause
from echelon.diagnosis.history import Failure
from echelon.wire.faults import Loss
from running import wait_for

MEMORY = "slurmstepd-n2: error: StepId=7.0 exceeded memory limit (2 > 1), being killed"


@pytest.fixture
def srun():
    steps = []

    def start(script):
        steps.append(Step("n2", ["sh", "-c", script], os.environ))
        return steps[-1]

    yield start
    for step in steps:
        step.process.kill()
        step.process.wait()
        step.close()


def test_last_lines_of_srun_are_waited_for(srun):
    step = srun(f"sleep 0.2; echo '{MEMORY}' >&2; sleep 60")
    assert step.loss(10) is Loss.STEP
    fault = step.fault()
    assert fault.sentence == f"the step on n2 was killed for memory: {MEMORY}"
    assert fault.failure == Failure(cause=Cause.STEP_MEMORY, host="n2")
    assert (fault.cause, "--mem SIZE" in fault.hint) == ("memory limit of the scheduler", True)


def test_srun_without_output_is_a_dead_agent(srun):
    step = srun("echo 'srun: error: n2: task 0: Killed' >&2; exit 137")
    assert step.loss(10) is Loss.PROCESS
    assert step.fault() is None


def test_zero_seconds_do_not_wait(srun):
    step = srun("sleep 60")
    assert step.loss(0) is Loss.PROCESS


def test_failed_srun_has_a_start_problem(srun):
    step = srun("echo \"srun: unrecognized option '--container-image=x'\" >&2; exit 1")
    wait_for(lambda: step.process.poll() is not None, "its end")
    assert "unrecognized option '--container-image=x'" in step.start_problem().why


def test_stderr_of_srun_is_in_the_job_output(srun, capfdbinary):
    step = srun("echo first >&2; echo second >&2")
    step.process.wait()
    step.relay_output()
    step.relay_output()
    assert capfdbinary.readouterr().err == b"first\nsecond\n"


def stored(step):
    return os.fstat(step._errors.fileno()).st_size


def test_stored_output_is_bounded(srun, capfdbinary):
    step = srun("yes | head -c 5000000 >&2; echo more >&2")
    step.process.wait()
    step.relay_output()
    assert stored(step) == 0
    said = capfdbinary.readouterr().err
    assert said.startswith(b"y\ny\n")
    assert len(said) < 2 * MOST_BYTES, "one piece"
    assert b"[n2] (output of more than 4194304 bytes was dropped)" in said


def test_output_after_truncation_is_relayed(srun, tmp_path, capfdbinary):
    step = srun(f"head -c 5000000 /dev/zero >&2; until [ -e {tmp_path}/go ]; do sleep 0.02; done; echo more >&2")
    wait_for(lambda: stored(step) == 5000000, "more output than is stored")
    step.relay_output()
    capfdbinary.readouterr()
    (tmp_path / "go").touch()
    step.process.wait()
    step.relay_output()
    assert capfdbinary.readouterr().err == b"more\n"


def test_reason_is_found_after_dropped_output(srun):
    step = srun(f"head -c 5000000 /dev/zero | tr '\\0' x >&2; echo >&2; echo '{MEMORY}' >&2")
    step.process.wait()
    step.relay_output()
    assert stored(step) == 0
    assert step.loss(0) is Loss.STEP


def test_stderr_has_no_terminal_control_codes(srun, capfdbinary):
    step = srun(r"printf '\033[2J\033]0;title\007plain\n' >&2")
    step.process.wait()
    step.relay_output()
    assert capfdbinary.readouterr().err == b"plain\n"
