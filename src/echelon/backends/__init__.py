"""Backends provide nodes. This module has the class that every backend implements, and the registry of their names.

A backend has two halves. The control half runs on the user's machine. `render` is pure. Only `submit`, `query` and
`cancel` have effects outside the process. The node half runs inside the job. Both sides import the module of a
backend, and the command line needs only its facts. So the module imports little at the top. Its methods import the
half that they need.
"""

from __future__ import annotations

import abc
import importlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from echelon.errors import ConfigError
from echelon.record import record

if TYPE_CHECKING:
    from echelon.attempt_dir import AttemptDir
    from echelon.backends.hosts import Hosts
    from echelon.job import Job
    from echelon.run_dir import RunDir
    from echelon.states import JobStatus

REGISTRY = {
    "local": "echelon.backends.local",
    "allocation": "echelon.backends.allocation",
    "slurm": "echelon.backends.slurm",
    "pbs": "echelon.backends.pbs",
    "ssh": "echelon.backends.ssh",
}
"""The module of each backend. `BACKEND` in the module is the instance. Detection uses this order, with DEFAULT last.
A module from outside this package must be a top-level module. It is sent with the job."""
DEFAULT = "local"
"""The backend that needs only this machine."""


class Settings(Protocol):
    """The settings of a job. Some may not be given."""

    def get(self, key: str) -> Any: ...

    def asked(self, key: str) -> Any:
        """The value that was given; None if only the default applies."""

    def origin(self, key: str) -> str: ...


@record
class DerivedValue:
    """A value that the backend found for a setting that was not given, with its source."""

    value: Any
    origin: str


@record
class Resolution:
    """The result of `resolve`: the values that the backend derives from the settings."""

    gpus_per_node: int = 0
    values: Mapping[str, DerivedValue] = field(default_factory=dict)
    hosts: tuple[str, ...] = ()
    """The names of the nodes, if the settings list them."""
    uses_python_of_hosts: bool = False
    """The ranks use the Python of the hosts, so this machine does not search for one."""


@record
class NativeOption:
    """The setting that passes other options to the scheduler unchanged. Its key is the backend's name."""

    help: str
    name_pattern: str
    """A regular expression that matches valid option names."""
    hint: str
    """The hint in the error about an invalid name."""


class EarlyExit(NamedTuple):
    """Why a job that has just started does not continue its run, and its exit code."""

    reason: str
    exit_code: int


