"""What git knows of a project: its root, its files, its commit, and what was changed since."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePath

SECONDS = 60
AT_ONCE_SECONDS = 10
QUIET = {"GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}  # a look must not write to the index


class GitSilent(Exception):  # noqa: N818  there may be no error: no git here, or no repository
    """git has no answer; its words, if it had any."""


def git(folder: Path, *words: str, seconds: float = SECONDS) -> bytes:
    """What git prints. Raises GitSilent."""
    argv = ["git", "-C", str(folder), *words]
    environ = {name: value for name, value in os.environ.items() if name not in ("GIT_DIR", "GIT_WORK_TREE")}
    try:
        done = subprocess.run(
            argv, env={**environ, **QUIET}, stdin=subprocess.DEVNULL, capture_output=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired as late:
        raise GitSilent(f"git has not answered within {seconds:g} s") from late
    except OSError as error:
        raise GitSilent(f"git cannot be run: {error.strerror}") from error
    if done.returncode != 0:
        raise GitSilent(done.stderr.decode(errors="replace").strip())
    return done.stdout


def repository_of(folder: Path) -> Path | None:
    """The nearest folder above that looks like a repository's, whether or not git can read it."""
    return next((parent for parent in (folder, *folder.parents) if (parent / ".git").exists()), None)


def files(root: Path) -> Iterator[PurePath]:
    """Tracked ones, and new ones that are not ignored, with those of repositories inside. Raises GitSilent."""
    listed = git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    for name in sorted(set(filter(None, listed.split(b"\0")))):
        path = PurePath(os.fsdecode(name))
        whole = root / path
        if whole.is_symlink() or not whole.is_dir():
            yield path
        elif (whole / ".git").exists():  # a submodule, or a clone that nobody has added
            yield from (path / inner for inner in files(whole))


def ignored(root: Path) -> list[PurePath]:
    """What lies there and is ignored; whole folders by their name."""
    try:
        listed = git(root, "ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--directory")
    except GitSilent:
        return []
    return [PurePath(os.fsdecode(name)) for name in listed.split(b"\0") if name]


def commit_of(root: Path) -> str:
    """Raises GitSilent where nothing has been committed yet."""
    return git(root, "rev-parse", "--verify", "HEAD").decode().strip()


def description(folder: Path) -> str | None:
    """The commit, and whether anything was changed since; none where git does not say so at once."""
    if repository_of(folder) is None:
        return None
    words = ("describe", "--always", "--abbrev=40", "--dirty", "--exclude=*")
    try:
        return git(folder, *words, seconds=AT_ONCE_SECONDS).decode().strip() or None
    except GitSilent:
        return None


def changed(root: Path) -> list[PurePath]:
    """Tracked files that are not as they were committed. Raises GitSilent."""
    listed = git(root, "diff", "HEAD", "--name-only", "-z", "--no-renames", "--no-ext-diff")
    return [PurePath(os.fsdecode(name)) for name in listed.split(b"\0") if name]


def difference(root: Path, without: Sequence[PurePath]) -> bytes:
    """As text, to be read or applied; without these files. Raises GitSilent."""
    excluded = [f":(top,exclude,literal){path}" for path in without]
    words = ("--no-renames", "--no-ext-diff", "--no-textconv", "--no-color")
    return git(root, "diff", "HEAD", *words, "--", ":(top)", *excluded)
