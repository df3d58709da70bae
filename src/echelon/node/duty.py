"""An agent's life: it gets its ranks' starter ready, finds its supervisor, works, and leaves nothing behind."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from echelon.errors import EchelonError
from echelon.job import Job
from echelon.launchers import Scope, scope_of
from echelon.node import kinship
from echelon.node.agent import Agent
from echelon.node.carried import host_environ, wait_for_environment
from echelon.node.channel import Channel, dial
from echelon.node.environ import decoded, node_environ, shown
from echelon.node.hosts.orphans import requeue_without_supervisor
from echelon.node.interfaces import address_of
from echelon.node.messages import Trouble, to_wire
from echelon.node.node_dir import NodeDir
from echelon.node.post import Post
from echelon.node.project import job_here
from echelon.node.sinks import InRunDirectory
from echelon.node.stopping import STARTER_SECONDS
from echelon.run_dir import RunDir

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108  the folder in it is made for us alone


def main(
    *, run_path: Path, attempt: int, node: int, host: str, source: str, supervisor: tuple[str, int],
    environment_follows: bool = False,
) -> int:  # fmt: skip
    """An agent that sees the run directory and dials the supervisor."""
    run_dir = RunDir(run_path)
    job = job_here(run_dir)

    def connect() -> tuple[Channel, str]:
        channel = dial(
            *supervisor, run_dir.token.read_bytes(), timeout=job.policies.join_timeout.total_seconds(),
            source=address_of(job.interface) if job.interface else source,
        )  # fmt: skip
        return channel, channel.own_address

    post = Post(
        job=job, node=node, host=host, node_dir=NodeDir.create(run_dir.run_id, _shared_memory(job)),
        attempt=run_dir.attempt(attempt), environ=node_environ(decoded(os.environ), job), run_path=run_path,
        shown_run_path=run_path, sinks=InRunDirectory(),
    )  # fmt: skip
    return serve(post, connect, environment_follows=environment_follows)


def _shared_memory(job: Job) -> Path | None:
    """For the folder that workers inside of a container must see as well: their /tmp may be another one."""
    return SHARED_MEMORY if scope_of(job) is Scope.JOB and os.access(SHARED_MEMORY, os.W_OK) else None


def serve(post: Post, connect: Callable[[], tuple[Channel, str]], *, environment_follows: bool = False) -> int:
    """`connect` gives the channel to the supervisor, and the address that this node's ranks meet at."""
    kinship.adopt_orphans()
    crew = None
    unheard: list[dict[str, Any]] = []
    try:
        if not environment_follows:
            crew = post.crew()  # it gets ready while we dial
        channel, address = connect()
        channel.send(to_wire(post.hello(address)))
        if crew is None:
            carried, unheard = wait_for_environment(channel, post.job.policies.join_timeout.total_seconds())
            post = replace(post, environ=node_environ(host_environ(carried, decoded(os.environ), post.job), post.job))
            crew = post.crew()
        agent = Agent(post=post, crew=crew, channel=channel, address=address)
        try:
            agent.obey_all(unheard)
            agent.choose_network()
            post.sinks.keep(post.attempt.node_env(post.host), shown(post.environ))
            is_orphan = agent.work()
        except (OSError, EchelonError) as error:  # a full disk, a folder that was removed: say so before leaving
            hint = "mend that, then echelon resume {run}"
            agent.say(Trouble(what="the agent cannot go on", why=str(error), hint=hint))
            return 1
    finally:
        if crew is not None:
            crew.close(STARTER_SECONDS)
        post.node_dir.remove()
    if is_orphan:
        environ = {**os.environ, "PATH": post.environ.get("PATH", "")}
        requeue_without_supervisor(post.job, post.attempt, environ)
    return 0
