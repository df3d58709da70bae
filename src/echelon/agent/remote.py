"""Main function of an agent that ssh has started. The ssh connection is its channel."""

from __future__ import annotations

import os
import select
import shutil
import socket
import sys
import tarfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from echelon.agent.context import AgentContext
from echelon.agent.environ import decode_environ, merge_environ
from echelon.agent.main import serve
from echelon.backends.node_environ import node_environ
from echelon.backends.ssh.bootstrap import SOCKET_NAME
from echelon.codec import decode
from echelon.errors import EchelonError
from echelon.job import Job
from echelon.run_dir import RunDir
from echelon.system.network import own_address
from echelon.system.project import job_in_snapshot, unpack_snapshot
from echelon.wire.attempt_files import ChannelSinks, RunDirSinks
from echelon.wire.channel import Channel, ChannelClosed
from echelon.wire.fds import with_short_path
from echelon.wire.messages import AgentSetup, Hello, to_wire
from echelon.wire.node_dir import NodeDir
from echelon.wire.reports import FatalNodeProblem

SETUP_SECONDS = 60.0


def main(folder: Path, fds: Sequence[int]) -> int:
    """`folder` belongs to this agent. It holds the files that were sent, and is removed when the agent exits."""
    channel = _open_channel(folder, fds)
    try:
        setup = decode(AgentSetup, _first_message(channel))
        try:
            context = _make_context(setup, folder, channel)
            address = own_address(setup.peers, setup.job.interface)
        except (OSError, EchelonError, tarfile.TarError) as error:
            _report_start_problem(channel, setup, folder, error)
            return 1
        return serve(context, lambda: (channel, address))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _open_channel(folder: Path, fds: Sequence[int]) -> Channel:
    """The descriptors of the connection. Inside an environment `fds` is empty: the process that owns the connection
    listens on the socket SOCKET_NAME in `folder`."""
    if not fds:
        link = socket.socket(socket.AF_UNIX)
        with_short_path(folder / SOCKET_NAME, link.connect)
        return Channel(link.fileno(), link.detach())
    for fd in fds:
        os.set_inheritable(fd, False)  # a child process must not keep the connection open
    return Channel(fds[0], fds[1])


def _make_context(setup: AgentSetup, folder: Path, channel: Channel) -> AgentContext:
    real, own = RunDir(Path(setup.run_path)), RunDir(folder / Path(setup.run_path).name)
    job = job_on_this_host(setup.job, _unpack_code(setup, own))
    own.write_description(job, {})
    return AgentContext(
        job=job,
        node=setup.node,
        host=setup.host,
        node_dir=NodeDir.lock_folder(folder),
        attempt=(real if setup.shared else own).attempt(setup.attempt),
        environ=node_environ(merge_environ(setup.environ, decode_environ(os.environ), job), job),
        run_path=own.path,
        shown_run_path=real.path,
        sinks=RunDirSinks(job.policies.log_max) if setup.shared else ChannelSinks(channel),
    )


def _report_start_problem(channel: Channel, setup: AgentSetup, folder: Path, error: Exception) -> None:
    """Reports an error that another start would not fix, and waits for the supervisor's answer."""
    what, why = getattr(error, "what", "the agent cannot start"), getattr(error, "why", None) or str(error)
    hint = getattr(error, "hint", None) or "fix this, then run echelon resume {run}"
    channel.send(to_wire(Hello(node=setup.node, host=setup.host, address="", pid=os.getpid(), node_dir=str(folder))))
    channel.send(to_wire(FatalNodeProblem(what=what, why=why, hint=hint)))
    _first_message(channel)


def _first_message(channel: Channel) -> dict[str, Any]:
    poller = select.poll()
    poller.register(channel.fileno(), select.POLLIN)
    try:
        while poller.poll(SETUP_SECONDS * 1000):
            messages = channel.receive()
            if messages:
                return messages[0]
    except ChannelClosed:
        pass
    sys.exit(0)  # the supervisor is gone


def _unpack_code(setup: AgentSetup, own: RunDir) -> Path | None:
    """The folder with the snapshot, or None if the job has none."""
    if setup.job.project is None:
        return None
    if setup.shared:
        return RunDir(Path(setup.run_path)).code
    unpack_snapshot(own.code_archive, own.code)
    return own.code


def job_on_this_host(job: Job, code: Path | None) -> Job:
    """The job as this host can run it: in the snapshot, in the same working directory, or in the home directory."""
    if code is not None:
        return job_in_snapshot(job, code)
    return job if os.access(job.cwd, os.X_OK) else replace(job, cwd=str(Path.home()))
