"""The job: script, resources, environment, launcher and policies, independent of any machine. Stored in run.json."""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from dataclasses import field
from datetime import timedelta

from echelon.record import record

SECRET_WORDS = ("TOKEN", "KEY", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL")
SECRET_ENDINGS = ("_PWD", "_PASS", "_AUTH", "_DSN", "PASSPHRASE")
NOT_SECRET = frozenset({"TOKENIZERS_PARALLELISM"})
MASK = "********"
LOGIN_IN_URL = r"(://[^/\s:@]*:)[^/\s@]+@"


class ScriptKind(str, enum.Enum):
    FILE = "file"  # python train.py
    MODULE = "module"  # python -m package.module
    COMMAND = "command"  # any other program, run unchanged


@record
class Script:
    kind: ScriptKind
    target: str
    args: tuple[str, ...] = ()


@record
class Resources:
    nodes: int = 1
    min_nodes: int | None = None
    spare_nodes: int = 0
    procs_per_node: int = 1
    gpus_per_node: int = 0
    cpus: int | None = None
    """CPUs per node."""
    memory: str | None = None
    """Per node, such as `64G`. `0` means all of it."""
    time_limit: timedelta | None = None

    @property
    def smallest(self) -> int:
        """The smallest number of nodes that the run may shrink to."""
        return self.nodes if self.min_nodes is None else self.min_nodes

    @property
    def all_nodes(self) -> int:
        return self.nodes + self.spare_nodes


@record
class Policies:
    restarts: int = 0
    requeues: int = 0
    notice: timedelta = timedelta(seconds=60)
    """The time between the notice and the time limit."""
    hang_timeout: timedelta | None = None
    """None learns it from the steps that the script reports. 0 detects no hangs."""
    grace: timedelta = timedelta(seconds=5)
    """The time between SIGTERM and SIGKILL."""
    heartbeat: timedelta = timedelta(seconds=15)
    """The time without a heartbeat after which a node counts as lost."""
    join_timeout: timedelta = timedelta(seconds=120)
    """The time in which every agent must connect."""
    preflight: bool = False
    """Check the nodes before the first generation, and leave out those that fail."""
    log_max: int = 2 << 30
    """Bytes of output to keep per rank and attempt; 0 keeps all."""


@record
class SchedulerOptions:
    """Options of batch schedulers: queue, account, placement and mail."""

    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    constraint: str | None = None
    reservation: str | None = None
    nodelist: str | None = None
    exclude: str | None = None
    array: str | None = None
    """Indices such as `0-9%2`, one run for each. In the job of one run, the index of that run."""
    dependency: str | None = None
    mail: str | None = None
    mail_type: str | None = None
    comment: str | None = None
    licenses: str | None = None
    gpu_type: str | None = None
    gres: bool = False
    """Request GPUs with `--gres`, which some sites require."""
    pbs_dialect: str = "chunks"
    """How nodes are requested from PBS: `chunks` or `totals`."""
    native: Mapping[str, str] = field(default_factory=dict)
    """Further options under the scheduler's own names. An empty value is an option without a value."""


@record
class LauncherOptions:
    """Options that only some launchers use."""

    rdzv: str = "static"
    """How torchrun's agents meet: `static` at the address and port from echelon, `c10d` by torch's own rendezvous."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Further options under the launcher's own names. An empty value is an option without a value."""


@record
class EnvironmentSpec:
    """Details of the environment. Its kind is `Job.environment`."""

    modules: tuple[str, ...] = ()
    """Loaded first on each node, in this order."""
    setup: tuple[str, ...] = ()
    """Lines of bash, run unchanged on each node after the modules are loaded."""
    venv: str | None = None
    conda: str | None = None
    """The name or path of a conda environment."""
    image: str | None = None
    mounts: tuple[str, ...] = ()
    """`SRC:DST` or `SRC:DST:ro`."""
    workdir: str | None = None
    """The working directory of the ranks inside of the container."""
    container_name: str | None = None
    writable: bool = False
    root: bool = False
    prefix: tuple[str, ...] = ()
    """The start of a command line that runs a command in any other kind of container."""


@record
class Job:
    name: str
    script: Script
    cwd: str
    python: str
    resources: Resources = Resources()
    policies: Policies = Policies()
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables for the ranks, without those named in `secret_env`."""
    secret_env: tuple[str, ...] = ()
    """Names of variables whose values are passed only in the process environ, never in a file."""
    scheduler: str
    booking: SchedulerOptions = SchedulerOptions()
    launcher: str = "ranks"
    launching: LauncherOptions = LauncherOptions()
    environment: str = "bare"
    enclosure: EnvironmentSpec = EnvironmentSpec()
    host_python: str | None = None
    """The Python of the supervisor, outside of the environment, if it differs from that of the ranks."""
    cold: bool = False
    ports: str | None = None
    interface: str | None = None
    """The network interface between nodes; without it, the routes decide."""
    hosts: tuple[str, ...] = ()
    """Host names, spares last, if no scheduler chooses them."""
    snapshot: bool = False
    """Run the ranks from a copy of the project, made at submission."""
    snapshot_max: str = "50M"
    """The snapshot omits larger files."""
    project: str | None = None
    """The folder that the snapshot copies."""
    code: str | None = None
    """The snapshot's folder as ranks see it, set on the nodes only. `cwd` is then inside of it."""

    @property
    def warm(self) -> bool:
        return self.launcher == "ranks" and not self.cold and self.script.kind is not ScriptKind.COMMAND

    @property
    def outer_python(self) -> str:
        return self.host_python or self.python

    @property
    def inner_cwd(self) -> str:
        """The working directory of the ranks, as a path inside of the environment."""
        return self.enclosure.workdir or self.cwd

    @property
    def is_enclosed(self) -> bool:
        """Whether each node must enter an environment, load modules or run setup lines before a command."""
        return self.environment != "bare" or bool(self.enclosure.modules or self.enclosure.setup)


def looks_secret(name: str) -> bool:
    upper = name.upper()
    return upper not in NOT_SECRET and (upper.endswith(SECRET_ENDINGS) or any(word in upper for word in SECRET_WORDS))


def mask_secrets(environ: Mapping[str, str]) -> dict[str, str]:
    """Variables that may be written to a file: secret values and passwords in URLs are masked."""
    return {
        name: MASK if looks_secret(name) else re.sub(LOGIN_IN_URL, rf"\1{MASK}@", value)
        for name, value in environ.items()
    }
