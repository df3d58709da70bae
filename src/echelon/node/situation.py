"""What the supervisor knows, what it can be told and what it can do: the words that `decide` is written in."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Union

from echelon.node.faults import Fault
from echelon.node.messages import Exit


class Phase(enum.Enum):
    GATHERING = "waiting for agents"
    BINDING = "binding the rendezvous port"
    RUNNING = "running"
    WINDING = "waiting for the ranks that have not left yet"
    DUMPING = "saving stacks"
    STOPPING = "stopping the ranks"
    ENDED = "ended"


class NodeState(enum.Enum):
    STARTING = "starting"
    READY = "ready"
    LOST = "lost"


class Loss(enum.Enum):
    PROCESS = "its agent died"  # the host may well be fine
    HOST = "it fell silent"


class Ending(enum.Enum):
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    REQUEUED = "requeued"


@dataclass(frozen=True, kw_only=True)
class Outcome:
    ending: Ending
    exit_code: int
    reason: str
    fault: Fault | None = None
    hint: str = ""
    lost_hosts: tuple[str, ...] = ()
    """Those that fell silent, for whoever chooses the hosts of the next attempt."""
    counts: bool = True
    """Whether a requeue is one of those that were asked for, or the scheduler's own doing."""


@dataclass(frozen=True, kw_only=True)
class Rules:
    """The parts of the job that decisions depend on."""

    nodes: int
    procs_per_node: int = 1
    smallest: int
    spares: int = 0
    restarts: int = 0
    requeues: int = 0
    requeued: int = 0
    grace: float = 5.0
    host_comes_back: bool = True
    """Whether a host that fell silent can be given an agent again: so for rehearsed nodes, not for real ones."""


@dataclass(frozen=True, kw_only=True)
class State:
    rules: Rules
    phase: Phase = Phase.GATHERING
    generation: int = 0
    restarts_used: int = 0
    nodes: Mapping[int, NodeState] = field(default_factory=dict)
    losses: Mapping[int, Loss] = field(default_factory=dict)
    hosts: Mapping[int, str] = field(default_factory=dict)
    members: tuple[int, ...] = ()
    """The nodes of this generation, in the order of their node rank."""
    exits: Mapping[int, Exit] = field(default_factory=dict)
    pending: frozenset[int] = frozenset()
    """Members that have yet to answer to a stop or to a dump."""
    fault: Fault | None = None
    outcome: Outcome | None = None
    hurry: bool = False
    """Cancelled twice: no grace any more."""
    notice: bool = False
    warned: bool = False
    """The scheduler is ending the job before its time."""
    step: int | None = None
    committed: int | None = None
    """The furthest steps of this generation, reported and saved."""
    moved: bool = False
    """Whether any rank of this generation wrote a line or used its CPU."""
    best_step: int | None = None
    best_committed: int | None = None
    idle_generations: int = 0
    last_signature: str | None = None


# Events


@dataclass(frozen=True)
class AgentJoined:
    node: int
    host: str


@dataclass(frozen=True)
class AgentLost:
    node: int
    loss: Loss


@dataclass(frozen=True)
class PortBound:
    generation: int
    address: str
    port: int
    store_is_up: bool
    launcher_port: int = 0


@dataclass(frozen=True)
class RankExited:
    generation: int
    exit: Exit


@dataclass(frozen=True)
class Progressed:
    generation: int
    step: int | None = None
    committed: int | None = None
    moved: bool = False


@dataclass(frozen=True)
class RanksHung:
    generation: int
    sentence: str


@dataclass(frozen=True)
class StacksWritten:
    generation: int
    node: int


@dataclass(frozen=True)
class NodeStopped:
    generation: int
    node: int


@dataclass(frozen=True)
class StoreLost:
    generation: int
    host: str


@dataclass(frozen=True)
class LauncherLost:
    generation: int
    sentence: str


@dataclass(frozen=True)
class PhaseTimedOut:
    phase: Phase


@dataclass(frozen=True)
class NoticeDue:
    pass


@dataclass(frozen=True)
class TimeIsUp:
    pass


@dataclass(frozen=True)
class WarningCame:
    """The scheduler is ending the job: every process on some node was told so, the ranks too."""


@dataclass(frozen=True)
class CancelAsked:
    signum: int


@dataclass(frozen=True)
class Hopeless:
    """A node said that no restart will help: no torch, no free port."""

    outcome: Outcome


Event = Union[
    AgentJoined, AgentLost, PortBound, RankExited, Progressed, RanksHung, StacksWritten, NodeStopped,
    StoreLost, LauncherLost, PhaseTimedOut, NoticeDue, TimeIsUp, WarningCame, CancelAsked, Hopeless,
]  # fmt: skip


# Actions


@dataclass(frozen=True)
class StartAgent:
    node: int


@dataclass(frozen=True)
class EndAgent:
    """Kill an agent that no longer answers."""

    node: int


@dataclass(frozen=True)
class BindPort:
    node: int
    generation: int


@dataclass(frozen=True)
class StartRanks:
    generation: int
    members: tuple[int, ...]
    address: str
    port: int
    store_is_up: bool
    launcher_port: int = 0


@dataclass(frozen=True)
class GiveNotice:
    members: tuple[int, ...]


@dataclass(frozen=True)
class DumpStacks:
    generation: int
    members: tuple[int, ...]


@dataclass(frozen=True)
class StopRanks:
    generation: int
    members: tuple[int, ...]
    grace: float


@dataclass(frozen=True)
class ReportFault:
    generation: int
    fault: Fault
    restarts_left: int


@dataclass(frozen=True)
class Finish:
    outcome: Outcome


Action = Union[
    StartAgent, EndAgent, BindPort, StartRanks, GiveNotice, DumpStacks, StopRanks, ReportFault, Finish
]  # fmt: skip
Decision = tuple[State, tuple[Action, ...]]
