"""Shares a file among all runs of an array: by a hard link, or by a copy if the file system refuses the link."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from echelon.run_dir import write_error


def link_or_copy(source: str | os.PathLike[str], target: str | os.PathLike[str]) -> None:
    """Copies with the permissions of the source if it cannot link. Raises EnvironmentProblem.

    Some file systems have no hard links; others limit the number of links to one file.
    """
    try:
        os.link(source, target)
    except OSError:
        try:
            _copy(source, target)
        except OSError as error:
            raise write_error(Path(target), error) from error


def _copy(source: str | os.PathLike[str], target: str | os.PathLike[str]) -> None:
    with Path(source).open("rb") as reader, os.fdopen(_create_private_file(target), "wb") as writer:
        shutil.copyfileobj(reader, writer, 1 << 20)
        os.fchmod(writer.fileno(), os.fstat(reader.fileno()).st_mode & 0o777)


def _create_private_file(target: str | os.PathLike[str]) -> int:
    """Opens a new file that only its owner can read from the start. Raises OSError if it exists."""
    return os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
