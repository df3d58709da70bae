"""Files of a project into the run directory: cloned where the file system can, else copied.

Never a hard link to a file of the user's: an editor that writes in place, and `open(path, "w")`, would change both.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from echelon.errors import EnvironmentProblem
from echelon.run_dir import cannot_write
from echelon.snapshot.choice import Entry, link_text

FICLONE = 0x40049409  # as in linux/fs.h


def copy_all(entries: Iterable[Entry], project: Path, code: Path) -> None:
    """Makes `code`. A file that is gone by now is left out, as if it had never been."""
    try:
        code.mkdir(mode=0o700)
        for entry in entries:
            target = code / entry.path
            target.parent.mkdir(parents=True, exist_ok=True)
            if entry.link is not None:
                target.symlink_to(link_text(entry, project)[0])
            else:
                _copy(project / entry.path, target)
    except OSError as error:
        raise cannot_write(code, error) from error


def _copy(source: Path, target: Path) -> None:
    try:
        reader = source.open("rb")
    except FileNotFoundError:
        return
    except OSError as error:
        raise EnvironmentProblem(
            f"cannot read {source} for the snapshot",
            why=error.strerror,
            hint="name it in .gitignore, or let it be read",
        ) from error
    with reader, target.open("xb") as writer:
        try:
            fcntl.ioctl(writer.fileno(), FICLONE, reader.fileno())
        except OSError:  # another file system, or one that cannot
            shutil.copyfileobj(reader, writer, 1 << 20)
        status = os.fstat(reader.fileno())
        os.fchmod(writer.fileno(), status.st_mode & 0o777 | 0o600)
    os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))


def link_all(source: Path, target: Path) -> None:
    """The same snapshot for another run of an array: folders of its own, and the same files."""
    try:
        shutil.copytree(source, target, symlinks=True, copy_function=os.link)
    except OSError as error:
        raise cannot_write(target, error) from error
