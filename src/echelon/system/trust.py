"""Checks whether another user could change a file that configures echelon, or replace a run."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Sequence
from pathlib import Path

from echelon.errors import ConfigError, EnvironmentProblem
from echelon.record import record
from echelon.run_dir import RunDir
from echelon.shell import format_command

ROOT_UID = 0
ACL_ATTRIBUTE = "system.posix_acl_access"
COPY_HINT = "copy it to a folder that only you can write to, and use the copy"
RUNS_FOLDER_HINT = "set ECHELON_RUNS=DIR to a folder that only you can write to"


@record
class FileEntry:
    """Owner and permissions of one file or folder."""

    path: str
    uid: int
    gid: int
    mode: int
    has_acl: bool = False
    """The file has an access control list, so the group bits also apply to named users."""


@record
class TrustProblem:
    why: str
    hint: str


def trust_problem(entries: Sequence[FileEntry], *, uid: int, private_gid: int | None) -> TrustProblem | None:
    """The reason not to trust a file; None if it is trusted. Pure.

    `entries` are the file and the folders above it. The user `uid` and root are trusted. A group may have write
    permission only if it is the user's private group, which has no other member: with umask 0002 every file of such a
    user is group-writable.
    """
    for entry in entries:
        if entry.uid not in (uid, ROOT_UID):
            return TrustProblem(why=f"{entry.path} belongs to uid {entry.uid}, you are uid {uid}", hint=COPY_HINT)
    writable = [entry for entry in entries if _others_can_write(entry, private_gid)]
    if not writable:
        return None
    first = writable[0]
    return TrustProblem(
        why=_writers_sentence(first),
        hint=_chmod_hint(writable) if all(entry.uid == uid for entry in writable) else COPY_HINT,
    )


def _others_can_write(entry: FileEntry, private_gid: int | None) -> bool:
    """False for a sticky folder such as /tmp: only the owner of a file can replace it, and each owner is checked."""
    if stat.S_ISDIR(entry.mode) and entry.mode & stat.S_ISVTX:
        return False
    is_private = entry.gid == private_gid and not entry.has_acl
    return bool(entry.mode & stat.S_IWOTH) or (bool(entry.mode & stat.S_IWGRP) and not is_private)


def _writers_sentence(entry: FileEntry) -> str:
    who = "every user" if entry.mode & stat.S_IWOTH else f"group {entry.gid}"
    return f"{who} can write to {entry.path} (mode {stat.S_IMODE(entry.mode):04o})"


def _chmod_hint(entries: Sequence[FileEntry]) -> str:
    change = "go-w" if any(entry.mode & stat.S_IWOTH for entry in entries) else "g-w"
    return format_command(("chmod", change, *(entry.path for entry in entries)))


def runs_folder_problem(runs: FileEntry, *, uid: int, private_gid: int | None) -> TrustProblem | None:
    """The reason not to start runs in a folder: another user could replace a run by other code. Pure."""
    if not _others_can_write(runs, private_gid):
        return None
    sticky = (
        f"{format_command(('chmod', '+t', runs.path))}, after checking the runs in it; or " if runs.uid == uid else ""
    )
    return TrustProblem(
        why=f"{_writers_sentence(runs)}; without the sticky bit they can replace the files of other users",
        hint=f"{sticky}{RUNS_FOLDER_HINT}",
    )


def runs_folder_warning(entries: Sequence[FileEntry], *, uid: int) -> str | None:
    """A warning if another user could replace runs; None otherwise. Pure.

    `entries` are the folder for runs and the folders above it. Groups that can write to a folder above cause no
    warning: most clusters have such project folders, and the group could replace the script as well.
    """
    runs, *above = entries
    if runs.uid not in (uid, ROOT_UID):
        return f"{runs.path} belongs to uid {runs.uid}, which can replace your runs; {RUNS_FOLDER_HINT}"
    for entry in above:
        if entry.mode & stat.S_IWOTH and not entry.mode & stat.S_ISVTX:
            return f"{_writers_sentence(entry)} and can replace your runs below it; {RUNS_FOLDER_HINT}"
    return None


class UntrustedFile(EnvironmentProblem):
    """Another user could change the file."""

    def __init__(self, path: Path, objection: TrustProblem, origin: str | None = None) -> None:
        super().__init__(
            f"{path} is not used: another user can change it", origin=origin, why=objection.why, hint=objection.hint
        )


def read_trusted(path: Path, folders: Sequence[Path], *, origin: str | None = None) -> str:
    """The text of the file. Checks the file after opening it, so that it reads exactly the file that it checked.

    Raises UntrustedFile, OSError and UnicodeDecodeError.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a FIFO must not block before the check
    except PermissionError:
        check_trusted([path, *folders], origin=origin)
        raise
    with os.fdopen(fd, encoding="utf-8") as file:
        _check_entries([_stat_entry(path, fd), *map(_stat_entry, folders)], path, origin)
        os.set_blocking(fd, True)
        return file.read()