class Backend(abc.ABC):
    # Facts

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """The value of --on."""

    @property
    @abc.abstractmethod
    def label(self) -> str:
        """The name in messages."""

    @property
    @abc.abstractmethod
    def runs_script_here(self) -> bool:
        """The job script runs on this machine, in its environment."""

    rehearses_nodes: bool = False
    """The nodes are processes on this machine, so the network between them is the loopback device."""
    shares_file_system: bool = True
    """The nodes see the file system of this machine."""
    detects_gpus: bool = False
    """The backend detects the GPUs of its nodes if none are requested."""
    supported_settings: frozenset[str] = frozenset()
    """Keys of the settings that this backend supports and some other backends do not."""
    native_option: NativeOption | None = None
    job_id_variable: str = ""
    """The variable that holds the job id in processes of a job of this backend."""
    array_index_variable: str = ""
    """The variable that holds the index in an element of an array. Required if `supported_settings` has "array"."""
    may_use_srun: bool = False
    """The jobs can be Slurm jobs, so the launcher srun and the environment pyxis may work."""
    mpirun_reaches_nodes: bool = True
    """mpirun on the first node can start processes on the other nodes."""

    def supports_setting(self, key: str) -> bool:
        """Whether the backend supports a setting that only some backends support."""
        return key in self.supported_settings or (self.native_option is not None and key == self.name)

    def uses_srun(self, environ: Mapping[str, str]) -> bool:  # noqa: ARG002  some backends read it
        """Whether srun starts tasks in the jobs. `environ` comes from the job or from a shell inside an allocation."""
        return self.may_use_srun

    # Control half

    def detect(self, environ: Mapping[str, str], *, use_allocation: bool) -> str | None:  # noqa: ARG002
        """Why this backend is chosen if none is named; None if it is not.

        `use_allocation` allows the nodes of the surrounding job.
        """
        return None

    @abc.abstractmethod
    def resolve(self, settings: Settings, environ: Mapping[str, str]) -> Resolution:
        """Derives the values that were not given. Raises EchelonError for settings that cannot be met."""

    @abc.abstractmethod
    def submission_summary(self, job: Job, native_id: str) -> str:
        """A few words on the location of a job that was just submitted; empty if they add nothing."""

    @abc.abstractmethod
    def render(self, job: Job, run_dir: RunDir) -> str:
        """The exact job script. Pure."""

    def plain_script_lines(self, job: Job, environ: Mapping[str, str]) -> Iterable[str] | None:  # noqa: ARG002
        """The lines of `render --plain`; None if this backend has no plain script. Pure."""
        return None

    @abc.abstractmethod
    def submit(self, run_dir: RunDir, environ: Mapping[str, str], other_runs: Sequence[RunDir] = ()) -> str:
        """Submits the job script and returns the backend's id of the job. `other_runs` are the rest of an array."""

    def check_request(self, job: Job, script: str, environ: Mapping[str, str]) -> str | None:  # noqa: ARG002
        """Asks the scheduler whether it answers and would accept the job. Submits nothing.

        Returns its answer; None if the backend has no scheduler. Raises SchedulerError.
        """
        return None

    def element_id(self, native_id: str, index: int) -> str:
        """The id of one element of an array. Required if `supported_settings` has "array"."""
        raise NotImplementedError(f"{self.label} has no arrays: {native_id}, {index}")

    @abc.abstractmethod
    def query(self, run_dirs: Sequence[RunDir]) -> list[JobStatus | None]:
        """The status of each run, from one query for all; None for an unknown run."""

    @abc.abstractmethod
    def query_interval(self, seconds: float) -> float:
        """Seconds to wait before the next query. `seconds` is the time since the last change."""

    @abc.abstractmethod
    def cancel(self, run_dir: RunDir, *, force: bool = False) -> bool:
        """Requests the end of the run, with `force` at once. False if the run had already ended."""

    # Node half

    @abc.abstractmethod
    def hosts(self, job: Job, run_dir: RunDir, environ: Mapping[str, str]) -> Hosts:
        """The hosts of one attempt. Raises EchelonError if `environ` is not from a job of this backend."""

    @abc.abstractmethod
    def reason_to_exit(self, run_dir: RunDir, environ: Mapping[str, str]) -> EarlyExit | None:
        """Called once by a supervisor that has just started and holds the lease. None if it continues the run."""

    @abc.abstractmethod
    def requeue_without_supervisor(self, job: Job, attempt: AttemptDir, environ: Mapping[str, str]) -> None:
        """Requeues the run if only agents can. Called by an agent that has lost its supervisor and ended its ranks."""


def backend(name: str) -> Backend:
    """Raises ConfigError for an unknown name, such as one from another version of echelon."""
    if name not in REGISTRY:
        known = ", ".join(REGISTRY)
        raise ConfigError(
            f"unknown scheduler {name!r}", why=f"this version of echelon has {known}", hint="update echelon"
        )
    found: Backend = importlib.import_module(REGISTRY[name]).BACKEND
    return found


def all_backends() -> list[Backend]:
    """All backends. The backends that submit to a scheduler come first."""
    return sorted(map(backend, REGISTRY), key=lambda one: one.runs_script_here)


def backends_supporting(key: str) -> list[str]:
    """The names of the backends that support a setting."""
    return [one.name for one in all_backends() if one.supports_setting(key)]


def detect_backend(environ: Mapping[str, str], *, use_allocation: bool) -> tuple[str, str]:
    """The backend that is chosen if none is named, and the reason."""
    for name in REGISTRY:
        reason = backend(name).detect(environ, use_allocation=use_allocation) if name != DEFAULT else None
        if reason is not None:
            return name, reason
    return DEFAULT, backend(DEFAULT).detect(environ, use_allocation=use_allocation) or "default"


def job_id_variables() -> tuple[str, ...]:
    """The job id variables of all backends."""
    return tuple(one.job_id_variable for one in all_backends() if one.job_id_variable)
