"""The state of the supervisor, its own events, and the actions that `decide` returns."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from echelon.diagnosis.evidence import RankEvidence
from echelon.diagnosis.history import NO_HISTORY, History
from echelon.record import record
from echelon.wire.faults import Fault, Loss
from echelon.wire.messages import (
    EvidenceCollected,
    Exit,
    Exited,
    Heartbeat,
    Hello,
    MeetingOpened,
    NodeChecked,
    Preempted,
    Stopped,
    SupervisorMessage,
)
from echelon.wire.reports import FatalNodeProblem, LauncherFailed, PortBound, StoreDied

if TYPE_CHECKING:
    from echelon.doctor.model import Plan


class Phase(enum.Enum):
    GATHERING = "waiting for agents"
    CHECKING = "checking the nodes"
    BINDING = "binding the rendezvous port"
    RUNNING = "running"
    DRAINING = "waiting for the ranks that have not left yet"
    COLLECTING_EVIDENCE = "collecting evidence of a hang"
    BACKING_OFF = "waiting before the next start"
    STOPPING = "stopping the ranks"
    ENDED = "ended"


class NodeState(enum.Enum):
    STARTING = "starting"
    READY = "ready"
    LOST = "lost"


class Ending(enum.Enum):
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    REQUEUED = "requeued"


@record
class Outcome:
    ending: Ending
    exit_code: int
    reason: str
    fault: Fault | None = None
    hint: str = ""
    lost_hosts: tuple[str, ...] = ()
    """Hosts that the next attempt should avoid."""
    uses_requeue: bool = True
    """Whether a requeue uses up one of the job's requeues. False if the scheduler or a lost connection caused it."""
    step: int | None = None
    saved_step: int | None = None
    """The last trained step and the last saved step. None if the script does not report them."""


@record
class Rules:
    """The parts of the job that decisions depend on."""

    nodes: int
    procs_per_node: int = 1
    min_nodes: int
    spare_nodes: int = 0
    restarts: int = 0
    requeues: int = 0
    requeues_used: int = 0
    grace: float = 5.0
    join_timeout: float = 120.0
    preflight: Plan | None = None
    """What to check on the nodes before the first generation; None for nothing."""
    lost_host_is_reusable: bool = True
    """Whether an agent can be started again on a lost host: true for rehearsed nodes, false for real ones."""


@record
class State:
    rules: Rules
    phase: Phase = Phase.GATHERING
    generation: int = 0
    restarts_used: int = 0
    nodes: Mapping[int, NodeState] = field(default_factory=dict)
    losses: Mapping[int, Loss] = field(default_factory=dict)
    hosts: Mapping[int, str] = field(default_factory=dict)
    """Host names by node."""
    addresses: Mapping[int, str] = field(default_factory=dict)
    """Addresses of the connected agents by node."""
    reasons: Mapping[int, Fault] = field(default_factory=dict)
    """Why a step ended or a host was lost, by node. Only if more is known than the kind of loss."""
    checking: tuple[int, ...] = ()
    """The nodes of the preflight check. The first one coordinates it."""
    checked: bool = False
    """Whether the preflight check has begun in this attempt."""
    meeting: bool = False
    """Whether the first of these nodes waits for the others."""
    reports: Mapping[int, str] = field(default_factory=dict)
    """What the preflight check of each node printed."""
    members: tuple[int, ...] = ()
    """The nodes of this generation, in the order of their node rank."""
    exits: Mapping[int, Exit] = field(default_factory=dict)
    pending: frozenset[int] = frozenset()
    """Members that have not yet answered Stop or CollectEvidence, or nodes that are being checked."""
    hang: RanksHung | None = None
    """The hang for which evidence is collected."""
    evidence: tuple[RankEvidence, ...] = ()
    fault: Fault | None = None
    outcome: Outcome | None = None
    skip_grace: bool = False
    """Cancelled twice: stop without a grace period."""
    notice: bool = False
    preempted: bool = False
    """The scheduler is ending the job before its time limit."""
    step: int | None = None
    committed: int | None = None
    """The highest step of this generation that was reported, and that was saved."""
    first_step: int | None = None
    """The first step of this generation that was seen. A script may restore itself at any step."""
    active: bool = False
    """Whether any rank of this generation wrote a line or used CPU time."""
    incomplete: bool = False
    """Whether this generation was ended because some of its ranks had not started."""
    best_step: int | None = None
    best_committed: int | None = None
    idle_generations: int = 0
    history: History = NO_HISTORY
    """The failures of all attempts, this one included."""
    delay: float = 0.0
    """Seconds of the phase BACKING_OFF."""

    def host(self, node: int) -> str:
        return self.hosts.get(node, f"node {node}")


