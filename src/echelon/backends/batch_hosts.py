"""Code that the hosts of Slurm and PBS jobs share: it ends agents and queries the scheduler with retries."""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from echelon.attempt_dir import AttemptDir
from echelon.backends.batch import SchedulerFacts
from echelon.backends.hosts import ConnectBackHosts, SchedulerView, Unreachable
from echelon.errors import SchedulerError
from echelon.job import Job
from echelon.system import processes

COMMAND_SECONDS = 60.0


def run_command(argv: Sequence[str], environ: Mapping[str, str], facts: SchedulerFacts) -> str:
    """The output of the command. Raises Unreachable, or CalledProcessError if the scheduler refuses the request."""
    try:
        done = processes.run_program(argv, environ, COMMAND_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unreachable(str(error)) from error
    if done.code == 0:
        return done.out
    if facts.is_unreachable(done.err):
        raise Unreachable(done.err.strip())
    raise subprocess.CalledProcessError(done.code, list(argv), done.out, done.err)


class QueryProcess:
    """A query in progress. `read` parses the output of the command to a SchedulerView."""

    def __init__(
        self, argv: Sequence[str], environ: Mapping[str, str], seconds: float, read: Callable[[str], SchedulerView]
    ) -> None:
        self._read = read
        self._name = argv[0].rpartition("/")[2]
        self._deadline = time.monotonic() + seconds
        self._process: subprocess.Popen[bytes] | None = None
        self._output = tempfile.TemporaryFile()  # noqa: SIM115  `result` closes it; a pipe could fill up
        try:
            self._process = subprocess.Popen(
                argv, env=dict(environ), stdin=subprocess.DEVNULL, stdout=self._output, stderr=subprocess.DEVNULL
            )
        except OSError:
            pass  # `result` then raises Unreachable

    def result(self) -> SchedulerView | None:
        process = self._process
        code = None if process is None else process.poll()
        if process is not None and code is None and time.monotonic() < self._deadline:
            return None
        if process is not None:
            process.kill()
            process.wait()
        self._output.seek(0)
        with self._output as output:
            text = output.read().decode(errors="replace")
        if code != 0:
            raise Unreachable(f"{self._name} did not answer")
        return self._read(text)


class RequeueClaim:
    """Selects one of the agents that lost their supervisor. This agent requeues the job and may retry."""

    def __init__(self, attempt: AttemptDir) -> None:
        self.attempt = attempt
        self._ours = False

    def is_ours(self) -> bool:
        self._ours = self._ours or self.attempt.claim_requeue()
        return self._ours


LEAVE_SECONDS = 8.0  # an agent whose channel is closed needs less to end its ranks and clean up
PATIENCE_SECONDS = 900.0
AFTER_THE_END_SECONDS = 10.0


@dataclass
class EndingAgent:
    """An agent that must exit. `process` is the process that started it."""

    process: subprocess.Popen[bytes]
    deadline: float
    is_terminated: bool = False


class BatchHosts(ConnectBackHosts):
    def __init__(self) -> None:
        self._ending: list[EndingAgent] = []

    def end_agent(self, process: subprocess.Popen[bytes], node_dir: Path | None) -> None:  # noqa: ARG002
        """Only sets a deadline. The agent exits when its channel is closed, but a signal to the program that started
        it would kill the agent before it cleans up. An agent that has not connected also gets
        `container_removal_seconds`: its container may still be under construction."""
        self._ending.append(EndingAgent(process, time.monotonic() + LEAVE_SECONDS + self.container_removal_seconds))

    def end_late_agents(self) -> None:
        """Terminates an agent after its deadline. Kills the process that started it 1 s later."""
        now = time.monotonic()
        self._ending = [one for one in self._ending if one.process.poll() is None]
        for one in self._ending:
            if now > one.deadline + 1.0:
                one.process.kill()
            elif now > one.deadline and not one.is_terminated:
                one.is_terminated = True
                self.terminate(one.process)

    def terminate(self, process: subprocess.Popen[bytes]) -> None:
        """Sends TERM to the process that started the agent. That process forwards the signal."""
        process.terminate()

    def close(self) -> None:
        while self._ending:
            self.end_late_agents()
            time.sleep(0.02)


def end_reserve_seconds(job: Job) -> float:
    """Seconds before the time limit at which echelon ends the attempt itself. Pure.

    At the limit the scheduler sends TERM, which looks like a cancel, and then KILL.
    """
    enough = job.policies.grace.total_seconds() + AFTER_THE_END_SECONDS
    limit = job.resources.time_limit
    return enough if limit is None else min(enough, limit.total_seconds() / 10)


def retry_until_answered(action: Callable[[], None], scheduler: str) -> None:
    """Retries `action` while the scheduler does not answer, with pauses of 1 to 30 s. Raises SchedulerError after
    PATIENCE_SECONDS."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    pause = 1.0
    while True:
        try:
            action()
        except Unreachable as error:
            if time.monotonic() > deadline:
                what = f"{scheduler} does not answer, so the job is not requeued"
                raise SchedulerError(what, why=str(error)) from None
        else:
            return
        time.sleep(pause)
        pause = min(pause * 2, 30.0)
