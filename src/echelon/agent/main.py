"""Main function of an agent: starts the starter, connects to the supervisor, runs the loop and cleans up."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from echelon.agent.context import AgentContext
from echelon.agent.environ import decode_environ, format_environ, host_environ, wait_for_environment
from echelon.agent.launched_ranks import create_rank_set
from echelon.agent.loop import Agent
from echelon.agent.starter_process import ImporterOffer
from echelon.agent.stopping import STARTER_SECONDS
from echelon.backends import backend
from echelon.backends.node_environ import node_environ
from echelon.errors import EchelonError
from echelon.job import Job
from echelon.launchers import Scope, launcher_scope
from echelon.run_dir import RunDir
from echelon.system import processes
from echelon.system.network import address_of
from echelon.system.project import read_runnable_job
from echelon.wire.attempt_files import RunDirSinks
from echelon.wire.channel import Channel
from echelon.wire.channel import connect as connect_channel
from echelon.wire.messages import to_wire
from echelon.wire.node_dir import NodeDir
from echelon.wire.reports import FatalNodeProblem

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108  mkdtemp creates a private folder in it


def main(
    *,
    run_path: Path,
    attempt: int,
    node: int,
    host: str,
    source: str,
    supervisor: tuple[str, int],
    environ_follows: bool = False,
) -> int:
    """Runs an agent that can read the run directory and connects to the supervisor. Returns the exit code."""
    offer = ImporterOffer.from_environ(os.environ)
    run_dir = RunDir(run_path)
    job = read_runnable_job(run_dir)

    def connect() -> tuple[Channel, str]:
        channel = connect_channel(
            *supervisor,
            run_dir.token.read_bytes(),
            timeout=job.policies.join_timeout.total_seconds(),
            source=address_of(job.interface) if job.interface else source,
        )
        return channel, channel.local_address

    context = AgentContext(
        job=job,
        node=node,
        host=host,
        node_dir=NodeDir.create(run_dir.run_id, _shared_memory(job)),
        attempt=run_dir.attempt(attempt),
        environ=node_environ(decode_environ(os.environ), job),
        run_path=run_path,
        shown_run_path=run_path,
        sinks=RunDirSinks(job.policies.log_max),
        importer=offer,
    )
    return serve(context, connect, environ_follows=environ_follows)


def _shared_memory(job: Job) -> Path | None:
    """The parent of the node folder if workers in a container must see it: their /tmp may be a different one."""
    return SHARED_MEMORY if launcher_scope(job) is Scope.JOB and os.access(SHARED_MEMORY, os.W_OK) else None


def serve(context: AgentContext, connect: Callable[[], tuple[Channel, str]], *, environ_follows: bool = False) -> int:
    """Runs an agent and returns its exit code. `connect` returns the channel to the supervisor and the address of this
    node for the rendezvous."""
    processes.set_subreaper()
    ranks = None
    unread: list[dict[str, Any]] = []
    try:
        if not environ_follows:
            ranks = create_rank_set(context)  # the starter imports torch while the agent connects
        channel, address = connect()
        channel.send(to_wire(context.hello(address)))
        if ranks is None:
            sent, unread = wait_for_environment(channel, context.job.policies.join_timeout.total_seconds())
            own = decode_environ(os.environ)
            context = replace(context, environ=node_environ(host_environ(sent, own, context.job), context.job))
            ranks = create_rank_set(context)
        agent = Agent(context=context, ranks=ranks, channel=channel, address=address)
        try:
            agent.handle_messages(unread)
            agent.choose_network()
            context.sinks.write_file(context.attempt.node_env(context.host), format_environ(context.environ))
            is_orphan = agent.run()
        except (OSError, EchelonError) as error:  # a full disk or a removed folder: report it before exit
            hint = "fix this, then run echelon resume {run}"
            agent.send(FatalNodeProblem(what="the agent cannot continue", why=str(error), hint=hint))
            return 1
    finally:
        if ranks is not None:
            ranks.close(STARTER_SECONDS)
        context.node_dir.remove()
    if is_orphan:
        environ = {**os.environ, "PATH": context.environ.get("PATH", "")}
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # nothing is left to clean up
        backend(context.job.scheduler).requeue_without_supervisor(context.job, context.attempt, environ)
    return 0
