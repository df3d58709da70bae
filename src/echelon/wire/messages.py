"""The messages of the channel: orders from the supervisor to agents, and reports of agents.

The reports are the events that `decide` handles. The orders are actions that it returns.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Union, cast, get_args

from echelon.codec import decode_named, encode_named
from echelon.diagnosis.death_evidence import DeathEvidence
from echelon.diagnosis.evidence import RankEvidence
from echelon.diagnosis.pace import Pace
from echelon.job import Job
from echelon.placement import Placement
from echelon.record import record
from echelon.wire.reports import ErrorRecord, FatalNodeProblem, LauncherFailed, PortBound, Started, StoreDied


@record
class SupervisorEnviron:
    """The supervisor's environment variables for an agent that was started without them. The first message."""

    variables: Mapping[str, str]


@record
class BindPort:
    """Hold a port for the rendezvous of this generation."""

    generation: int


@record
class Start:
    placement: Placement
    hosts: tuple[str, ...] = ()
    """Host names of the generation's nodes by node rank."""
    folders: tuple[str, ...] = ()
    """Node folders in the same order. Only for a launcher that starts the ranks of all nodes."""


@record
class CheckNode:
    """Check this node before any rank starts. The first node gets port 0: it opens a port and reports it."""

    rank: int
    size: int
    address: str
    port: int
    key: str
    """Authenticates the nodes to each other."""


@record
class Notice:
    """Give the ranks notice: the attempt ends soon."""

    seconds_left: float


@record
class CollectEvidence:
    """Collect what each rank is doing: flight recorder, stacks, process state."""

    generation: int


@record
class Stop:
    generation: int
    grace: float


@record
class Ping:
    """The supervisor's heartbeat. Without it for the heartbeat timeout, an agent is cut off and stops its ranks."""


@record
class Shutdown:
    pass


@record
class Hello:
    node: int
    host: str
    address: str
    pid: int
    node_dir: str


@record
class MeetingOpened:
    """The first node's check listens on this port for those of the others."""

    port: int


@record
class NodeChecked:
    """The check of this node has ended. `output` has its results, one JSON object per line."""

    output: str


@record
class Exit:
    """How a rank ended. `code` is negative for a signal, as in subprocess."""

    rank: int
    host: str
    code: int
    time: float
    lines: int = 0
    step: int | None = None
    committed: int | None = None
    restored: int | None = None
    """The step of the checkpoint from which it started; None if it loaded none."""
    restored_name: str = ""
    error: ErrorRecord | None = None
    evidence: DeathEvidence | None = None
    """Facts of the node about the death, apart from `error`. None for code 0 and for a rank that echelon stopped."""


@record
class Exited:
    generation: int
    exit: Exit


@record
class EvidenceCollected:
    generation: int
    ranks: tuple[RankEvidence, ...] = ()


@record
class Stopped:
    generation: int


@record
class Sample:
    """The progress of a rank in this generation."""

    rank: int
    lines: int
    cpu_seconds: float
    stopped: bool
    step: int | None = None
    committed: int | None = None
    handles_notice: bool = False
    """After a notice: whether the rank handles SIGUSR1 or reads the notice flag."""
    waits_in_collective: bool = False
    """Looked at only if the step has not changed for a while or, without steps, the output."""
    collective_seconds: float = 0.0
    """How long at least it has waited in the same collective."""
    waits_on_disk: bool = False
    """Whether a thread of the rank is in state D. Looked at together with `waits_in_collective`."""
    group_timeout: float | None = None
    """The timeout of the rank's process group in seconds, from the flight recorder."""
    pace: Pace | None = None
    """New since the last sample."""


@record
class Heartbeat:
    generation: int
    samples: tuple[Sample, ...] = ()


@record
class Preempted:
    """This node received SIGTERM, probably because the scheduler preempts the job. Ranks receive it too."""


@record
class Remark:
    """A line for the user."""

    text: str


@record
class FilePiece:
    """A piece of a file of the attempt, from a node that does not see the run directory."""

    file: str
    data: str
    """Base64."""
    whole: bool = False
    """The data is the whole file and replaces it."""
    index: str = ""
    """For output of a rank: the node's index that lists the piece. Empty data ends the rank's output."""
    width: int = 1
    """Digits of a rank number in the index."""


SupervisorMessage = Union[SupervisorEnviron, CheckNode, BindPort, Start, Notice, CollectEvidence, Stop, Ping, Shutdown]
AgentMessage = Union[
    Hello,
    MeetingOpened,
    NodeChecked,
    PortBound,
    Started,
    Exited,
    StoreDied,
    LauncherFailed,
    EvidenceCollected,
    Stopped,
    Heartbeat,
    FatalNodeProblem,
    Preempted,
    Remark,
    FilePiece,
]
Message = Union[SupervisorMessage, AgentMessage]
KINDS: dict[str, type[Message]] = {
    kind.__name__: kind for kind in (*get_args(SupervisorMessage), *get_args(AgentMessage))
}


def to_wire(message: Message) -> dict[str, Any]:
    return encode_named(message)


def from_wire(data: dict[str, Any]) -> Message:
    """Raises ValueError if the data is not a message."""
    return decode_named(KINDS, data)


def parse_agent_message(data: dict[str, Any]) -> AgentMessage:
    """A message of an agent. Raises ValueError for any other data."""
    message = from_wire(data)
    if isinstance(message, get_args(SupervisorMessage)):
        raise ValueError(f"{type(message).__name__} is not a message of an agent")
    return cast(AgentMessage, message)


@record
class AgentSetup:
    """The job and the place of an agent on an ssh host. Sent over the connection, so that no command line shows it."""

    job: Job
    run_path: str
    """The path on the supervisor's machine. Also valid on the agent's machine if `shared`."""
    shared: bool
    attempt: int
    node: int
    host: str
    peers: tuple[str, ...]
    """Addresses of the other hosts, then their names."""
    environ: Mapping[str, str]
