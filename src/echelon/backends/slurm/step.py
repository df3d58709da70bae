"""The srun that runs one agent, and the meaning of its messages."""

from __future__ import annotations

import fcntl
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence

from echelon.backends.batch import SLURM
from echelon.diagnosis.causes import HINTS, Cause
from echelon.diagnosis.history import Failure
from echelon.diagnosis.kills import signal_name
from echelon.untrusted import TerminalLogCleaner, clean_for_terminal
from echelon.wire.faults import Fault, Loss
from echelon.wire.reports import FatalNodeProblem

MOST_LINES = 6
SLURM_LINE = re.compile(r"(srun|slurmstepd(-[\w.-]+)?): ")
OUT_OF_MEMORY = re.compile(
    r"exceeded (job |step )?memory limit|oom[_-]kill|Out Of Memory|Exceeded job memory", re.IGNORECASE
)
NODE_FAILURE = re.compile(
    r"node failure|failed on node|Communication connection failure|No route to host|Unable to resolve|node is DOWN"
    r"|slurmd is not responding|Invalid job credential",
    re.IGNORECASE,
)
ENDED_BY_SLURM = re.compile(r"\bCANCELLED\b|Job step aborted|forcing job termination|TIME LIMIT|PREEMPTION")
TASK_EXIT = re.compile(r"srun: error: [\w.-]+: tasks? [\d,-]+: |srun: Terminating StepId|srun: launch/slurm: _step_")
FAILURE = re.compile(r"srun: (error|fatal|unrecognized|unknown|invalid|ambiguous)|slurmstepd.*execve\(\)")
HINT = "job.out in the run's folder has the full output; echelon render shows the options given to Slurm"
MEMORY_HINT = "--mem SIZE asks for more memory per node"


def slurm_lines(output: str) -> list[str]:
    """The last lines that Slurm printed, without those of the agent."""
    return [line.strip() for line in output.splitlines() if SLURM_LINE.match(line)][-MOST_LINES:]


def memory_line(output: str) -> str | None:
    return next((line for line in slurm_lines(output) if OUT_OF_MEMORY.search(line)), None)


def classify_loss(code: int | None, output: str) -> Loss:
    """What was lost, judged by the end of srun or of its agent."""
    if memory_line(output):
        return Loss.STEP
    if any(NODE_FAILURE.search(line) for line in slurm_lines(output)):
        return Loss.HOST
    return Loss.STEP if _is_srun_failure(code, output) else Loss.PROCESS


def _is_srun_failure(code: int | None, output: str) -> bool:
    lines = slurm_lines(output)
    if any(ENDED_BY_SLURM.search(line) for line in lines) or SLURM.is_unreachable(output):
        return False
    killed = code is not None and code < 0
    return killed or any(FAILURE.search(line) and not TASK_EXIT.search(line) for line in lines)


def fault_sentence(host: str, code: int | None, output: str) -> str:
    """One line for the verdict, with Slurm's message."""
    memory = memory_line(output)
    if memory:
        return f"the step on {host} was killed for memory: {memory}"
    lines = slurm_lines(output) or (
        [f"srun was killed by {signal_name(-code)}"] if code is not None and code < 0 else []
    )
    return f"srun of {host} failed: {'; '.join(lines)}"


def fault_hint(output: str) -> str:
    return MEMORY_HINT if memory_line(output) else ""


def start_problem(host: str, code: int, output: str) -> FatalNodeProblem | None:
    """Why srun could not start the agent; None if the node failed instead."""
    if code <= 0 or classify_loss(code, output) is not Loss.STEP:
        return None
    why = "\n".join((f"srun ended with exit code {code}", *slurm_lines(output)))
    return FatalNodeProblem(what=f"srun could not start the agent on {host}", why=why, hint=fault_hint(output) or HINT)


MOST_BYTES = 1 << 16
MOST_STORED_BYTES = 4 << 20


def set_append_mode(fd: int) -> None:
    """Makes every write through this descriptor and its copies append to the file, also after a truncation."""
    fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_APPEND)


class Step:
    def __init__(self, host: str, argv: Sequence[str], environ: Mapping[str, str]) -> None:
        self._host = host
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  `close` closes it; a pipe could fill up
        set_append_mode(self._errors.fileno())
        self._relayed = 0
        self._dropped_output = ""
        self._cleaner = TerminalLogCleaner()
        self.process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stderr=self._errors, env=dict(environ), start_new_session=True
        )

    def relay_output(self, most: int = MOST_BYTES) -> None:
        """Copies new output from srun's stderr to the job's output, at most `most` bytes. A step that writes without
        end would otherwise block the supervisor."""
        new = os.pread(self._errors.fileno(), most, self._relayed)
        self._relayed += len(new)
        self._write_to_stderr(self._cleaner.feed(new))
        if os.fstat(self._errors.fileno()).st_size > MOST_STORED_BYTES:
            self._drop_output()

    def relay_all_output(self) -> None:
        self.relay_output(MOST_STORED_BYTES)

    def _drop_output(self) -> None:
        """Truncates the stored output, so that a step that writes without end does not fill the disk."""
        self._dropped_output = self._stderr_tail()
        os.ftruncate(self._errors.fileno(), 0)
        self._relayed = 0
        self._write_to_stderr(
            f"\n[{self._host}] (output of more than {MOST_STORED_BYTES} bytes was dropped)\n".encode()
        )

    def _write_to_stderr(self, data: bytes) -> None:
        try:
            sys.stderr.buffer.write(data)
            sys.stderr.buffer.flush()
        except OSError:
            pass  # the disk is full

    def close(self) -> None:
        self.relay_all_output()
        self._errors.close()

    def loss(self, seconds: float) -> Loss:
        """What was lost. Waits at most `seconds` for the last lines of srun."""
        deadline = time.monotonic() + seconds
        while self._current_loss() is Loss.PROCESS and self.process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        return self._current_loss()

    def fault(self) -> Fault | None:
        output = self._stderr_tail()
        if self._current_loss() is not Loss.STEP:
            return None
        sentence = fault_sentence(self._host, self.process.poll(), output)
        if memory_line(output) is None:
            return Fault(sentence=sentence)
        cause = Cause.STEP_MEMORY
        failure = Failure(cause=cause, host=self._host)
        return Fault(sentence=sentence, failure=failure, cause=cause.value, hint=HINTS[cause])

    def start_problem(self) -> FatalNodeProblem | None:
        code = self.process.poll()
        return None if code is None else start_problem(self._host, code, self._stderr_tail())

    def _current_loss(self) -> Loss:
        return classify_loss(self.process.poll(), self._stderr_tail())

    def _stderr_tail(self) -> str:
        """The last MOST_BYTES of srun's stderr."""
        size = os.fstat(self._errors.fileno()).st_size
        output = os.pread(self._errors.fileno(), MOST_BYTES, max(0, size - MOST_BYTES)).decode(errors="replace")
        return clean_for_terminal((self._dropped_output + output)[-MOST_BYTES:])
