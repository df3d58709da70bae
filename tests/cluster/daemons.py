"""The daemons of a node, in the foreground, and the check that each of them is up."""

from __future__ import annotations

from dataclasses import dataclass

MUNGE_KEY, HOST_KEY = "/run/munge.key", "/run/ssh_host_key"
STATE = "/run/slurmctld-state"
DATABASE, DATABASE_SOCKET = "/run/mysqld/data", "/run/mysqld/mysqld.sock"


@dataclass(frozen=True)
class Daemon:
    argv: list[str]
    answers: str | int | None  # at the path of a socket or a TCP port; None is a command that ends


def munged() -> Daemon:
    socket = "/run/munge/munge.socket.2"
    files = [f"--key-file={MUNGE_KEY}", "--pid-file=/run/munged.pid", "--seed-file=/run/munged.seed"]
    return Daemon(["munged", "--foreground", "--force", f"--socket={socket}", *files], socket)


def slurmctld() -> Daemon:
    return Daemon(["slurmctld", "-D", "-i"], 6817)


def slurmd() -> Daemon:
    return Daemon(["slurmd", "-D"], 6818)


def sshd() -> Daemon:
    return Daemon(["/usr/sbin/sshd", "-D", "-e"], 22)


def accounting() -> list[Daemon]:
    """A database, Slurm's daemon before it, and the one entry without which slurmctld finds no cluster there."""
    make = ["mariadb-install-db", "--no-defaults", f"--datadir={DATABASE}", "--user=slurm", "--skip-test-db"]
    serve = ["mariadbd", "--no-defaults", f"--datadir={DATABASE}", "--user=slurm", f"--socket={DATABASE_SOCKET}"]
    serve += ["--skip-networking", "--init-file=/etc/slurm/accounts.sql", "--innodb-flush-log-at-trx-commit=0"]
    return [
        Daemon(make, None),
        Daemon(serve, DATABASE_SOCKET),
        Daemon(["slurmdbd", "-D"], 6819),
        Daemon(["sacctmgr", "-i", "add", "cluster", "echelon"], None),
    ]
