"""Images for the stand-ins, made by a real mksquashfs, and the PATH that has the stand-ins in front."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PROJECT = HERE.parents[1]


def need(*files: str) -> pytest.MarkDecorator:
    """For tests that cannot do without these; where nothing may be skipped, they fail by themselves."""
    missing = [file for file in files if not Path(file).exists()]
    skip = bool(missing) and not os.environ.get("SKIP_NOTHING")
    return pytest.mark.skipif(skip, reason=f"not installed: {', '.join(missing)}")


def image_tree(folder: Path, *, python: str | None = sys.executable, rc: str | None = None, **variables: str) -> Path:
    """The skeleton of a root; `python` is what `python3` means in it, none if there is none."""
    for name in ("etc", "proc", "dev", "tmp", "run", "opt", "image-bin"):
        (folder / name).mkdir(parents=True)
    environ = {"PATH": "/image-bin:/bin" if python else "/image-bin", **variables}
    (folder / "etc" / "environment").write_text("".join(f"{name}={value}\n" for name, value in environ.items()))
    (folder / "etc" / "image").write_text("this is the image\n")
    (folder / "image-bin" / "rm").symlink_to("/bin/rm")
    if python:
        program = folder / "image-bin" / "python3"
        program.write_text(f'#!/bin/sh\nexec {python} "$@"\n')
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


def standins(path: str | None = None) -> dict[str, str]:
    """Variables for a command that is to find them."""
    folders = [*python_folders(), PROJECT]
    return {
        "PATH": f"{HERE}:{path or os.environ['PATH']}",
        "STANDIN_FOLDERS": ":".join(str(folder) for folder in folders if folder.exists()),
    }
