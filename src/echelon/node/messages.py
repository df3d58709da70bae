"""The messages of the channel: downward from the supervisor what to do, upward from the agents what happened."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Union, cast, get_args

from echelon.codec import decode, encode
from echelon.plan import Placement


@dataclass(frozen=True, kw_only=True)
class Environment:
    """The supervisor's variables, first of all, for an agent that was started without them."""

    variables: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Bind:
    """Hold a port for the rendezvous of this generation."""

    generation: int


@dataclass(frozen=True, kw_only=True)
class Start:
    placement: Placement
    hosts: tuple[str, ...] = ()
    """Names by node rank, for a launcher that starts the ranks of all nodes."""
    folders: tuple[str, ...] = ()
    """The nodes' own folders, in the same order."""


@dataclass(frozen=True, kw_only=True)
class Notice:
    """Tell the ranks: stop soon."""

    seconds_left: float


@dataclass(frozen=True, kw_only=True)
class SaveStacks:
    generation: int


@dataclass(frozen=True, kw_only=True)
class Stop:
    generation: int
    grace: float


@dataclass(frozen=True, kw_only=True)
class Ping:
    """Still here: an agent that hears nothing for the heartbeat's length is cut off, and stops its ranks."""


@dataclass(frozen=True, kw_only=True)
class Leave:
    pass


@dataclass(frozen=True, kw_only=True)
class Hello:
    node: int
    host: str
    address: str
    pid: int
    node_dir: str


@dataclass(frozen=True, kw_only=True)
class Bound:
    generation: int
    port: int
    store_is_up: bool
    launcher_port: int = 0
    """One more, where the launcher's own processes need one to meet at."""


@dataclass(frozen=True, kw_only=True)
class Started:
    generation: int
    rank: int
    pid: int


@dataclass(frozen=True, kw_only=True)
class ErrorRecord:
    """An uncaught exception, as the rank left it."""

    time: float
    type: str
    message: str
    traceback: str


@dataclass(frozen=True, kw_only=True)
class Exit:
    """How a rank ended. `code` is negative for a signal, as in subprocess."""

    rank: int
    host: str
    code: int
    time: float
    lines: int = 0
    step: int | None = None
    committed: int | None = None
    error: ErrorRecord | None = None


@dataclass(frozen=True, kw_only=True)
class Exited:
    generation: int
    exit: Exit


@dataclass(frozen=True, kw_only=True)
class StoreDied:
    """The rendezvous store has gone while the ranks may still need it."""

    generation: int


@dataclass(frozen=True, kw_only=True)
class LauncherFailed:
    """What was to start the ranks, and to stay with them, did not; told as a sentence."""

    generation: int
    sentence: str


@dataclass(frozen=True, kw_only=True)
class StacksSaved:
    generation: int


@dataclass(frozen=True, kw_only=True)
class Stopped:
    generation: int


@dataclass(frozen=True, kw_only=True)
class Sample:
    """What a rank has done so far in this generation."""

    rank: int
    lines: int
    cpu_seconds: float
    stopped: bool
    step: int | None = None
    committed: int | None = None


@dataclass(frozen=True, kw_only=True)
class Pulse:
    generation: int
    samples: tuple[Sample, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Trouble:
    """Something about this node that no restart will mend, in the four parts of an error."""

    what: str
    why: str
    hint: str


@dataclass(frozen=True, kw_only=True)
class Warned:
    """Somebody told this node to end: its scheduler, most likely, which will say when if it is asked."""


@dataclass(frozen=True, kw_only=True)
class Remark:
    """A line for the person who watches."""

    text: str


@dataclass(frozen=True, kw_only=True)
class Written:
    """A piece of a file of the attempt, from a node that does not see the run directory."""

    file: str
    data: str
    """In base64."""
    whole: bool = False
    """The file itself, and not one more piece of it."""


Downward = Union[Environment, Bind, Start, Notice, SaveStacks, Stop, Ping, Leave]
Upward = Union[
    Hello, Bound, Started, Exited, StoreDied, LauncherFailed, StacksSaved, Stopped, Pulse, Trouble, Warned, Remark,
    Written,
]  # fmt: skip
Message = Union[Downward, Upward]

KINDS: dict[str, type[Message]] = {kind.__name__: kind for kind in (*get_args(Downward), *get_args(Upward))}


def to_wire(message: Message) -> dict[str, Any]:
    return {"is": type(message).__name__, **encode(message)}


def from_wire(data: dict[str, Any]) -> Message:
    """Raises ValueError for what is no message of ours."""
    fields = dict(data)
    kind = KINDS.get(str(fields.pop("is", None)))
    if kind is None:
        raise ValueError(f"unknown message {data.get('is')!r}")
    return decode(kind, fields)


def upward(data: dict[str, Any]) -> Upward:
    """What an agent may say; raises ValueError for anything else."""
    message = from_wire(data)
    if isinstance(message, get_args(Downward)):
        raise ValueError(f"an agent does not say {type(message).__name__}")
    return cast(Upward, message)
