"""Queries git for the root, files, commit and uncommitted changes of a project."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePath

TIMEOUT_SECONDS = 60
DESCRIBE_TIMEOUT_SECONDS = 10
READ_ONLY_ENVIRON = {"GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}  # a query must not write to the index


class GitFailed(Exception):  # noqa: N818  not always an error: git or the repository may be missing
    """git failed; the text is its stderr, or the reason why it could not run."""


def run_git(folder: Path, *words: str, seconds: float = TIMEOUT_SECONDS) -> bytes:
    """The stdout of a git command. Raises GitFailed."""
    argv = ["git", "-C", str(folder), *words]
    environ = {name: value for name, value in os.environ.items() if name not in ("GIT_DIR", "GIT_WORK_TREE")}
    try:
        done = subprocess.run(
            argv,
            env={**environ, **READ_ONLY_ENVIRON},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        raise GitFailed(f"git has not answered within {seconds:g} s") from late
    except OSError as error:
        raise GitFailed(f"git cannot be run: {error.strerror}") from error
    if done.returncode != 0:
        raise GitFailed(done.stderr.decode(errors="replace").strip())
    return done.stdout


def repository_root(folder: Path) -> Path | None:
    """`folder` or the nearest parent that contains `.git`. git may still be unable to read it."""
    return next((parent for parent in (folder, *folder.parents) if (parent / ".git").exists()), None)


def list_files(root: Path) -> Iterator[PurePath]:
    """Tracked files and new files that are not ignored, also of nested repositories. Raises GitSilent."""
    listed = run_git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    for name in sorted(set(filter(None, listed.split(b"\0")))):
        path = PurePath(os.fsdecode(name))
        whole = root / path
        if whole.is_symlink() or not whole.is_dir():
            yield path
        elif (whole / ".git").exists():  # a submodule, or a clone that is not tracked
            yield from (path / inner for inner in list_files(whole))


def list_ignored(root: Path) -> list[PurePath]:
    """Ignored files. An ignored folder is one entry. Empty if git fails."""
    try:
        listed = run_git(root, "ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--directory")
    except GitFailed:
        return []
    return [PurePath(os.fsdecode(name)) for name in listed.split(b"\0") if name]


def head_commit(root: Path) -> str:
    """The hash of HEAD. Raises GitSilent if there are no commits yet."""
    return run_git(root, "rev-parse", "--verify", "HEAD").decode().strip()


def describe_commit(folder: Path) -> str | None:
    """The commit, with the suffix -dirty if files have changed. None if git fails or takes longer than 10 s."""
    if repository_root(folder) is None:
        return None
    words = ("describe", "--always", "--abbrev=40", "--dirty", "--exclude=*")
    try:
        return run_git(folder, *words, seconds=DESCRIBE_TIMEOUT_SECONDS).decode().strip() or None
    except GitFailed:
        return None


def list_changed(root: Path) -> list[PurePath]:
    """Tracked files with uncommitted changes. Raises GitSilent."""
    listed = run_git(root, "diff", "HEAD", "--name-only", "-z", "--no-renames", "--no-ext-diff")
    return [PurePath(os.fsdecode(name)) for name in listed.split(b"\0") if name]


def uncommitted_patch(root: Path, without: Sequence[PurePath]) -> bytes:
    """The uncommitted changes as a patch, except those of the files in `without`. Raises GitSilent."""
    excluded = [f":(top,exclude,literal){path}" for path in without]
    words = ("--no-renames", "--no-ext-diff", "--no-textconv", "--no-color")
    return run_git(root, "diff", "HEAD", *words, "--", ":(top)", *excluded)
