"""Runs functions in forked processes with deadlines, so that a hung mount or driver blocks only its own process."""

from __future__ import annotations

import json
import os
import select
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from echelon.doctor.model import Check, Plan, Result
from echelon.system import processes
from echelon.untrusted import parse_json

MOST_BYTES = 4 << 20
LOCAL_SECONDS = 0.02


@dataclass(kw_only=True)
class Task:
    """A function in a process of its own. `result` is set when it has ended or was killed."""

    name: str
    pid: int
    fd: int
    began: float
    deadline: float
    data: bytes = b""
    result: Result | None = None

    def read(self) -> None:
        try:
            chunk = os.read(self.fd, 1 << 16)
        except BlockingIOError:
            return
        self.data += chunk
        if not chunk or len(self.data) > MOST_BYTES:
            self._finish(_parse_result(self.name, self.data, time.monotonic() - self.began))

    def expire(self, now: float) -> None:
        if self.result is None and now >= self.deadline:
            seconds = now - self.began
            problem = f"no answer within {self.deadline - self.began:g} s"
            self._finish(Result(check=self.name, seconds=seconds, problem=problem, timed_out=True))

    def _finish(self, result: Result) -> None:
        """Does not wait for the process: a process that waits for a dead file server cannot be killed."""
        self.result = result
        os.close(self.fd)
        processes.send_signal(self.pid, signal.SIGKILL)
        _reap(self.pid, LOCAL_SECONDS)


def start_task(name: str, seconds: float, function: Callable[[], Mapping[str, Any]]) -> Task:
    """Forks. The child writes the function's result as JSON and exits without cleaning up."""
    read_end, write_end = os.pipe()
    os.set_blocking(read_end, False)
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        _run_child(parent, write_end, function)
    os.close(write_end)
    now = time.monotonic()
    return Task(name=name, pid=pid, fd=read_end, began=now, deadline=now + seconds)


def _run_child(parent: int, fd: int, function: Callable[[], Mapping[str, Any]]) -> None:
    try:
        processes.die_with_parent(parent)
        answer: Mapping[str, Any] = {"facts": function()}
    except BaseException as error:  # noqa: BLE001  the outermost function of a process
        answer = {"problem": f"{type(error).__name__}: {error}"}
    try:
        with os.fdopen(fd, "wb") as pipe:
            pipe.write(json.dumps(answer).encode())
    finally:
        os._exit(0)


def wait_for_tasks(tasks: Sequence[Task]) -> Iterator[Task]:
    """Yields each task when it has ended or its deadline has passed."""
    left = list(tasks)
    while left:
        now = time.monotonic()
        timeout = max(0.0, min(task.deadline for task in left) - now)
        readable, _, _ = select.select([task.fd for task in left], [], [], timeout)
        for task in left:
            if task.fd in readable:
                task.read()
            task.expire(time.monotonic())
        yield from (task for task in left if task.result is not None)
        left = [task for task in left if task.result is None]


def run_checks(checks: Sequence[Check], plan: Plan) -> Iterator[Result]:
    """Runs all checks at once. Yields each result as soon as it is known."""
    tasks = [start_task(check.name, check.seconds, lambda check=check: check.collect(plan)) for check in checks]  # type: ignore[misc]
    for task in wait_for_tasks(tasks):
        if task.result is not None:
            yield task.result


def run_isolated(name: str, seconds: float, function: Callable[[], Mapping[str, Any]]) -> Result:
    task = start_task(name, seconds, function)
    [done] = wait_for_tasks([task])
    return done.result or Result(check=name, problem="no result")


def _parse_result(name: str, data: bytes, seconds: float) -> Result:
    try:
        answer = parse_json(data)
        facts, problem = answer.get("facts"), answer.get("problem")
    except (ValueError, AttributeError):
        return Result(check=name, seconds=seconds, problem="the process of the check died")
    if isinstance(facts, dict):
        return Result(check=name, seconds=seconds, facts=facts)
    return Result(check=name, seconds=seconds, problem=str(problem))


def _reap(pid: int, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            if os.waitpid(pid, os.WNOHANG)[0] == pid:
                return
        except ChildProcessError:
            return
        time.sleep(0.001)
