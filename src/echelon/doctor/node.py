"""The doctor on one node: runs the checks of the node, then follows the coordinator. Prints results as JSON lines.

Runs as the only rank of its node in a doctor job: `python -m echelon.doctor.node PLAN`.
"""

from __future__ import annotations

import os
import select
import socket
import sys
import time
from dataclasses import dataclass, field, replace
from typing import Any

from echelon.codec import decode, encode
from echelon.doctor.checks import CHECKS, names, sharing, software
from echelon.doctor.collective import NAME as REDUCE
from echelon.doctor.collective import TorchProcess
from echelon.doctor.coordinator import ARRIVAL_SECONDS, PAIR_SECONDS, start_coordinator
from echelon.doctor.isolate import run_checks, run_isolated
from echelon.doctor.link import ACCEPT_SECONDS, Endpoint, measure, mtu_of, open_sockets, serve
from echelon.doctor.meeting import Place, emit, emit_result
from echelon.doctor.model import Plan, Result
from echelon.system import processes
from echelon.untrusted import parse_json
from echelon.wire.channel import Channel, ChannelClosed, connect

IDLE_SECONDS = 150.0
"""How long to wait for the coordinator, which waits for the slowest node."""


@dataclass(kw_only=True)
class NodeDoctor:
    plan: Plan
    place: Place
    address: str
    endpoint: Endpoint
    listener: socket.socket
    packets: socket.socket
    torch: TorchProcess | None
    channel: Channel
    roster: dict[str, Any] = field(default_factory=dict)

    def hello(self) -> None:
        hello = {
            "rank": self.place.rank,
            "hostname": socket.gethostname(),
            "addresses": names.own_addresses(),
            **encode(self.endpoint),
        }
        self.channel.send({"hello": hello})
        emit("result", **encode(Result(check="network", facts={"address": self.address, "mtu": mtu_of(self.address)})))

    def check_node(self) -> None:
        """The checks of this node alone. A node that hangs in one of them still answers the coordinator afterwards."""
        run_isolated("marks", sharing.SECONDS, lambda: sharing.leave_marks(self.plan.folders, *self._own_mark()))
        for result in run_checks([check for check in CHECKS if check.name != software.NAME], self.plan):
            emit_result(result)
        emit("progress", part="each node alone")
        self.channel.send({"ready": True})

    def remove_marks(self) -> None:
        run_isolated("marks", sharing.SECONDS, lambda: sharing.remove_marks(self.plan.folders, *self._own_mark()))

    def _own_mark(self) -> tuple[str, int]:
        return self.place.run_id, self.place.rank

    def follow(self) -> None:
        """Carries out the coordinator's orders until the end. Raises ChannelClosed and TimeoutError."""
        while True:
            if not select.select([self.channel.fileno()], [], [], IDLE_SECONDS)[0]:
                raise TimeoutError(f"no order within {IDLE_SECONDS:g} s")
            for message in self.channel.receive():
                if "end" in message:
                    return
                self._handle(message)

    def _handle(self, message: dict[str, Any]) -> None:
        match message:
            case {"roster": dict() as roster}:
                self.roster = roster
                emit("roster", present=sorted(map(int, roster)))
            case {"clock": _}:
                self.channel.send({"time": time.time()})
            case {"result": dict() as result}:
                emit_result(decode(Result, result))
            case {"look": list() as ranks}:
                self._look(ranks)
            case {"clean": _}:
                self.remove_marks()
                self.channel.send({"cleaned": True})
            case {"serve": int()}:
                served = run_isolated("serve", PAIR_SECONDS - 2, self._serve)
                self.channel.send({"measured": not served.problem and "problem" not in served.facts})
            case {"measure": int() as peer}:
                self._measure(peer)
            case {"torch": _}:
                self._describe_torch()
            case {"store": _}:
                self._offer_store()
            case {"reduce": dict() as order}:
                self._reduce(order)

    def _look(self, ranks: list[int]) -> None:
        if not self.plan.rehearsed:
            result = run_isolated(names.NAME, names.SECONDS, lambda: names.collect(self.roster))
            emit_result(result)
        if self.plan.folders:
            look = lambda: sharing.look_for_marks(self.plan.folders, self.place.run_id, ranks)  # noqa: E731
            emit_result(run_isolated(sharing.NAME, sharing.SECONDS, look))
        self.channel.send({"looked": True})

    def _serve(self) -> dict[str, Any]:
        return serve(self.listener, self.packets, self.place.token, ACCEPT_SECONDS)

    def _measure(self, peer: int) -> None:
        hello = self.roster[str(peer)]
        there = Endpoint(address=hello["address"], tcp_port=hello["tcp_port"], udp_port=hello["udp_port"])
        result = run_isolated(f"pairs/{peer}", PAIR_SECONDS - 2, lambda: measure(there, self.address, self.place.token))
        emit_result(result)
        is_good = not result.problem and "problem" not in result.facts
        self.channel.send({"measured": [result.facts["bandwidth"], result.facts["latency"]] if is_good else None})

    def _describe_torch(self) -> None:
        """Comes late: torch is imported while the connections are measured."""
        emit("progress", part="connections")
        result = self.torch.describe() if self.torch is not None else None
        if result is not None:
            emit_result(result)
        facts = result.facts if result is not None else {}
        self.channel.send({"versions": {"torch": facts.get("torch"), "gpus": len(facts.get("gpus") or ())}})

    def _offer_store(self) -> None:
        listener = self.torch.listener if self.torch is not None else None
        self.channel.send({"port": listener.getsockname()[1] if listener is not None else 0})

    def _reduce(self, order: dict[str, Any]) -> None:
        began = time.monotonic()
        facts = self.torch.reduce(order) if self.torch is not None else {"problem": "torch was not started"}
        emit_result(Result(check=REDUCE, seconds=time.monotonic() - began, facts=facts))
        self.channel.send({"reduced": True})


