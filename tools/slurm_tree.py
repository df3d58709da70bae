"""Unpacks the Slurm of another Debian suite into the test cache: slurm_tree.py SUITE

The test clusters mount such a tree over /usr inside their nodes (tests/cluster/versions.py). Nothing is installed: apt
works with sources, lists and downloads of its own, in a temporary folder, and asks the mirror that this machine uses.
ECHELON_TEST_CACHE names another folder for the trees. Remove a tree to have it made again.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

SLURM = ("slurmctld", "slurmd", "slurm-client", "slurm-wlm-basic-plugins")
KEYS = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
ONLY_DEPENDS = ["--no-recommends", "--no-suggests", "--no-conflicts", "--no-breaks", "--no-replaces", "--no-enhances"]


def cache() -> Path:
    parent = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("ECHELON_TEST_CACHE") or Path(parent) / "echelon-tests")


def main(suite: str) -> None:
    tree = cache() / f"slurm-{suite}"
    if (tree / "version").exists():
        return
    print(f"== unpacking the Slurm of Debian {suite} into {tree}", flush=True)
    cache().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache(), prefix=".slurm-") as name:
        unpack(suite, Path(name))
        try:
            (Path(name) / "tree").rename(tree)
        except OSError:  # another test run was faster
            if not (tree / "version").exists():
                raise


def unpack(suite: str, folder: Path) -> None:
    apt = Apt(suite, folder)
    apt.call("apt-get", "update")
    packages = apt.call("apt-cache", "depends", "--recurse", *ONLY_DEPENDS, *SLURM)
    apt.call("apt-get", "download", *needed(packages))
    archives = sorted(folder.glob("*.deb"))
    for archive in archives:
        call("dpkg-deb", "--extract", archive, folder / "tree")
    (slurmd,) = (archive for archive in archives if archive.name.startswith("slurmd_"))
    version = call("dpkg-deb", "--field", slurmd, "Version")
    (folder / "tree" / "version").write_text(version.partition("-")[0] + "\n")


def needed(depends: str) -> list[str]:
    """Slurm's packages and all libraries that they need, from the output of `apt-cache depends --recurse`."""
    libraries: dict[str, list[str]] = {}
    package = ""
    for line in depends.splitlines():
        if re.match(r"[a-z0-9]", line):
            package = line.strip()
        elif found := re.match(r"\s*\|?(?:Pre)?Depends: (lib\S+)", line):
            libraries.setdefault(package, []).append(found[1])
    wanted, todo = set[str](), list(SLURM)
    while todo:
        package = todo.pop()
        if package not in wanted:
            wanted.add(package)
            todo += libraries.get(package, [])
    return sorted(wanted)


class Apt:
    """apt's programs with a separate state, independent of the packages and lists of this machine."""

    def __init__(self, suite: str, folder: Path) -> None:
        self.folder = folder
        (folder / "lists" / "partial").mkdir(parents=True)
        (folder / "archives" / "partial").mkdir(parents=True)
        (folder / "status").touch()
        signed = f"[signed-by={KEYS}] " if KEYS.exists() else ""
        (folder / "sources.list").write_text(f"deb {signed}{mirror()} {suite} main\n")
        self.options = [f"-o{name}={value}" for name, value in self._settings().items()]

    def _settings(self) -> dict[str, object]:
        return {
            "Dir::Etc::SourceList": self.folder / "sources.list",
            "Dir::Etc::SourceParts": "/dev/null",
            "Dir::Etc::Preferences": "/dev/null",
            "Dir::Etc::PreferencesParts": "/dev/null",
            "Dir::State": self.folder,
            "Dir::State::lists": self.folder / "lists",
            "Dir::State::status": self.folder / "status",
            "Dir::Cache": self.folder,
            "Dir::Cache::archives": self.folder / "archives",
            "Dir::Cache::pkgcache": "pkgcache.bin",  # some images disable it, and then each call takes seconds
            "Dir::Cache::srcpkgcache": "srcpkgcache.bin",
            "APT::Sandbox::User": "root",  # the folder is closed to others
        }

    def call(self, program: str, *arguments: str) -> str:
        return call(program, *self.options, "-q", *arguments, cwd=self.folder)


def mirror() -> str:
    """The Debian mirror that this machine uses."""
    release = dict(line.split("=", 1) for line in Path("/etc/os-release").read_text().splitlines() if "=" in line)
    targets = call("apt-get", "indextargets", "--format", "$(ORIGIN) $(CODENAME) $(REPO_URI)", "Created-By: Packages")
    wanted = ["Debian", release.get("VERSION_CODENAME", "")]
    found = [line.split()[2] for line in targets.splitlines() if line.split()[:2] == wanted]
    if not found:
        sys.exit("no Debian mirror among this machine's package sources")
    return found[0]


def call(*argv: object, **options: object) -> str:
    """The output of a command. If it failed, exits with its stderr."""
    done = subprocess.run([*map(str, argv)], check=False, capture_output=True, text=True, **options)  # type: ignore[call-overload]
    if done.returncode != 0:
        sys.exit(f"{argv[0]} failed with exit code {done.returncode}\n{done.stderr.strip()}")
    return str(done.stdout)


if __name__ == "__main__":
    main(sys.argv[1])