def check_trusted(paths: Sequence[Path], *, origin: str | None = None) -> None:
    """Raises UntrustedFile, which names the first path, or OSError."""
    _check_entries(list(map(_stat_entry, paths)), paths[0], origin)


def check_run(run_dir: RunDir) -> RunDir:
    """Raises an error for a directory that another user owns or can write to, and could replace its code."""
    try:
        status = run_dir.path.stat()
    except OSError as error:
        raise ConfigError(
            f"no run at {run_dir.path}",
            why=os.strerror(error.errno or errno.ENOENT),
            hint="echelon ls lists the runs",
        ) from error
    if status.st_uid != os.geteuid():
        raise EnvironmentProblem(
            f"{run_dir.path} belongs to another user",
            why=f"its owner is uid {status.st_uid}, you are uid {os.geteuid()}",
            hint="set ECHELON_RUNS to a folder of your own",
        )
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise EnvironmentProblem(
            f"{run_dir.path} can be written by others",
            why=f"its mode is {stat.S_IMODE(status.st_mode):04o} instead of 0700",
            hint=f"{format_command(('chmod', '700', str(run_dir.path)))}, if nothing in it was changed",
        )
    return run_dir


def check_runs_folder(runs: Path) -> str | None:
    """Returns a warning about the folder's owner or a folder above it, if any.

    Raises EnvironmentProblem if another user could replace runs in the folder. A missing folder passes: it is created
    later, with the sticky bit.
    """
    try:
        real = runs.resolve(strict=True)
        entries = [_stat_entry(path) for path in (real, *real.parents)]
    except OSError:
        return None  # the creation of the run reports the problem
    uid = os.geteuid()
    objection = runs_folder_problem(entries[0], uid=uid, private_gid=_private_gid())
    if objection is not None:
        raise EnvironmentProblem(
            f"another user can replace the runs in {runs}",
            origin=f"ECHELON_RUNS={named}" if (named := os.environ.get("ECHELON_RUNS")) else None,
            why=objection.why,
            hint=objection.hint,
        )
    return runs_folder_warning(entries, uid=uid)


def _check_entries(entries: Sequence[FileEntry], path: Path, origin: str | None) -> None:
    shared = any(entry.mode & stat.S_IWGRP for entry in entries)
    objection = trust_problem(entries, uid=os.geteuid(), private_gid=_private_gid() if shared else None)
    if objection is not None:
        raise UntrustedFile(path, objection, origin)


def _stat_entry(path: Path, fd: int | None = None) -> FileEntry:
    found = path.stat() if fd is None else os.fstat(fd)
    return FileEntry(
        path=str(path),
        uid=found.st_uid,
        gid=found.st_gid,
        mode=found.st_mode,
        has_acl=_has_acl(path if fd is None else fd),
    )


def _has_acl(target: Path | int) -> bool:
    try:
        return bool(os.getxattr(target, ACL_ATTRIBUTE))
    except OSError:
        return False


def _private_gid() -> int | None:
    """The user's primary group if it has the user's name and no other member."""
    import grp
    import pwd

    try:
        user = pwd.getpwuid(os.geteuid())
        group = grp.getgrgid(user.pw_gid)
    except KeyError:
        return None
    return group.gr_gid if group.gr_name == user.pw_name and set(group.gr_mem) <= {user.pw_name} else None