def connect_to_coordinator(place: Place, own: str) -> Channel:
    """Tries again until the coordinator listens. Raises OSError or ChannelClosed."""
    deadline = time.monotonic() + ARRIVAL_SECONDS
    while True:
        left = max(0.1, deadline - time.monotonic())
        try:
            return connect(*place.main, place.token, left, own)
        except (ConnectionRefusedError, ChannelClosed):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def run_node(plan: Plan, place: Place) -> None:
    coordinator = None
    if place.rank == 0:
        coordinator, port = start_coordinator(*place.main, place.token, place.size, plan)
        place = replace(place, main=(place.main[0], port))
        emit("listening", port=port)
    address = place.own_address(plan)
    torch = TorchProcess(address) if plan.with_torch else None
    endpoint, listener, packets = open_sockets(address)
    try:
        channel = connect_to_coordinator(place, address)
    except (OSError, ChannelClosed) as error:
        emit("unreachable", peer=f"{place.main[0]}:{place.main[1]}", why=str(error) or type(error).__name__)
        check_alone(plan, torch)
        return
    doctor = NodeDoctor(
        plan=plan,
        place=place,
        address=address,
        endpoint=endpoint,
        listener=listener,
        packets=packets,
        torch=torch,
        channel=channel,
    )
    doctor.hello()
    try:
        doctor.check_node()
        doctor.follow()
    finally:
        doctor.remove_marks()
    if coordinator is not None:
        os.waitpid(coordinator, 0)  # it ends with this process, and the others must get its last message


def check_alone(plan: Plan, torch: TorchProcess | None = None) -> None:
    """The checks of this node, without any other."""
    for result in run_checks([check for check in CHECKS if torch is None or check.name != software.NAME], plan):
        emit_result(result)
    if torch is not None:
        emit_result(torch.describe())


def main(argv: list[str]) -> None:
    """`argv` has the plan, and for a preflight check also the place of this node. Never returns."""
    plan = decode(Plan, parse_json(argv[0]))
    if len(argv) > 1:
        processes.die_with_parent(int(argv[2]))
    place = Place.from_json(argv[1], os.environ) if len(argv) > 1 else Place.from_environ(os.environ)
    try:
        run_node(plan, place)
    except (OSError, ChannelClosed) as error:
        emit("lost", why=str(error) or type(error).__name__)
    emit("end")
    sys.stdout.flush()
    os._exit(0)  # kills the torch process, which dies with its parent


if __name__ == "__main__":
    main(sys.argv[1:])
