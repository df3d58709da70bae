"""Every file name of a run, and the rules for trusting its directory. Nobody else spells one."""

from __future__ import annotations

import errno
import json
import os
import stat
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from echelon.codec import decode, encode
from echelon.command import typed
from echelon.errors import ConfigError, EnvironmentProblem
from echelon.events import Kind, read_events
from echelon.job import Job


def runs_folder(environ: Mapping[str, str]) -> Path:
    """The folder that holds runs."""
    return Path(environ.get("ECHELON_RUNS") or "runs").absolute()


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
    def node_script(self) -> Path:
        """What takes a command into the environment, on each node; where there is one."""
        return self.path / "node.sh"

    @property
    def job_output(self) -> Path:
        """What the supervisor and the agents themselves print."""
        return self.path / "job.out"

    @property
    def node_side(self) -> Path:
        return self.path / "echelon.pyz"

    @property
    def code(self) -> Path:
        """The snapshot of the project, where one was asked for."""
        return self.path / "code"

    @property
    def code_diff(self) -> Path:
        """What was changed in it since the commit that run.json names."""
        return self.path / "code.diff"

    @property
    def code_archive(self) -> Path:
        """The snapshot as one file, where a host does not see this folder."""
        return self.path / "code.tar.gz"

    @property
    def native_id(self) -> Path:
        return self.path / "native_id"

    @property
    def lease(self) -> Path:
        return self.path / "lease"

    @property
    def cancel_mark(self) -> Path:
        """There once a person has asked for the end of the run, so that it is told from a requeue by the site."""
        return self.path / "cancel"

    @property
    def token(self) -> Path:
        """Opens the channel between supervisor and agents; there only while an attempt runs."""
        return self.path / "token"

    @property
    def sealed(self) -> Path:
        """The environment it was submitted from, for schedulers that carry none; they have the key."""
        return self.path / "environment.sealed"

    @property
    def events(self) -> Path:
        return self.path / "events.jsonl"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    def exists(self) -> bool:
        return self.description.exists()

    def attempt(self, number: int) -> AttemptDir:
        return AttemptDir(self.path / f"attempt-{number}", number)

    def attempts(self) -> list[AttemptDir]:
        numbers = [
            int(path.name[8:])
            for path in self.path.glob("attempt-*")
            if path.name[8:].isdecimal() and path.name.isascii()
        ]
        return [self.attempt(number) for number in sorted(numbers)]

    def next_attempt(self) -> int:
        attempts = self.attempts()
        return attempts[-1].number + 1 if attempts else 0

    def claim_attempt(self) -> int:
        """The next attempt, taken by making its folder: of two who try, one is told that it came second."""
        number = self.next_attempt()
        try:
            self.attempt(number).path.mkdir(mode=0o700)
        except FileExistsError:
            raise ConfigError(
                f"another attempt of {self.run_id} is just being started",
                origin=str(self.attempt(number).path),
                hint=f"echelon status {self.run_id}",
            ) from None
        except OSError as error:
            raise cannot_write(self.attempt(number).path, error) from error
        return number

    def claimed_attempt(self) -> int:
        """For the supervisor: the attempt that was claimed for it, or the next one where that has been used."""
        used = {event.attempt for event in read_events(self.events) if event.kind is Kind.STARTED}
        attempts = [attempt.number for attempt in self.attempts()]
        return attempts[-1] if attempts and attempts[-1] not in used else self.next_attempt()

    def create(self) -> None:
        """Makes the directory; what a full or read-only disk says is passed on with the path."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.mkdir(mode=0o700)
            self.path.chmod(0o700)  # a set-gid or ACL parent may have widened it
        except OSError as error:
            raise cannot_write(self.path, error) from error

    def write(self, path: Path, data: bytes, mode: int = 0o600) -> None:
        """The whole file or none of it, synced."""
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
            raise cannot_write(path, error) from error

    def write_description(self, job: Job, facts: dict[str, Any]) -> None:
        text = json.dumps({"job": encode(job), **facts}, indent=2) + "\n"
        self.write(self.description, text.encode())

    def read_description(self) -> dict[str, Any]:
        try:
            data = json.loads(self.description.read_bytes())
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"{self.run_id} is not a readable run", origin=str(self.description), why=str(error)
            ) from error
        if not isinstance(data, dict):
            raise ConfigError(f"{self.run_id} is not a readable run", origin=str(self.description))
        return data

    def read_native_id(self) -> str:
        """Empty where nothing has been submitted yet."""
        try:
            return self.native_id.read_text(errors="replace").strip()
        except OSError:
            return ""

    def read_job(self) -> Job:
        try:
            return decode(Job, self.read_description().get("job"))
        except ValueError as error:
            raise ConfigError(
                f"the job of {self.run_id} cannot be read",
                origin=str(self.description),
                why=str(error),
                hint="use the version of echelon that made this run",
            ) from error

    def check_trusted(self) -> RunDir:
        """Refuses a directory that someone else owns or may write to: they could swap the code we run."""
        try:
            status = self.path.stat()
        except OSError as error:
            raise ConfigError(f"no run at {self.path}", why=os.strerror(error.errno or errno.ENOENT)) from error
        if status.st_uid != os.geteuid():
            raise EnvironmentProblem(
                f"{self.path} belongs to another user",
                why=f"its owner is uid {status.st_uid}, you are uid {os.geteuid()}",
                hint="use a run directory of your own (ECHELON_RUNS=DIR)",
            )
        if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise EnvironmentProblem(
                f"{self.path} can be written by others",
                why=f"its mode is {stat.S_IMODE(status.st_mode):04o}, a run's is 0700",
                hint=f"{typed(('chmod', '700', str(self.path)))}, once you know that nobody changed it",
            )
        return self


class AttemptDir:
    def __init__(self, path: Path, number: int) -> None:
        self.path = path
        self.number = number

    def node_log(self, host: str) -> Path:
        return self.path / f"{host}.out"

    def node_words(self, host: str) -> Path:
        """Why the host could not be taken into the environment; there only while, or because, it could not."""
        return self.path / f"{host}.words"

    def node_logs(self) -> list[Path]:
        return sorted(path for path in self.path.glob("*.out") if not path.name.startswith("rank-"))

    def rank_log(self, rank: int) -> Path:
        return self.path / f"rank-{rank}.out"

    def rank_stacks(self, rank: int) -> Path:
        return self.path / f"rank-{rank}.stacks"

    def all_stacks(self) -> list[Path]:
        return sorted(self.path.glob("rank-*.stacks"))

    @property
    def reserve(self) -> Path:
        """Room that is given up for the last word when the disk is full."""
        return self.path / ".reserve"

    def node_env(self, host: str) -> Path:
        return self.path / f"{host}.env"

    @property
    def error(self) -> Path:
        return self.path / "error.json"

    @property
    def orphaned(self) -> Path:
        """Made by the agent that puts the job back into the queue because its supervisor's host is lost."""
        return self.path / "orphaned"

    def claim_orphans(self) -> bool:
        """Of all the agents that want to, one may: a file can be made once."""
        try:
            os.close(os.open(self.orphaned, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        except OSError:
            return False
        return True

    @property
    def exit_code(self) -> Path:
        return self.path / "exit_code"

    def read_exit_code(self) -> int | None:
        """None where the attempt has not come to its end."""
        try:
            return int(self.exit_code.read_text())
        except (OSError, ValueError):
            return None


def cannot_write(path: Path, error: OSError) -> EnvironmentProblem:
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    return EnvironmentProblem(
        f"cannot write {path}",
        why=error.strerror or str(error),
        hint="free some space, or put runs elsewhere: ECHELON_RUNS=DIR"
        if full
        else "put runs where you may write: ECHELON_RUNS=DIR",
    )
