"""Plain hosts over ssh: one connection each, made from here, which is the channel of the agent at its other end."""

from __future__ import annotations

import hashlib
import select
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from echelon.codec import encode
from echelon.errors import EnvironmentProblem
from echelon.exit_codes import NOT_ENTERED
from echelon.job import Job
from echelon.node.channel import Channel, ChannelClosed, interests
from echelon.node.code_archive import pack
from echelon.node.hosts import Host, Hosts, Question
from echelon.node.hosts.ssh_checks import problem_of_clock, problem_of_host, refusal, remark_of, remarks_of, script_of
from echelon.node.hosts.ssh_connection import Connection, Report
from echelon.node.hosts.ssh_words import HOST_PYTHON, Problem, carried, is_host_lost, problem_of_ssh, ssh_argv
from echelon.node.remote import Brief
from echelon.node.situation import Loss
from echelon.run_dir import RunDir, cannot_write

ANSWER_SECONDS = 9.5  # a host that is down has been given up by ssh before
LEAVE_SECONDS = 8.0


def hosts(job: Job, run_path: Path, environ: Mapping[str, str]) -> Hosts:
    return SshHosts(job, RunDir(run_path), environ)


class SshHosts:
    comes_back = False
    early_seconds = 0.0
    reserve_seconds = 0.0
    requeues_here = True
    carried: Mapping[str, str] | None = None  # an agent has it from its brief, before it can ask

    def __init__(self, job: Job, run_dir: RunDir, environ: Mapping[str, str]) -> None:
        self._job = job
        self._run_dir = run_dir
        self._python = HOST_PYTHON if job.is_enclosed else job.python
        self._attempt = run_dir.attempts()[-1].number
        self._environ = environ
        self._carried = carried(environ, job.secret_env)
        self._connections: dict[int, Connection] = {}
        """All of the attempt, by the pid of their ssh."""
        self._ready: dict[str, Connection] = {}
        """Hosts that have answered and wait for their agent."""
        self._opening: list[Connection] = []
        self._leaving: dict[int, float] = {}
        self._addresses: dict[str, str] = {}
        self._remarks: list[str] = []
        self.all: Sequence[Host] = [Host(name=name) for name in job.hosts]

    def _dial(self, host: str) -> Connection:
        job = self._job
        asked = {
            "run_id": self._run_dir.run_id,
            "run": str(self._run_dir.path),
            "token": str(self._run_dir.token),
            "digest": hashlib.sha256(self._run_dir.token.read_bytes()).hexdigest(),
            "cwd": job.cwd,
            "script": script_of(job),
            "pythonpath": {**self._carried, **job.env}.get("PYTHONPATH", ""),
            "patience": job.policies.join_timeout.total_seconds() + 30.0,
        }
        argv = ssh_argv(host, self._python, job.policies.heartbeat.total_seconds())
        connection = Connection(argv, self._environ, asked, host)
        self._connections[connection.process.pid] = connection
        return connection

    # Before anything starts

    def gather(self, wake: int) -> None:
        """Asks every host; raises RemoteError with all that is wrong, where too few are left to go on."""
        try:
            dialled = [self._dial(host.name) for host in self.all]
        except OSError as error:
            hint = "install an ssh client, or see ulimit -n where the hosts are many"
            raise EnvironmentProblem("ssh cannot be run on this machine", why=str(error), hint=hint) from error
        self._settle(dialled, self._ask_all(dialled, wake))

    def _ask_all(self, dialled: Sequence[Connection], wake: int) -> dict[str, Problem]:
        """Whoever answers slowly is waited for, but not once somebody else is known to be unusable."""
        began = time.monotonic()
        problems: dict[str, Problem] = {}
        while waiting := [c for c in dialled if c.report is None and c.host not in problems]:
            patience = ANSWER_SECONDS if problems else self._job.policies.join_timeout.total_seconds()
            if time.monotonic() - began > patience:
                return problems | {c.host: self._too_late(c, patience) for c in waiting}
            if wake in _poll([c.channel for c in waiting], wake):
                break  # somebody wants an end to this, and will get it from the supervisor
            answers = [self._hear_report(connection) for connection in waiting]
            problems |= {problem.host: problem for problem in answers if problem is not None}
        return problems

    def _hear_report(self, connection: Connection) -> Problem | None:
        connection.channel.flush()
        try:
            connection.hear_report()
        except ChannelClosed:
            code = connection.exit_code()
            return problem_of_ssh(connection.host, self._python, code, connection.words())
        if connection.report is None:
            return None
        self._addresses[connection.host] = connection.report.address
        host, report = connection.host, connection.report
        clock = problem_of_clock(host, report, connection.asked_at, connection.heard_at)
        return problem_of_host(host, self._job, report) or clock

    def _too_late(self, connection: Connection, seconds: float) -> Problem:
        what = f"it has not answered within {seconds:.0f} s"
        return Problem(host=connection.host, what=what, why=connection.words(), hint=f"ssh {connection.host}")

    def _settle(self, dialled: Sequence[Connection], problems: Mapping[str, Problem]) -> None:
        good = {c.host: c for c in dialled if c.host not in problems}
        if len(good) < self._job.resources.smallest:
            raise refusal([problems[host.name] for host in self.all if host.name in problems], len(self.all))
        for connection in dialled:
            if connection.host in problems:
                self._let_go(connection)
        self.all = [host for host in self.all if host.name in good]
        self._ready = good
        reports = {host: c.report for host, c in good.items() if c.report is not None}
        self._pack_code(reports.values())
        self._remarks = [*map(remark_of, problems.values()), *remarks_of(reports, self._job)]

    def _sees_the_run(self, report: Report) -> bool:
        """Whether its ranks do: a container of the user's own making may have other folders than its host."""
        return report.shared and self._job.environment != "container"

    def _pack_code(self, reports: Iterable[Report]) -> None:
        """Before anyone waits for it."""
        if self._job.project is None or all(map(self._sees_the_run, reports)) or self._run_dir.code_archive.exists():
            return
        try:
            pack(self._run_dir.code, self._run_dir.code_archive)
        except OSError as error:
            raise cannot_write(self._run_dir.code_archive, error) from error

    def remarks(self) -> Sequence[str]:
        return self._remarks

    def listen_address(self) -> str | None:
        return None

    # Agents

    def start(self, node: int, argv: Sequence[str]) -> subprocess.Popen[bytes]:  # noqa: ARG002  it cannot be dialled
        host = self.all[node].name
        connection = self._ready.pop(host, None) or self._dial(host)
        if connection.report is not None:
            self._begin(connection)
        self._opening.append(connection)
        return connection.process

    def _begin(self, connection: Connection) -> None:
        job = self._job
        shared = connection.report is not None and self._sees_the_run(connection.report)
        code = [self._run_dir.code_archive] if job.project is not None else []
        enter = [self._run_dir.node_script] if job.is_enclosed else []
        files = [] if shared else [self._run_dir.node_side, *enter, *code]
        wanted = {"files": [file.name for file in files], "shared": shared, "inside": job.python if enter else ""}
        connection.begin(files, wanted, self._brief(connection.host, shared=shared))

    def _brief(self, host: str, *, shared: bool) -> dict[str, Any]:
        names = [other.name for other in self.all if other.name != host]
        brief = Brief(
            job=self._job,
            run_path=str(self._run_dir.path),
            shared=shared,
            attempt=self._attempt,
            node=[other.name for other in self.all].index(host),
            host=host,
            peers=tuple(filter(None, (*(self._addresses.get(name) for name in names), *names))),
            environ=self._carried,
        )
        return dict(encode(brief))

    def connecting(self) -> Sequence[Channel]:
        return [connection.channel for connection in self._opening]

    def arrivals(self) -> Sequence[Channel]:
        arrived = []
        for connection in list(self._opening):
            if not connection.begun:
                self._go_on(connection)
            if connection.begun and connection.send_on():
                self._opening.remove(connection)
                arrived.append(connection.handed_over())
        return arrived

    def _go_on(self, connection: Connection) -> None:
        problem = self._hear_report(connection)
        if problem is not None:
            print(remark_of(problem), flush=True)
            self._let_go(connection)
        elif connection.report is not None:
            self._begin(connection)

    def loss(self, process: subprocess.Popen[bytes]) -> Loss:
        connection = self._connections.get(process.pid)
        lost = connection is not None and is_host_lost(connection.exit_code(), connection.words())
        return Loss.HOST if lost else Loss.PROCESS

    def words_of(self, process: subprocess.Popen[bytes]) -> str | None:
        """All that the host has said: node.sh was the last to speak."""
        connection = self._connections.get(process.pid)
        return connection.words() if connection is not None and process.poll() == NOT_ENTERED else None

    def _let_go(self, connection: Connection) -> None:
        """The end of its input tells the other side to leave."""
        if connection in self._opening:
            self._opening.remove(connection)
        connection.hang_up()
        self._leaving.setdefault(connection.process.pid, time.monotonic() + LEAVE_SECONDS)

    def end(self, process: subprocess.Popen[bytes], node_dir: Path | None) -> None:  # noqa: ARG002  not of this host
        connection = self._connections[process.pid]
        if connection in self._opening:
            self._let_go(connection)
        self._leaving.setdefault(process.pid, time.monotonic() + LEAVE_SECONDS)

    def tend(self) -> None:
        for pid, connection in self._connections.items():
            connection.relay_words()
            if connection.process.poll() is None and time.monotonic() > self._leaving.get(pid, float("inf")):
                connection.process.kill()

    def close(self) -> None:
        """Agents that were told to leave have had their time; a host that is cut off keeps its ssh waiting."""
        for connection in self._connections.values():
            connection.hang_up()
            connection.relay_words()
            connection.process.kill()
            connection.process.wait()
        self._connections.clear()

    # There is no scheduler

    def ask(self) -> Question | None:
        return None

    def requeue(self, lost: Sequence[str]) -> None:
        """Not asked for: the next attempt starts here."""


def _poll(channels: Sequence[Channel], wake: int) -> set[int]:
    poller = select.poll()
    for fd, events in interests(channels).items():
        poller.register(fd, events)
    poller.register(wake, select.POLLIN)
    return {fd for fd, _ in poller.poll(200)}
