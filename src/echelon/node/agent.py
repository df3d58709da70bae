"""One per node: starts, watches and stops that node's ranks, at the word of the supervisor."""

from __future__ import annotations

import os
import select
import signal
import time
from typing import Any

from echelon.errors import EnvironmentProblem
from echelon.node import ports
from echelon.node.channel import Channel, ChannelClosed, interests
from echelon.node.crew import Crew
from echelon.node.dumping import Dumping
from echelon.node.interfaces import variables_for
from echelon.node.messages import (
    Bind,
    Bound,
    Exit,
    Exited,
    LauncherFailed,
    Leave,
    Notice,
    Ping,
    Pulse,
    Remark,
    SaveStacks,
    StacksSaved,
    Start,
    Started,
    Stop,
    Stopped,
    StoreDied,
    Trouble,
    Upward,
    Warned,
    from_wire,
    to_wire,
)  # fmt: skip
from echelon.node.post import Post
from echelon.node.sinks import BACKLOG_BYTES
from echelon.node.stopping import Stopping
from echelon.node.wake import wake_on

PULSE_SECONDS = 0.5
CPU_SECONDS = 10.0
FENCE = 0.75  # of the heartbeat: a node that is cut off has ended its ranks before anybody replaces them


class Agent:
    def __init__(self, *, post: Post, crew: Crew, channel: Channel, address: str) -> None:
        self._job = post.job
        self._crew = crew
        self._channel = channel
        self._node_dir = post.node_dir
        self._attempt = post.attempt
        self._sinks = post.sinks
        self._address = crew.address = address
        self._generation = 0
        self._stopping: Stopping | None = None
        self._dumping: Dumping | None = None
        self._held = ports.Held()
        self._heard = time.monotonic()
        self._log_problem_said = False
        self._leaving = False
        self._next_cpu = 0.0

    def say(self, message: Upward) -> None:
        self._channel.send(to_wire(message))

    def choose_network(self) -> None:
        """Tells gloo and NCCL which network to use, only where they would not find it, and says so."""
        chosen = variables_for(self._address, self._job.interface) if self._job.scheduler != "local" else {}
        if chosen:
            self._crew.network = chosen
            self._crew.remark(", ".join(f"{name}={value}" for name, value in chosen.items()))

    def work(self) -> bool:
        """Until the supervisor says leave; true if it is gone, or cannot be heard, and never said so."""
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # a notice comes over the channel
        wake = wake_on(signal.SIGTERM, signal.SIGINT)
        next_pulse = 0.0
        heartbeat = self._job.policies.heartbeat.total_seconds()
        while not self._leaving:
            readable = self._wait(wake, next_pulse)
            now = time.monotonic()
            if wake in readable:
                os.read(wake, 4096)
                self.say(Warned())
            self._read_outputs(readable)
            for report in self._crew.hear_others(readable):
                self._take(report)
            if self._crew.link.fileno() in readable:
                self._hear_starter()
            if self._channel.fileno() in readable and not self._hear_supervisor():
                return True
            if now - self._heard > heartbeat * FENCE:
                return True  # cut off: whoever still reaches the supervisor goes on without us
            if now >= next_pulse:
                next_pulse = now + min(PULSE_SECONDS, heartbeat / 5)
                self._pulse()
            self._go_on(now)
            self._crew.send_orders()
            self._channel.flush()
        return False

    def _wait(self, wake: int, next_pulse: float) -> list[int]:
        outputs = [] if self._is_behind() else [m.output.fd for m in self._crew.living() if not m.output.ended]
        busy = self._dumping is not None or self._stopping is not None or self._crew.has_orders
        timeout = 0.02 if busy else max(0.0, next_pulse - time.monotonic())
        poller = select.poll()
        for source in (wake, self._crew.link.fileno(), *outputs, *self._crew.sources()):
            poller.register(source, select.POLLIN | select.POLLHUP)
        for fd, events in interests([self._channel]).items():
            poller.register(fd, events)
        return [fd for fd, _ in poller.poll(timeout * 1000)]

    def _is_behind(self) -> bool:
        """The supervisor, or the way to it, takes less than the ranks write: they must wait."""
        return self._channel.unsent_bytes > BACKLOG_BYTES

    def _read_outputs(self, readable: list[int]) -> None:
        for member in self._crew.living():
            if member.output.fd in readable:
                member.output.drain()

    # What the starter says

    def _hear_starter(self) -> None:
        report = self._crew.hear()
        if report is None:
            self._starter_died()
        else:
            self._take(report)

    def _take(self, report: dict[str, Any]) -> None:
        match report["is"]:
            case "started" if report["rank"] in self._crew.members:
                self._crew.took_off(report["rank"], report["pid"])
                self.say(Started(generation=self._generation, rank=report["rank"], pid=report["pid"]))
            case "ready":
                self._crew.get_going()
            case "store_died":
                self.say(StoreDied(generation=self._generation))
            case "exited" if report["generation"] == self._generation and report["rank"] in self._crew.members:
                self._rank_left(report["rank"], report["code"], report["time"])
            case "launcher_left":
                for more in self._crew.launcher_left(report["code"]):
                    self._take(more)
            case "failed":
                self.say(LauncherFailed(generation=self._generation, sentence=report["sentence"]))
            case "trouble":
                self.say(Trouble(what=report["what"], why=report["why"], hint=report["hint"]))
            case "swept":
                self._swept(report)

    def _rank_left(self, rank: int, code: int, when: float) -> None:
        exit: Exit = self._crew.left(rank, code, when)
        self.say(Exited(generation=self._generation, exit=exit))

    def _starter_died(self) -> None:
        if not self._crew.ready:
            what = "the process that starts the ranks cannot start"
            why = "it ended before it was ready; job.out in the run's folder has its last words"
            self.say(Trouble(what=what, why=why, hint="--cold does without torch"))
        now = time.time()
        for rank in self._crew.replace_starter():
            self._rank_left(rank, -signal.SIGKILL, now)
        if self._stopping is not None:
            self._stopped(self._stopping.generation)

    # What the supervisor says

    def _hear_supervisor(self) -> bool:
        """False once it is gone."""
        try:
            messages = self._channel.receive()
        except ChannelClosed:
            return False
        self._heard = time.monotonic()
        self.obey_all(messages)
        return True

    def obey_all(self, messages: list[dict[str, Any]]) -> None:
        for message in messages:
            self._obey(message)

    def _obey(self, wire: dict[str, Any]) -> None:
        match from_wire(wire):
            case Bind() as bind:
                self._generation = bind.generation
                self._bind(bind.generation)
            case Start() as start:
                self._generation = start.placement.generation
                self._start(start)
            case Notice() as notice:
                self._notice(notice.seconds_left)
            case SaveStacks() as save:
                self._save_stacks(save.generation)
            case Stop() as stop:
                self._stop(stop)
            case Leave():
                self._leaving = True
            case Ping():
                pass

    def _start(self, start: Start) -> None:
        try:
            self._crew.start(start)
        except OSError as error:  # no room for logs, no descriptors left
            hint = "free some space or raise the limit, then echelon resume {run}"
            self.say(Trouble(what="the ranks cannot be started", why=str(error), hint=hint))

    def _bind(self, generation: int) -> None:
        self._held.release()
        try:
            bound = self._open_store(generation) if self._job.warm else self._hold_ports(generation)
        except EnvironmentProblem as problem:
            self.say(Trouble(what=problem.what, why=problem.why or "", hint=problem.hint or ""))
        else:
            self.say(bound)

    def _open_store(self, generation: int) -> Bound:
        with ports.bind(self._address, self._job.ports) as sock:
            sock.listen(4096)
            port = sock.getsockname()[1]
            self._crew.open_store(self._address, port, sock.fileno())
        return Bound(generation=generation, port=port, store_is_up=True)

    def _hold_ports(self, generation: int) -> Bound:
        port = self._held.take(self._address, self._job.ports)
        apart = self._job.launching.rdzv == "c10d"  # its agents' store is not that of the ranks
        second = self._held.take(self._address, self._job.ports) if apart else 0
        self._held.share()
        return Bound(generation=generation, port=port, store_is_up=False, launcher_port=second)

    def _notice(self, seconds_left: float) -> None:
        try:
            self._node_dir.notice.write_text(f"{time.time() + seconds_left:.3f}\n")
        except OSError as error:
            self.say(Remark(text=f"the notice cannot be left for the library: {error}"))
        ranks = self._crew.signal_those_who_listen(signal.SIGUSR1)
        told = f", SIGUSR1 to rank {', '.join(map(str, ranks))}" if ranks else ""
        self._crew.remark(f"notice: {seconds_left:.0f} s left{told}")

    # Stopping, and saving stacks before it

    def _stop(self, stop: Stop) -> None:
        if not self._crew.ready:  # no rank has started, and an import is not worth breaking off
            self._crew.take_back()
            self._stopped(stop.generation)
            return
        self._stopping = Stopping(self._crew, stop.generation, stop.grace, time.monotonic())

    def _swept(self, report: dict[str, Any]) -> None:
        if self._stopping is None or report["generation"] != self._stopping.generation:
            return
        self._stopped(report["generation"])

    def _stopped(self, generation: int) -> None:
        self._stopping = None
        self._crew.read_the_rest()
        self._complain_of_logs()
        self._crew.clear()
        self._held.release()
        self.say(Stopped(generation=generation))

    def _save_stacks(self, generation: int) -> None:
        self._dumping = Dumping(
            self._crew, generation, node_dir=self._node_dir, attempt=self._attempt, sinks=self._sinks,
            now=time.monotonic(),
        )  # fmt: skip

    def _go_on(self, now: float) -> None:
        if self._stopping is not None:
            self._stopping.go_on(now)
        if self._dumping is not None and self._dumping.is_done(now):
            self.say(StacksSaved(generation=self._dumping.generation))
            self._dumping = None

    # Pulse

    def _pulse(self) -> None:
        self.say(Pulse(generation=self._generation, samples=self._crew.samples(with_cpu=self._cpu_is_due())))
        self._complain_of_logs()

    def _cpu_is_due(self) -> bool:
        timeout = self._job.policies.hang_timeout
        now = time.monotonic()
        if timeout is None or now < self._next_cpu:
            return False
        self._next_cpu = now + min(CPU_SECONDS, timeout.total_seconds() / 20)
        return True

    def _complain_of_logs(self) -> None:
        problem = self._crew.log_problem()
        if problem is not None and not self._log_problem_said:
            self._log_problem_said = True
            self.say(Remark(text=f"output was lost: cannot write the log ({problem.strerror})"))
