"""The agent at the other end of an ssh connection, which is its channel."""

from __future__ import annotations

import os
import select
import shutil
import socket
import sys
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from echelon.codec import decode
from echelon.errors import EchelonError
from echelon.job import Job
from echelon.node.by_folder import by_folder
from echelon.node.carried import blended
from echelon.node.channel import Channel, ChannelClosed
from echelon.node.code_archive import unpack
from echelon.node.duty import serve
from echelon.node.environ import decoded, node_environ
from echelon.node.hosts.bootstrap import DOOR
from echelon.node.interfaces import own_address
from echelon.node.messages import Hello, Trouble, to_wire
from echelon.node.node_dir import NodeDir
from echelon.node.post import Post
from echelon.node.project import moved
from echelon.node.sinks import InRunDirectory, OverChannel
from echelon.run_dir import RunDir

BRIEF_SECONDS = 60.0


@dataclass(frozen=True, kw_only=True)
class Brief:
    """All that an agent must know and cannot see: it comes over the connection, so that nothing shows in a command."""

    job: Job
    run_path: str
    """On the supervisor's machine, and on this one where they share it."""
    shared: bool
    attempt: int
    node: int
    host: str
    peers: tuple[str, ...]
    """Addresses, then names, of the other hosts."""
    environ: Mapping[str, str]


def main(folder: Path, ends: Sequence[int]) -> int:
    """`folder` is this agent's own: what was sent is in it, and it goes with the agent."""
    channel = _channel(folder, ends)
    try:
        brief = decode(Brief, _first_message(channel))
        try:
            post = _post(brief, folder, channel)
            address = own_address(brief.peers, brief.job.interface)
        except (OSError, EchelonError, tarfile.TarError) as error:
            _refuse(channel, brief, folder, error)
            return 1
        return serve(post, lambda: (channel, address))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _channel(folder: Path, ends: Sequence[int]) -> Channel:
    """The connection itself, by its two ends; in an environment, whoever has it waits for us at the door."""
    if not ends:
        link = socket.socket(socket.AF_UNIX)
        by_folder(folder / DOOR, link.connect)
        return Channel(link.fileno(), link.detach())
    for fd in ends:
        os.set_inheritable(fd, False)  # the connection must not live on in a child of ours
    return Channel(ends[0], ends[1])


def _post(brief: Brief, folder: Path, channel: Channel) -> Post:
    real, own = RunDir(Path(brief.run_path)), RunDir(folder / Path(brief.run_path).name)
    job = localized(brief.job, _code(brief, own))
    own.write_description(job, {})
    return Post(
        job=job,
        node=brief.node,
        host=brief.host,
        node_dir=NodeDir.claimed(folder),
        attempt=(real if brief.shared else own).attempt(brief.attempt),
        environ=node_environ(blended(brief.environ, decoded(os.environ), job), job),
        run_path=own.path,
        shown_run_path=real.path,
        sinks=InRunDirectory() if brief.shared else OverChannel(channel),
    )


def _refuse(channel: Channel, brief: Brief, folder: Path, error: Exception) -> None:
    """Says what cannot be mended by another start, and leaves when it has been heard."""
    what, why = getattr(error, "what", "the agent cannot start"), getattr(error, "why", None) or str(error)
    hint = getattr(error, "hint", None) or "mend that, then echelon resume {run}"
    channel.send(to_wire(Hello(node=brief.node, host=brief.host, address="", pid=os.getpid(), node_dir=str(folder))))
    channel.send(to_wire(Trouble(what=what, why=why, hint=hint)))
    _first_message(channel)


def _first_message(channel: Channel) -> dict[str, Any]:
    poller = select.poll()
    poller.register(channel.fileno(), select.POLLIN)
    try:
        while poller.poll(BRIEF_SECONDS * 1000):
            messages = channel.receive()
            if messages:
                return messages[0]
    except ChannelClosed:
        pass
    sys.exit(0)  # whoever started us is gone


def _code(brief: Brief, own: RunDir) -> Path | None:
    """The folder with the snapshot in it, if there is one."""
    if brief.job.project is None:
        return None
    if brief.shared:
        return RunDir(Path(brief.run_path)).code
    unpack(own.code_archive, own.code)
    return own.code


def localized(job: Job, code: Path | None) -> Job:
    """The job as this host can run it: in the snapshot, in the same folder as there, or in the home folder."""
    if code is not None:
        return moved(job, code)
    return job if os.access(job.cwd, os.X_OK) else replace(job, cwd=str(Path.home()))
