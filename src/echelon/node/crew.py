"""The ranks of one node, seen from its agent: started, heard, sampled, told, stopped."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from echelon.job import Job
from echelon.node import processes
from echelon.node.messages import Exit, Sample, Start
from echelon.node.node_dir import NodeDir
from echelon.node.orders import Outbox, receive_order
from echelon.node.output import RankOutput
from echelon.node.sinks import Sinks
from echelon.plan import Placement
from echelon.run_dir import AttemptDir

REAP_SECONDS = 5.0


@dataclass
class Member:
    """One rank: the pipe we hear it by, and its pid once the starter has forked it."""

    rank: int
    output: RankOutput
    pid: int | None = None
    exited: bool = False
    cpu_seconds: float = 0.0


class Crew:
    """Owns the starter process (warm.py), which alone touches the ranks."""

    def __init__(
        self,
        *,
        job: Job,
        run_path: Path,
        shown_run_path: Path,
        attempt: AttemptDir,
        host: str,
        node_dir: NodeDir,
        environ: dict[str, str],
        sinks: Sinks,
    ) -> None:
        self._job = job
        self._run_path = run_path
        self._shown_run_path = shown_run_path
        self._sinks = sinks
        self._attempt = attempt
        self._host = host
        self._node_dir = node_dir
        self._environ = environ
        self._node_log = sinks.log(attempt.node_log(host))
        self.members: dict[int, Member] = {}
        self.network: dict[str, str] = {}
        """Variables that name the network, for ranks that were not told."""
        self.address = ""
        """Of this node, that its ranks meet at."""
        self.umask = os.umask(0o077)
        self._hire_starter()

    def _hire_starter(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        argv = [
            *(sys.executable, sys.argv[0], "warm", str(theirs.fileno()), str(os.getpid())),
            *(str(self._run_path), str(self._node_dir.path)),
        ]
        self._starter = subprocess.Popen(
            argv,
            env=self._environ,
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            cwd=self._job.inner_cwd,
            start_new_session=True,  # who kills the agent's session leaves somebody to clean up
        )
        theirs.close()
        self.link = ours
        self._outbox = Outbox(ours)

    def start(self, start: Start) -> None:
        placement = start.placement
        for local_rank in range(placement.procs_per_node):
            rank = placement.rank(local_rank)
            output = self._enlist(placement, local_rank)
            self._order(
                "rank", output, rank=rank, generation=placement.generation, umask=self.umask,
                env={**self._unless_set(self.network), **self._rank_variables(placement, local_rank)},
            )  # fmt: skip
            os.close(output)

    def _enlist(self, placement: Placement, local_rank: int) -> int:
        """A new member, and the end of the pipe that it is to write to."""
        rank, width = placement.rank(local_rank), len(str(placement.world_size - 1))
        self._node_dir.prepare(rank)
        read_fd, write_fd = os.pipe()
        log = self._sinks.log(self._attempt.rank_log(rank))
        self.members[rank] = Member(rank, RankOutput(read_fd, rank, width, log, self._node_log))
        return write_fd

    def _unless_set(self, variables: dict[str, str]) -> dict[str, str]:
        return {name: value for name, value in variables.items() if name not in self._environ}

    def _rank_variables(self, placement: Placement, local_rank: int) -> dict[str, str]:
        rank = placement.rank(local_rank)
        return {
            **placement.variables(local_rank),
            "TORCHELASTIC_ERROR_FILE": str(self._node_dir.error(rank)),
            "ECHELON_NODE_DIR": str(self._node_dir.path),
            "ECHELON_RUN_DIR": str(self._shown_run_path),
        }

    def open_store(self, address: str, port: int, listener: int) -> None:
        self._order("store", listener, address=address, port=port)

    def _order(self, kind: str, /, *fds: int, **order: Any) -> None:
        """To the starter, as soon as it has imported torch."""
        self._outbox.put({"is": kind, **order}, *fds)

    def get_going(self) -> None:
        self._outbox.is_open = True
        self._outbox.send()

    def send_orders(self) -> None:
        self._outbox.send()

    @property
    def ready(self) -> bool:
        return self._outbox.is_open

    @property
    def has_orders(self) -> bool:
        return self._outbox.is_busy

    def take_back(self) -> None:
        """What has not been started yet never will be."""
        self._outbox.drop()
        self.clear()

    def hear(self) -> dict[str, Any] | None:
        """The starter's next report; None once it is gone."""
        received = receive_order(self.link)
        return None if received is None else received[0]

    # Living members

    def living(self) -> list[Member]:
        return [member for member in self.members.values() if not member.exited]

    def took_off(self, rank: int, pid: int) -> None:
        self.members[rank].pid = pid

    def left(self, rank: int, code: int, when: float) -> Exit:
        """What there is to say of a rank that has gone, once all it wrote has been read."""
        member = self.members[rank]
        member.exited = True
        member.output.drain_what_is_there()
        step, committed = self._node_dir.read_progress(rank)
        return Exit(
            rank=rank, host=self._host, code=code, time=when, lines=member.output.lines, step=step,
            committed=committed,
            error=self._node_dir.read_error(rank) if code != 0 else None,
        )  # fmt: skip

    def samples(self, *, with_cpu: bool) -> tuple[Sample, ...]:
        """What each rank has done; adding up CPU time takes a look at every thread, so not every time."""
        members = [(member, member.pid) for member in self.living() if member.pid is not None]
        for member, pid in members if with_cpu else ():
            member.cpu_seconds = processes.cpu_seconds(pid)
        return tuple(self._sample(member, pid) for member, pid in members)

    def _sample(self, member: Member, pid: int) -> Sample:
        step, committed = self._node_dir.read_progress(member.rank)
        return Sample(
            rank=member.rank, lines=member.output.lines, cpu_seconds=member.cpu_seconds,
            stopped=processes.is_stopped(pid), step=step, committed=committed,
        )  # fmt: skip

    # Signals

    def signal_all(self, signum: int) -> None:
        self._signal([member.rank for member in self.living()], signum)

    def ask_to_leave(self) -> None:
        """TERM, and at once KILL to those that would not hear it."""
        deaf = [m.rank for m in self.living() if self._node_dir.outlives_term(m.rank).exists()]
        self._signal(deaf, signal.SIGKILL)
        self._signal([m.rank for m in self.living() if m.rank not in deaf], signal.SIGTERM)

    def _signal(self, ranks: list[int], signum: int) -> None:
        self._send_signal(ranks, signum, group=True)

    def _send_signal(self, ranks: list[int], signum: int, *, group: bool) -> None:
        self._order("signal", ranks=ranks, signal=signum, group=group)

    def signal_those_who_listen(self, signum: int) -> list[int]:
        """Only to ranks with a handler for it: to the others it would be death."""
        ranks = [m.rank for m in self.living() if m.pid is not None and processes.catches(m.pid, signum)]
        self._send_signal(ranks, signum, group=False)
        return ranks

    def wake_the_stopped(self) -> None:
        ranks = [m.rank for m in self.living() if m.pid is not None and processes.is_stopped(m.pid)]
        self._send_signal(ranks, signal.SIGCONT, group=False)

    # What others have to say who start ranks: nobody here

    def sources(self) -> list[int]:
        return []

    def hear_others(self, readable: list[int]) -> list[dict[str, Any]]:  # noqa: ARG002
        return []

    def launcher_left(self, code: int) -> list[dict[str, Any]]:  # noqa: ARG002
        return []

    # Endings

    def write_off_absent(self) -> None:
        """Those that have not come by now never will."""

    def is_clear(self, now: float) -> bool:  # noqa: ARG002
        """Whether nobody stands any more between us and the ranks that have left."""
        return True

    def sweep(self, generation: int, patience: float) -> None:  # noqa: ARG002
        self._order("sweep", generation=generation, patience=0.0)

    def kill_starter(self) -> None:
        """Its ranks die with it."""
        self._starter.kill()

    def replace_starter(self) -> list[int]:
        """After the starter's death: what it left is ended, and a new one hired. The ranks that died with it."""
        self._reap_starter()
        self._end_strays()
        self._outbox.drop()
        self.link.close()
        dead = [member.rank for member in self.living()]
        self._hire_starter()
        return dead

    def _reap_starter(self) -> None:
        try:
            self._starter.wait(REAP_SECONDS)
        except subprocess.TimeoutExpired:
            pass  # the kernel cannot end it now (a dead file system); it dies when it wakes

    def _end_strays(self) -> None:
        deadline = time.monotonic() + 2.0
        while processes.children(os.getpid()) and time.monotonic() < deadline:
            processes.kill_descendants(os.getpid())
            try:
                os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            time.sleep(0.002)

    def read_the_rest(self) -> None:
        for member in self.members.values():
            member.output.drain_what_is_there()

    def clear(self) -> None:
        """Forgets the generation, after a last look into its pipes."""
        self.read_the_rest()
        for member in self.members.values():
            member.output.close()
        self.members.clear()

    def log_problem(self) -> OSError | None:
        """Why some output could not be kept, if that has happened."""
        problems = (self._node_log.problem, *(member.output.problem for member in self.members.values()))
        return next(filter(None, problems), None)

    def remark(self, text: str) -> None:
        self._node_log.write(f"[echelon] {text}\n".encode())

    def close(self, wait_seconds: float) -> None:
        """Closing the link tells the starter to end everything below it; one that still imports has nothing there."""
        self.link.close()
        if not self.ready:
            self._starter.kill()
        try:
            self._starter.wait(wait_seconds)
        except subprocess.TimeoutExpired:
            self._starter.kill()
            self._reap_starter()
        self._end_strays()
        self._outbox.drop()
        self.clear()