# Events: messages of agents, and events of the supervisor itself


@dataclass(frozen=True)
class AgentLost:
    node: int
    loss: Loss
    why: Fault | None = None
    """The reason, if more is known than the kind of loss."""


@dataclass(frozen=True)
class CutOff:
    """Neither these nodes nor the scheduler answer the supervisor on this host."""

    host: str
    lost: tuple[int, ...]
    problem: str
    """Why the scheduler did not answer."""


@dataclass(frozen=True)
class RanksActive:
    """A rank of the generation wrote a line or used CPU time."""

    generation: int


@dataclass(frozen=True)
class RanksHung:
    generation: int
    sentence: str
    incomplete: bool = False
    """Some ranks have not started."""
    idle_seconds: float = 0.0
    idle_by_rank: Mapping[int, float] = field(default_factory=dict)
    """Seconds since each living rank made progress."""
    finished: tuple[int, ...] = ()
    """Ranks that exited with code 0."""


@dataclass(frozen=True)
class PhaseTimedOut:
    phase: Phase


@dataclass(frozen=True)
class NoticeDue:
    pass


@dataclass(frozen=True)
class TimeLimitReached:
    pass


@dataclass(frozen=True)
class CancelRequested:
    signum: int


AgentEvent = (
    Hello
    | MeetingOpened
    | NodeChecked
    | PortBound
    | Exited
    | StoreDied
    | LauncherFailed
    | EvidenceCollected
    | Stopped
    | Heartbeat
    | FatalNodeProblem
    | Preempted
)
SupervisorEvent = (
    AgentLost | CutOff | RanksActive | RanksHung | PhaseTimedOut | NoticeDue | TimeLimitReached | CancelRequested
)
Event = AgentEvent | SupervisorEvent


# Actions: messages to agents, and actions of the supervisor itself


@dataclass(frozen=True)
class StartAgent:
    node: int


@dataclass(frozen=True)
class EndAgent:
    """End the agent of a lost node."""

    node: int


@dataclass(frozen=True)
class Send:
    """Send a message to the agents of these nodes."""

    nodes: tuple[int, ...]
    message: SupervisorMessage


@dataclass(frozen=True)
class CheckNodes:
    """Start the preflight check on `nodes`. The check of the first of `order` listens on the address and port."""

    nodes: tuple[int, ...]
    order: tuple[int, ...]
    address: str
    port: int


@dataclass(frozen=True)
class Warn:
    """A sentence for the user."""

    text: str


@dataclass(frozen=True)
class StartRanks:
    """Start the ranks of every member. They rendezvous at `address`, on the ports in `bound`."""

    members: tuple[int, ...]
    address: str
    bound: PortBound
    rejected_checkpoint: str = ""


@dataclass(frozen=True)
class GiveNotice:
    """Send a Notice with the seconds that are left when it is sent."""

    members: tuple[int, ...]


@dataclass(frozen=True)
class ReportFault:
    generation: int
    fault: Fault
    restarts_left: int
    step: int | None = None
    """The highest step that the generation reported."""


@dataclass(frozen=True)
class Finish:
    outcome: Outcome


Action = StartAgent | EndAgent | Send | CheckNodes | Warn | StartRanks | GiveNotice | ReportFault | Finish
Decision = tuple[State, tuple[Action, ...]]
