"""Images for the stand-ins, made by a real mksquashfs, and the PATH that has the stand-ins in front."""

import functools
import os
import shlex
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PROJECT = HERE.parents[1]


def need(*files: str) -> pytest.MarkDecorator:
    """For tests that cannot do without these; where nothing may be skipped, they fail by themselves."""
    missing = [file for file in files if not Path(file).exists()]
    reason = f"not installed: {', '.join(missing)}" if missing else bwrap_problem(files)
    return pytest.mark.skipif(bool(reason) and not os.environ.get("SKIP_NOTHING"), reason=reason)


def bwrap_problem(files: Iterable[str]) -> str:
    """Why a bwrap among these files cannot make a container here, or nothing."""
    found = (_tried(file) for file in files if Path(file).name == "bwrap")
    return next(filter(None, found), "")


@functools.cache
def _tried(bwrap: str) -> str:
    """Some machines forbid user namespaces to ordinary users."""
    argv = [bwrap, "--dev-bind", "/", "/", "true"]
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)
    return "" if done.returncode == 0 else f"bwrap makes no container here: {done.stderr.strip() or done.returncode}"


def image_tree(folder: Path, *, python: str | None = sys.executable, rc: str | None = None, **variables: str) -> Path:
    """The skeleton of a root; `python` is what `python3` means in it, none if there is none."""
    for name in ("etc", "proc", "dev", "tmp", "run", "opt", "image-bin"):
        (folder / name).mkdir(parents=True)
    environ = {"PATH": "/image-bin:/bin" if python else "/image-bin", **variables}
    (folder / "etc" / "environment").write_text("".join(f"{name}={value}\n" for name, value in environ.items()))
    (folder / "etc" / "image").write_text("this is the image\n")
    (folder / "etc" / "profile").write_text('export PATH="/usr/local/bin:/usr/bin:/bin"\n')  # as Debian's does
    (folder / "image-bin" / "rm").symlink_to("/bin/rm")
    if python:
        program = folder / "image-bin" / "python3"
        program.write_text(f'#!/bin/sh\nexec {shlex.quote(python)} "$@"\n')
        program.chmod(0o755)
    if rc:
        (folder / "etc" / "rc").write_text(rc)
    return folder


def squashed(tree: Path, image: Path) -> Path:
    argv = ["mksquashfs", str(tree), str(image), "-noappend", "-no-progress", "-quiet"]
    subprocess.run(argv, check=True, capture_output=True)
    return image


def python_folders() -> list[Path]:
    """What this Python needs to start and to import what it can import here."""
    folders = {Path(sys.prefix), Path(sys.base_prefix), *(Path(entry) for entry in sys.path if entry)}
    return sorted({path for folder in folders if folder.is_dir() for path in (folder.absolute(), folder.resolve())})


def bwrap_exec(*fresh: str) -> str:
    """A value for --container-exec: those folders are empty in the container, which still has this Python and project."""
    hidden = [folder for folder in {*python_folders(), PROJECT} if any(folder.is_relative_to(name) for name in fresh)]
    words = ["bwrap", "--dev-bind", "/", "/"]
    words += [word for folder in fresh for word in ("--tmpfs", folder)]
    words += [word for folder in sorted(hidden) for word in ("--ro-bind", str(folder), str(folder))]
    return f"{shlex.join(words)} --bind {{run}} {{run}} --bind {{cwd}} {{cwd}} --setenv GREETING inside"


def standins(home: Path, path: str | None = None) -> dict[str, str]:
    """Variables with which a command finds the stand-ins, for a user with that home folder."""
    folders = [*python_folders(), PROJECT]
    return {
        "PATH": f"{HERE}:{path or os.environ['PATH']}",
        "STANDIN_FOLDERS": ":".join(str(folder) for folder in folders if folder.exists()),
        "ENROOT_RUNTIME_PATH": str(home / "enroot-runtime"),
    }
