"""What the user asked for, with no machine in it: script, resources, policies. Round-trips to run.json."""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

SECRET_WORDS = ("TOKEN", "KEY", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL")
SECRET_ENDINGS = ("_PWD", "_PASS", "_AUTH", "_DSN", "PASSPHRASE")
NOT_SECRET = frozenset({"TOKENIZERS_PARALLELISM"})
MASK = "********"
ADDRESS_LOGIN = r"(://[^/\s:@]*:)[^/\s@]+@"


class ScriptKind(str, enum.Enum):
    FILE = "file"  # python train.py
    MODULE = "module"  # python -m package.module
    COMMAND = "command"  # anything else, run as it is


@dataclass(frozen=True, kw_only=True)
class Script:
    kind: ScriptKind
    target: str
    args: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Resources:
    nodes: int = 1
    min_nodes: int | None = None
    spare_nodes: int = 0
    procs_per_node: int = 1
    gpus_per_node: int = 0
    cpus: int | None = None
    """CPUs of each node that the run may use."""
    memory: str | None = None
    """Of each node, as `64G`; `0` is all of it."""
    time_limit: timedelta | None = None

    @property
    def smallest(self) -> int:
        """How few nodes the run may shrink to."""
        return self.nodes if self.min_nodes is None else self.min_nodes

    @property
    def all_nodes(self) -> int:
        return self.nodes + self.spare_nodes


@dataclass(frozen=True, kw_only=True)
class Policies:
    restarts: int = 0
    requeues: int = 0
    notice: timedelta = timedelta(seconds=60)
    """How long before the time limit the ranks are told to stop soon."""
    hang_timeout: timedelta | None = timedelta(minutes=30)
    grace: timedelta = timedelta(seconds=5)
    """Between TERM and KILL."""
    heartbeat: timedelta = timedelta(seconds=15)
    """How long an agent may be silent before its node counts as lost."""
    join_timeout: timedelta = timedelta(seconds=120)
    """How long every agent has to arrive."""


@dataclass(frozen=True, kw_only=True)
class Booking:
    """What only a batch scheduler wants to know: where in its queue the job stands, and on whose account."""

    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    constraint: str | None = None
    reservation: str | None = None
    nodelist: str | None = None
    exclude: str | None = None
    array: str | None = None
    """Indices, as `0-9%2`: one run for each. In a run's own job, its one index."""
    dependency: str | None = None
    mail: str | None = None
    mail_type: str | None = None
    comment: str | None = None
    licenses: str | None = None
    gpu_type: str | None = None
    gres: bool = False
    """Ask for GPUs by `--gres`, which some sites want."""
    pbs_dialect: str = "chunks"
    """How PBS is asked for nodes: by chunks, or by totals."""
    native: Mapping[str, str] = field(default_factory=dict)
    """Options of the scheduler's own, as it spells them; an empty value is an option without one."""


@dataclass(frozen=True, kw_only=True)
class Launching:
    """What only some launchers want to know."""

    rdzv: str = "static"
    """How torchrun's agents meet: at the address and port that we decided, or by themselves."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Options of the launcher's own, as it spells them; an empty value is an option without one."""


@dataclass(frozen=True, kw_only=True)
class Enclosure:
    """What the ranks run in, beyond its kind."""

    modules: tuple[str, ...] = ()
    """Loaded on each node, in this order, before anything else."""
    setup: tuple[str, ...] = ()
    """Lines of bash for each node, verbatim, after the modules."""
    venv: str | None = None
    conda: str | None = None
    """A name or the path of an environment."""
    image: str | None = None
    mounts: tuple[str, ...] = ()
    """`SRC:DST` or `SRC:DST:ro`."""
    workdir: str | None = None
    """The folder inside of the container that the ranks start in."""
    container_name: str | None = None
    writable: bool = False
    root: bool = False
    prefix: tuple[str, ...] = ()
    """The words that put a command into a container of any other kind."""


@dataclass(frozen=True, kw_only=True)
class Job:
    name: str
    script: Script
    cwd: str
    python: str
    resources: Resources = Resources()
    policies: Policies = Policies()
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables for the ranks. Those named in `secret_env` are not among them."""
    secret_env: tuple[str, ...] = ()
    """Names whose values travel only through the process environment, never through a file."""
    scheduler: str = "local"
    booking: Booking = Booking()
    launcher: str = "ranks"
    launching: Launching = Launching()
    environment: str = "bare"
    enclosure: Enclosure = Enclosure()
    host_python: str | None = None
    """The Python that the supervisor runs on, outside of the environment, where it is not that of the ranks."""
    cold: bool = False
    ports: str | None = None
    interface: str | None = None
    """The network that the nodes meet on, where it is not to be found by routes."""
    hosts: tuple[str, ...] = ()
    """By name, spares last, where no scheduler chooses them."""
    snapshot: bool = False
    """The ranks run from a copy of the project, made when the run was started."""
    snapshot_max: str = "50M"
    """Larger files are not in it."""
    project: str | None = None
    """The folder that the snapshot is a copy of."""
    code: str | None = None
    """Where the ranks find it, in a job that is already theirs: then `cwd` is in it."""

    @property
    def warm(self) -> bool:
        return self.launcher == "ranks" and not self.cold and self.script.kind is not ScriptKind.COMMAND

    @property
    def outer_python(self) -> str:
        return self.host_python or self.python

    @property
    def inner_cwd(self) -> str:
        """Where ranks start, as they see it."""
        return self.enclosure.workdir or self.cwd

    @property
    def is_enclosed(self) -> bool:
        """Whether something must be done on each node before our command can run there."""
        return self.environment != "bare" or bool(self.enclosure.modules or self.enclosure.setup)


def looks_secret(name: str) -> bool:
    upper = name.upper()
    return upper not in NOT_SECRET and (upper.endswith(SECRET_ENDINGS) or any(word in upper for word in SECRET_WORDS))


def masked(environ: Mapping[str, str]) -> dict[str, str]:
    """What may be written down: secrets by name are hidden whole, passwords in addresses by themselves."""
    return {
        name: MASK if looks_secret(name) else re.sub(ADDRESS_LOGIN, rf"\1{MASK}@", value)
        for name, value in environ.items()
    }
