"""The folder of a cluster: /etc of the nodes, keys, logs, Slurm's state and home folders."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

USER, UID = "alice", 5001
PLACE = Path("/var/tmp")
PREFIX = "echelon-cluster-"
SECRETS = ("shadow*", "gshadow*", "ssh_host_*", "private", "munge.key")


class Folder:
    def __init__(self) -> None:
        """Creates the folder, and removes those of clusters whose creator was killed."""
        remove_abandoned()
        hidden = Path(tempfile.mkdtemp(prefix=f".{PREFIX}", dir=PLACE))
        self._lock = os.open(hidden / "lock", os.O_CREAT | os.O_RDWR, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self.path = hidden.rename(hidden.with_name(hidden.name[1:]))  # nobody sees it without its lock
        self.path.chmod(0o755)
        self.etc, self.logs, self.state = (self.path / name for name in ("etc", "log", "state"))
        self.shared = self.path / "shared"  # nodes see it at the same place
        self.home = self.shared / "home" / USER
        self.logs.mkdir()
        self.state.mkdir()
        shutil.chown(self.state, "slurm", "slurm")
        self.munge_key = self.path / "munge.key"
        self.munge_key.write_bytes(os.urandom(128))
        self.munge_key.chmod(0o400)
        make_home(self.home)
        self.scratch = self.shared / "scratch"  # all hosts see this one, too
        make_home(self.scratch)

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)

    def write_etc(self, addresses: Mapping[str, str], files: Mapping[str, str]) -> None:
        """Copies the whole folder: a bind mount of a single file breaks if the file is replaced on the machine."""
        shutil.copytree("/etc", self.etc, symlinks=True, ignore=shutil.ignore_patterns(*SECRETS))
        shutil.rmtree(self.etc / "slurm", ignore_errors=True)
        hosts = "".join(f"{address} {name}\n" for name, address in addresses.items())
        self._write("hosts", f"127.0.0.1 localhost\n{hosts}")
        self._write("resolv.conf", "")
        for name, text in files.items():
            self._write(name, text)
        with (self.etc / "passwd").open("a") as passwd, (self.etc / "group").open("a") as group:
            passwd.write(f"{USER}:*:{UID}:{UID}::{self.home}:/bin/bash\n")
            group.write(f"{USER}:*:{UID}:\n")

    def _write(self, name: str, text: str) -> None:
        file = self.etc / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.unlink(missing_ok=True)  # it may be a symbolic link that leads out of the copy
        file.write_text(text)
        if file.name == "slurmdbd.conf":  # which it reads only if nobody else could
            file.chmod(0o600)
            shutil.chown(file, "slurm")

    def private_home(self, host: str) -> Path:
        """The home of the user on a host that shares no file system with the others."""
        return self.path / "hosts" / host / "home"

    def host_key(self, host: str) -> Path:
        return self.path / "hosts" / host / "key"

    def make_ssh_host(self, host: str) -> None:
        """A home and a host key for the host. The user's key on the login node is authorized, and the host key is known there."""
        make_home(self.private_home(host))
        make_key(self.host_key(host), host)
        key = self.home / ".ssh" / "id_ed25519"
        if not key.exists():
            make_home(key.parent)
            make_key(key, USER)
            for file in (key, public(key)):
                os.chown(file, UID, UID)
        make_home(self.private_home(host) / ".ssh")
        (self.private_home(host) / ".ssh" / "authorized_keys").write_text(public(key).read_text())
        with (key.parent / "known_hosts").open("a") as known:
            known.write(f"{host} {public(self.host_key(host)).read_text()}")


def make_home(path: Path) -> None:
    """A folder that only the user can read."""
    path.mkdir(parents=True)
    path.chmod(0o700)
    os.chown(path, UID, UID)


def make_key(path: Path, comment: str) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(path)], check=True)


def public(key: Path) -> Path:
    return key.with_name(key.name + ".pub")


def remove_abandoned() -> None:
    """Nobody holds the lock of a folder whose maker was killed."""
    for folder in PLACE.glob(PREFIX + "*"):
        try:
            lock = os.open(folder / "lock", os.O_RDWR)
        except OSError:
            continue  # being removed
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        except BlockingIOError:
            pass
        finally:
            os.close(lock)
