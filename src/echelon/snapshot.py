"""The working directory as one file, to be sent to hosts that do not see it; secrets stay here."""

from __future__ import annotations

import fnmatch
import io
import os
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

from echelon.errors import ConfigError
from echelon.job import Job, ScriptKind

MOST_BYTES = 200 << 20
LEFT_OUT_FOLDERS = frozenset(
    {
        ".git",
        ".hg",
        ".svn",
        "__pycache__",
        ".venv",
        "venv",
        "node_modules",
        ".mypy_cache",
        ".ruff_cache",
        ".pytest_cache",
    }
    | {".ssh", ".aws", ".gnupg"}
)
SECRETS = (
    ".env",
    ".env.*",
    "*.env",
    "*.pem",
    "*.key",
    "*.p12",
    "id_rsa*",
    "id_ed25519*",
    "id_ecdsa*",
    ".netrc",
    ".pypirc",
)
NO_SECRETS = frozenset({".env.example", ".env.sample", ".env.template"})


def pack(job: Job, runs: Path) -> bytes:
    """A tar file; what git would commit where there is git, everything where there is not. Raises ConfigError."""
    folder = Path(job.cwd)
    _check_script(job, folder)
    buffer = io.BytesIO()
    total = 0
    with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=1) as archive:
        for path in sorted(files_of(folder)):
            if path.is_relative_to(runs) or _is_left_out(path.relative_to(folder)):
                continue
            total += 0 if path.is_symlink() else path.stat().st_size
            if total > MOST_BYTES:
                raise _too_much(folder, path)
            archive.add(path, arcname=str(path.relative_to(folder)), recursive=False, filter=_anonymous)
    return buffer.getvalue()


def _check_script(job: Job, folder: Path) -> None:
    script = Path(os.path.normpath(folder / job.script.target))
    if job.script.kind is ScriptKind.FILE and not script.is_relative_to(folder):
        raise ConfigError(
            f"the script {job.script.target} is not in the working directory, so a snapshot would lack it",
            origin=f"--snapshot; the working directory is {folder}",
            hint=f"cd {script.parent} first",
        )


def files_of(folder: Path) -> Iterator[Path]:
    listed = _git_files(folder)
    if listed is not None:
        yield from (path for path in listed if path.is_symlink() or path.is_file())
        return
    for parent, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name not in LEFT_OUT_FOLDERS]
        links = [name for name in folders if (Path(parent) / name).is_symlink()]
        paths = (Path(parent) / name for name in (*names, *links))
        yield from (path for path in paths if path.is_symlink() or path.is_file())


def _git_files(folder: Path) -> list[Path] | None:
    """Tracked ones, and new ones that are not ignored; None where git is not in charge."""
    argv = ["git", "-C", str(folder), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        result = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    if result.returncode != 0:
        return None
    return [folder / os.fsdecode(name) for name in set(result.stdout.split(b"\0")) if name]


def _is_left_out(relative: Path) -> bool:
    name = relative.name
    secret = name not in NO_SECRETS and any(fnmatch.fnmatch(name, pattern) for pattern in SECRETS)
    return secret or not LEFT_OUT_FOLDERS.isdisjoint(relative.parts)


def _anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


def _too_much(folder: Path, path: Path) -> ConfigError:
    return ConfigError(
        f"{folder} has more than {MOST_BYTES >> 20} MiB in it, too much to send to every host",
        origin="--snapshot",
        why=f"reached at {path.relative_to(folder)}",
        hint="keep data and checkpoints elsewhere, or name them in .gitignore",
    )
