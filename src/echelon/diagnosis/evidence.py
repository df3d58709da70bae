"""What the agents collect about the ranks of a hang. Plain values that `echelon.codec` converts to JSON and back."""

from __future__ import annotations

from echelon.record import record


@record
class Frame:
    file: str
    line: int
    """0 if unknown."""
    function: str
    call: str = ""
    """What the source line calls, such as `time.sleep`. Known only for the innermost frame of the user's code."""


@record
class ThreadStack:
    frames: tuple[Frame, ...] = ()
    """Innermost first. Empty if the thread runs no Python code."""
    is_main: bool = False
    is_truncated: bool = False
    """The outermost frames are missing."""


@record
class ProcessState:
    """The kernel's view of the main thread of a process."""

    pid: int
    state: str = ""
    """The letter of /proc/PID/stat: R, S, D, T, t, Z. Empty if the process has ended."""
    wait_channel: str = ""
    """The kernel function in which it waits."""
    system_call: str = ""
    path: str = ""
    """The file that the system call works on."""
    command: str = ""
    name: str = ""
    """The kernel's name of the process. torch names DataLoader workers `pt_data_worker`."""


@record
class Child:
    """A child process of a rank, such as a DataLoader worker."""

    process: ProcessState
    threads: tuple[ThreadStack, ...] = ()


@record
class Collective:
    """One entry of the flight recorder."""

    group: str
    sequence: int
    """The number within the group. Equal on all ranks for the same collective."""
    operation: str
    """Without the backend: `all_reduce`. For point-to-point operations also the ranks: `recv 1<-0`."""
    sizes: tuple[tuple[int, ...], ...] = ()
    """The shapes that must be equal on all ranks: of the outputs for scatter and reduce_scatter, else of the inputs."""
    dtypes: tuple[str, ...] = ()
    byte_count: int = 0
    is_p2p: bool = False
    pending: bool = False


@record
class GroupStatus:
    """How far a rank is in a process group."""

    group: str
    """The name that all ranks have for the group."""
    description: str = ""
    last_enqueued: int = 0
    last_completed: int = 0
    ranks: tuple[int, ...] = ()
    """The members. Empty if unknown: gloo does not record them."""


@record
class RankEvidence:
    rank: int
    host: str = ""
    process: ProcessState | None = None
    children: tuple[Child, ...] = ()
    threads: tuple[ThreadStack, ...] = ()
    groups: tuple[GroupStatus, ...] = ()
    collectives: tuple[Collective, ...] = ()
    """The newest of each group, oldest first."""
    has_flight: bool = False
    """The flight recorder answered. Without it, empty groups mean nothing."""
    idle_seconds: float = 0.0
    step: int | None = None
