"""Hosts over ssh. This process opens one connection per host, which becomes the channel of the agent."""

from __future__ import annotations

import hashlib
import select
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from echelon.backends.hosts import Host, HostsWithoutFaultReports, SchedulerQuery
from echelon.backends.ssh.connection import Connection, HostReport
from echelon.backends.ssh.diagnose import (
    HOST_PYTHON,
    Problem,
    clock_problem,
    exclusion_remark,
    host_problem,
    host_remarks,
    is_host_lost,
    required_script,
    ssh_argv,
    ssh_problem,
    unusable_hosts_error,
    variables_to_send,
)
from echelon.codec import encode
from echelon.errors import NOT_ENTERED, EnvironmentProblem
from echelon.job import Job
from echelon.run_dir import RunDir, write_error
from echelon.system.project import pack_snapshot
from echelon.wire.channel import Channel, ChannelClosed, poll_events
from echelon.wire.faults import Loss
from echelon.wire.messages import AgentSetup

ANSWER_SECONDS = 9.5  # longer than the connect timeout of ssh, so a host that is down has already failed
LEAVE_SECONDS = 8.0


class SshHosts(HostsWithoutFaultReports):
    requeues_in_process = True

    def __init__(self, job: Job, run_dir: RunDir, environ: Mapping[str, str]) -> None:
        self._job = job
        self._run_dir = run_dir
        self._python = HOST_PYTHON if job.is_enclosed else job.python
        self._attempt = run_dir.attempts()[-1].number
        self._environ = environ
        self._agent_variables = variables_to_send(environ, job.secret_env)
        self._connections: dict[int, Connection] = {}
        """All connections of the attempt, by the pid of ssh."""
        self._ready: dict[str, Connection] = {}
        """Connections of hosts that have sent their report and have no agent yet."""
        self._opening: list[Connection] = []
        self._kill_times: dict[int, float] = {}
        self._addresses: dict[str, str] = {}
        self._remarks: list[str] = []
        self.all: Sequence[Host] = [Host(name=name) for name in job.hosts]

    def _connect(self, host: str) -> Connection:
        job = self._job
        asked = {
            "run_id": self._run_dir.run_id,
            "run": str(self._run_dir.path),
            "token": str(self._run_dir.token),
            "digest": hashlib.sha256(self._run_dir.token.read_bytes()).hexdigest(),
            "cwd": job.cwd,
            "script": required_script(job),
            "pythonpath": {**self._agent_variables, **job.env}.get("PYTHONPATH", ""),
            "patience": job.policies.join_timeout.total_seconds() + 30.0,
        }
        argv = ssh_argv(host, self._python, job.policies.heartbeat.total_seconds())
        connection = Connection(argv, self._environ, asked, host)
        self._connections[connection.process.pid] = connection
        return connection

    # Before agents start

    def probe(self, wake_fd: int) -> None:
        """Connects to every host. Raises RemoteError with all problems if too few hosts are usable."""
        try:
            connections = [self._connect(host.name) for host in self.all]
        except OSError as error:
            hint = "install an ssh client, or raise ulimit -n if there are many hosts"
            raise EnvironmentProblem("cannot run ssh on this machine", why=str(error), hint=hint) from error
        self._keep_usable_hosts(connections, self._collect_reports(connections, wake_fd))

    def _collect_reports(self, connections: Sequence[Connection], wake_fd: int) -> dict[str, Problem]:
        """Waits for all reports: up to --join-timeout, or only ANSWER_SECONDS if another host has a problem."""
        began = time.monotonic()
        problems: dict[str, Problem] = {}
        while waiting := [c for c in connections if c.report is None and c.host not in problems]:
            patience = ANSWER_SECONDS if problems else self._job.policies.join_timeout.total_seconds()
            if time.monotonic() - began > patience:
                return problems | {c.host: self._timeout_problem(c, patience) for c in waiting}
            if wake_fd in _poll([c.channel for c in waiting], wake_fd):
                break  # a signal has arrived; the supervisor handles it
            answers = [self._receive_report(connection) for connection in waiting]
            problems |= {problem.host: problem for problem in answers if problem is not None}
        return problems

    def _receive_report(self, connection: Connection) -> Problem | None:
        connection.channel.flush()
        try:
            connection.receive_report()
        except ChannelClosed:
            code = connection.exit_code()
            return ssh_problem(connection.host, self._python, code, connection.error_output())
        if connection.report is None:
            return None
        self._addresses[connection.host] = connection.report.address
        host, report = connection.host, connection.report
        clock = clock_problem(host, report, connection.requested_at, connection.received_at)
        return host_problem(host, self._job, report) or clock

    def _timeout_problem(self, connection: Connection, seconds: float) -> Problem:
        what = f"no answer within {seconds:.0f} s"
        return Problem(host=connection.host, what=what, why=connection.error_output(), hint=f"ssh {connection.host}")

    def _keep_usable_hosts(self, connections: Sequence[Connection], problems: Mapping[str, Problem]) -> None:
        good = {c.host: c for c in connections if c.host not in problems}
        if len(good) < self._job.resources.smallest:
            raise unusable_hosts_error(
                [problems[host.name] for host in self.all if host.name in problems], len(self.all)
            )
        for connection in connections:
            if connection.host in problems:
                self._disconnect(connection)
        self.all = [host for host in self.all if host.name in good]
        self._ready = good
        reports = {host: c.report for host, c in good.items() if c.report is not None}
        self._pack_code(reports.values())
        self._remarks = [*map(exclusion_remark, problems.values()), *host_remarks(reports, self._job)]

    def _sees_run_directory(self, report: HostReport) -> bool:
        """Whether the ranks of a host see the run directory. A custom container may have other folders."""
        return report.shared and self._job.environment != "container"

    def _pack_code(self, reports: Iterable[HostReport]) -> None:
        """Creates the code archive before agents start, so none has to wait for it."""
        if (
            self._job.project is None
            or all(map(self._sees_run_directory, reports))
            or self._run_dir.code_archive.exists()
        ):
            return
        try:
            pack_snapshot(self._run_dir.code, self._run_dir.code_archive)
        except OSError as error:
            raise write_error(self._run_dir.code_archive, error) from error

    def remarks(self) -> Sequence[str]:
        return self._remarks

    def listen_address(self) -> str | None:
        return None

    # Agents

    def start_agent(self, node: int, argv: Sequence[str]) -> subprocess.Popen[bytes]:  # noqa: ARG002  the bootstrap builds the agent's command
        host = self.all[node].name
        connection = self._ready.pop(host, None) or self._connect(host)
        if connection.report is not None:
            self._prepare_agent(connection)
        self._opening.append(connection)
        return connection.process

    def _prepare_agent(self, connection: Connection) -> None:
        job = self._job
        shared = connection.report is not None and self._sees_run_directory(connection.report)
        code = [self._run_dir.code_archive] if job.project is not None else []
        enter = [self._run_dir.node_script] if job.is_enclosed else []
        files = [] if shared else [self._run_dir.node_side, *enter, *code]
        wanted = {"files": [file.name for file in files], "shared": shared, "inside": job.python if enter else ""}
        connection.prepare_to_send(files, wanted, self._setup_message(connection.host, shared=shared))

    def _setup_message(self, host: str, *, shared: bool) -> dict[str, Any]:
        names = [other.name for other in self.all if other.name != host]
        brief = AgentSetup(
            job=self._job,
            run_path=str(self._run_dir.path),
            shared=shared,
            attempt=self._attempt,
            node=[other.name for other in self.all].index(host),
            host=host,
            peers=tuple(filter(None, (*(self._addresses.get(name) for name in names), *names))),
            environ=self._agent_variables,
        )
        return dict(encode(brief))

    def pending_channels(self) -> Sequence[Channel]:
        return [connection.channel for connection in self._opening]

    def new_agent_channels(self) -> Sequence[Channel]:
        arrived = []
        for connection in list(self._opening):
            if not connection.is_prepared:
                self._continue_start(connection)
            if connection.is_prepared and connection.continue_sending():
                self._opening.remove(connection)
                arrived.append(connection.release_channel())
        return arrived

    def _continue_start(self, connection: Connection) -> None:
        problem = self._receive_report(connection)
        if problem is not None:
            print(exclusion_remark(problem), flush=True)
            self._disconnect(connection)
        elif connection.report is not None:
            self._prepare_agent(connection)

    def classify_loss(self, process: subprocess.Popen[bytes]) -> Loss:
        connection = self._connections.get(process.pid)
        lost = connection is not None and is_host_lost(connection.exit_code(), connection.error_output())
        return Loss.HOST if lost else Loss.PROCESS

    def agent_output(self, process: subprocess.Popen[bytes]) -> str | None:
        """The stderr of the host if node.sh could not enter the environment."""
        connection = self._connections.get(process.pid)
        return connection.error_output() if connection is not None and process.poll() == NOT_ENTERED else None

    def _disconnect(self, connection: Connection) -> None:
        """Closes the connection. The remote side exits at the end of its input."""
        if connection in self._opening:
            self._opening.remove(connection)
        connection.close_channel()
        self._kill_times.setdefault(connection.process.pid, time.monotonic() + LEAVE_SECONDS)

    def end_agent(self, process: subprocess.Popen[bytes], node_dir: Path | None) -> None:  # noqa: ARG002  it is not on this host
        connection = self._connections[process.pid]
        if connection in self._opening:
            self._disconnect(connection)
        self._kill_times.setdefault(process.pid, time.monotonic() + LEAVE_SECONDS)

    def end_late_agents(self) -> None:
        for pid, connection in self._connections.items():
            connection.relay_output()
            if connection.process.poll() is None and time.monotonic() > self._kill_times.get(pid, float("inf")):
                connection.process.kill()

    def close(self) -> None:
        """Kills every ssh. Agents have had time to exit, and the ssh to an unreachable host would wait on."""
        for connection in self._connections.values():
            connection.close_channel()
            connection.relay_output()
            connection.process.kill()
            connection.process.wait()
        self._connections.clear()

    # Without a scheduler

    def start_query(self) -> SchedulerQuery | None:
        return None

    def requeue(self, lost_hosts: Sequence[str]) -> None:
        """Never called: this process starts the next attempt."""


def _poll(channels: Sequence[Channel], wake_fd: int) -> set[int]:
    poller = select.poll()
    for fd, events in poll_events(channels).items():
        poller.register(fd, events)
    poller.register(wake_fd, select.POLLIN)
    return {fd for fd, _ in poller.poll(200)}
