"""RunDir: the directory of a run, its files and its attempts."""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from echelon.attempt_dir import AttemptDir
from echelon.codec import decode, encode
from echelon.errors import ConfigError, EnvironmentProblem
from echelon.events import Kind, read_events
from echelon.job import Job
from echelon.untrusted import parse_json, read_regular


def runs_folder(environ: Mapping[str, str]) -> Path:
    """The folder that contains all runs."""
    return Path(environ.get("ECHELON_RUNS") or "runs").absolute()


RUN_ID = r".+-\d{8}-\d{6}-[0-9a-f]{4}(-\d+)?"
"""The form of `new_run_id`. Runs of an array have their index appended."""


def new_run_id(name: str, now: float | None = None) -> str:
    stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(now))
    return f"{name}-{stamp}-{os.urandom(2).hex()}"


class RunDir:
    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def run_id(self) -> str:
        return self.path.name

    @property
    def description(self) -> Path:
        return self.path / "run.json"

    @property
    def job_script(self) -> Path:
        return self.path / "job.sh"

    @property
    def next_script(self) -> Path:
        """For PBS: the script for later attempts of one run of an array. job.sh is the script of the whole array."""
        return self.path / "next.sh"

    @property
    def node_script(self) -> Path:
        """Runs a command inside of the environment, on each node. Exists only if the environment needs it."""
        return self.path / "node.sh"

    @property
    def job_output(self) -> Path:
        """Output of the supervisor and the agents."""
        return self.path / "job.out"

    @property
    def node_side(self) -> Path:
        return self.path / "echelon.pyz"

    @property
    def code(self) -> Path:
        """The snapshot of the project, if requested."""
        return self.path / "code"

    @property
    def code_diff(self) -> Path:
        """Changes in the snapshot since the commit in run.json."""
        return self.path / "code.diff"

    @property
    def code_archive(self) -> Path:
        """The snapshot as one file, for hosts that do not share this folder."""
        return self.path / "code.tar.gz"

    @property
    def native_id(self) -> Path:
        return self.path / "native_id"

    @property
    def lease(self) -> Path:
        return self.path / "lease"

    @property
    def resuming(self) -> Path:
        """Locked while `echelon resume` checks the run and submits its next attempt."""
        return self.path / "resuming"

    @property
    def cancel_mark(self) -> Path:
        """Exists after a user has cancelled the run. It distinguishes this from a requeue by the site."""
        return self.path / "cancel"

    @property
    def token(self) -> Path:
        """Authenticates the channel between supervisor and agents. Exists only while an attempt runs."""
        return self.path / "token"

    def new_task_pid(self, host: str) -> Path:
        """A file with the process id of one PBS task. Exists while the task may have to be killed."""
        return self.path / f".task-{host}-{os.urandom(4).hex()}"

    @property
    def sealed(self) -> Path:
        """The encrypted submit-time environ, for schedulers that do not propagate it. The scheduler has the key."""
        return self.path / "environment.sealed"

    @property
    def events(self) -> Path:
        return self.path / "events.jsonl"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    def exists(self) -> bool:
        """Also false for a directory that this user cannot read."""
        return os.path.exists(self.description)  # noqa: PTH110  Path.exists raises PermissionError before Python 3.14

    def attempt(self, number: int) -> AttemptDir:
        return AttemptDir(self.path / f"attempt-{number}", number)

    def attempts(self) -> list[AttemptDir]:
        names = [path.name[8:] for path in self.path.glob("attempt-*")]
        numbers = [int(name) for name in names if name.isdecimal() and name.isascii()]
        return [self.attempt(number) for number in sorted(numbers)]

    def next_attempt(self) -> int:
        attempts = self.attempts()
        return attempts[-1].number + 1 if attempts else 0

    def claim_attempt(self) -> int:
        """Creates the folder of the next attempt. Raises ConfigError if another process has created it first."""
        number = self.next_attempt()
        try:
            self.attempt(number).path.mkdir(mode=0o700)
        except FileExistsError:
            raise ConfigError(
                f"another attempt of {self.run_id} is starting",
                origin=str(self.attempt(number).path),
                hint=f"echelon status {self.run_id}",
            ) from None
        except OSError as error:
            raise write_error(self.attempt(number).path, error) from error
        return number

    def current_attempt(self) -> int:
        """The attempt of this supervisor: the one claimed for it, or the next one if that was started before."""
        used = {event.attempt for event in read_events(self.events) if event.kind is Kind.STARTED}
        attempts = [attempt.number for attempt in self.attempts()]
        return attempts[-1] if attempts and attempts[-1] not in used else self.next_attempt()

    def create(self) -> None:
        """Creates the directory. Raises EnvironmentProblem, for example on a full or read-only disk."""
        try:
            self.path.parent.mkdir(mode=0o1777, parents=True, exist_ok=True)  # sticky: others cannot replace runs in it
            self.path.mkdir(mode=0o700)
            self.path.chmod(0o700)  # a set-gid or ACL parent may have widened it
        except OSError as error:
            raise write_error(self.path, error) from error

    def write(self, path: Path, data: bytes, mode: int = 0o600) -> None:
        """Writes the file atomically and syncs it. Raises EnvironmentProblem."""
        part = path.with_name(f".{path.name}.{os.urandom(4).hex()}")
        try:
            fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
            with os.fdopen(fd, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            part.replace(path)
        except OSError as error:
            part.unlink(missing_ok=True)
            raise write_error(path, error) from error

    def write_description(self, job: Job, facts: dict[str, Any]) -> None:
        text = json.dumps({"job": encode(job), **facts}, indent=2) + "\n"
        self.write(self.description, text.encode())

    def read_description(self) -> dict[str, Any]:
        try:
            data = parse_json(read_regular(self.description))
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"{self.run_id} is not a readable run", origin=str(self.description), why=str(error)
            ) from error
        if not isinstance(data, dict):
            raise ConfigError(f"{self.run_id} is not a readable run", origin=str(self.description))
        return data

    def read_native_id(self) -> str:
        """Empty before the submission."""
        try:
            return self.native_id.read_text(errors="replace").strip()
        except OSError:
            return ""

    def read_job(self) -> Job:
        try:
            return decode(Job, self.read_description().get("job"))
        except ValueError as error:
            raise ConfigError(
                f"cannot read the job of {self.run_id}",
                origin=str(self.description),
                why=str(error),
                hint="use the version of echelon that started this run",
            ) from error


def write_error(path: Path, error: OSError) -> EnvironmentProblem:
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    hint = "free some space, or set ECHELON_RUNS=DIR on another disk"
    is_file = path.parent.is_file()
    return EnvironmentProblem(
        f"cannot write {path}",
        origin=f"ECHELON_RUNS={runs}" if (runs := os.environ.get("ECHELON_RUNS")) else None,
        why=f"{path.parent} is a file, not a folder" if is_file else error.strerror or str(error),
        hint=hint if full else "set ECHELON_RUNS=DIR to a folder that you can write to",
    )
