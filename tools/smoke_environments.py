"""The Pythons and torch versions that the smoke tests run on, and their environments in a cache folder.

tools/smoke installs what is missing, once per machine: a venv for each in $ECHELON_TEST_CACHE (default:
~/.cache/echelon-tests), outside the clone. Interpreters are those found on this machine, else Debian's packages
unpacked into a tree (debian_python.py). torch comes from pip without its CUDA packages, which are gigabytes; small
stand-ins take their place (cuda_stubs.py). An environment whose torch cannot be installed is ready without it.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import cuda_stubs
import debian_python
from slurm_tree import cache as cache_folder

NEWEST_TORCH = "2.15.0"
OLDEST_TORCH = "2.3.1"
NEEDED_BYTES = 3 << 30  # of one environment, with the wheel that it is made from
PROBE = "import sys; print('%d.%d' % sys.version_info[:2], sys.version_info.releaselevel)"
ECHELON_NEEDS = ("click>=8.2", "rich>=13", "tomli; python_version < '3.11'")
TORCH_NEEDS = ("filelock", "typing-extensions", "sympy", "networkx", "jinja2", "fsspec", "numpy", "setuptools")


class NotInstallableError(Exception):
    """An environment cannot be installed here; the text is the reason."""


@dataclass(frozen=True)
class Environment:
    """One Python with one torch."""

    python: str
    torch: str

    @property
    def name(self) -> str:
        return f"py{self.python}-torch{self.torch}"

    @property
    def path(self) -> Path:
        return cache_folder() / self.name

    @property
    def executable(self) -> Path:
        return self.path / "bin" / "python"

    @property
    def is_ready(self) -> bool:
        return (self.path / "ready").exists() and self.executable.exists()

    @property
    def problem(self) -> str:
        """Why it is not ready, or has no torch; empty if nothing is missing."""
        for name in ("ready", "failed"):
            if (self.path / name).exists():
                problem = (self.path / name).read_text()
                return problem if self.is_ready else problem or "incomplete; run tools/smoke"
        return "not installed; run tools/smoke"


WANTED = (
    Environment("3.10", OLDEST_TORCH),
    Environment("3.12", "2.13.0"),
    Environment("3.13", "2.13.0"),
    Environment("3.14", NEWEST_TORCH),
    Environment("3.15", NEWEST_TORCH),
)
"""Besides the Python that runs the tests (that of tools/test), which is 3.11 with torch 2.13.0 on most machines."""


@functools.cache
def wanted_environments() -> tuple[Environment, ...]:
    """WANTED, and 3.11 if it is on this machine but another Python runs the tests."""
    usual = Environment("3.11", "2.13.0")
    is_missing = sys.version_info[:2] != (3, 11) and find_python(usual.python) is not None
    return (*WANTED, usual) if is_missing else WANTED


def ready_environments(*, with_torch: bool = True) -> list[Environment]:
    ready = [environment for environment in wanted_environments() if environment.is_ready]
    return [environment for environment in ready if not (with_torch and environment.problem)]


def unusable_environments() -> list[Environment]:
    """Environments that are not ready or have no torch, although their Python is on this machine."""
    return [one for one in wanted_environments() if one.problem and find_python(one.python) is not None]


# Installing


def install_missing() -> None:
    cache_folder().mkdir(parents=True, exist_ok=True)
    with _lock():
        for environment in wanted_environments():
            if not environment.is_ready or environment.problem:  # what failed once may work now
                _install_or_say_why(environment)
            elif not any(environment.path.glob("lib/python3*/site-packages/torch/__pycache__")):
                _import_torch(environment)


@contextlib.contextmanager
def _lock() -> Iterator[None]:
    """Two test runs on one machine share the folder."""
    with (cache_folder() / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _install_or_say_why(environment: Environment) -> None:
    began = time.monotonic()
    shutil.rmtree(environment.path, ignore_errors=True)
    problem, mark = "", "failed"
    try:
        _install_python(environment)
        mark = "ready"
        _install_torch(environment)
    except NotInstallableError as error:
        problem = str(error)
    environment.path.mkdir(exist_ok=True)
    (environment.path / mark).write_text(problem)
    print(f"{environment.name}: {problem or f'installed in {time.monotonic() - began:.0f} s'}", flush=True)


def _install_python(environment: Environment) -> None:
    if shutil.disk_usage(cache_folder()).free < NEEDED_BYTES:
        raise NotInstallableError(f"less than {NEEDED_BYTES >> 30} GiB are free in {cache_folder()}")
    python = find_python(environment.python) or _debian_python(environment.python)
    _run(python, "-m", "venv", "--without-pip", environment.path)
    _pip_install(environment, *ECHELON_NEEDS)


def _install_torch(environment: Environment) -> None:
    _pip_install(environment, *TORCH_NEEDS)
    _pip_install(environment, "--no-deps", f"torch=={environment.torch}")
    _complete_torch(environment)
    _import_torch(environment)


def _import_torch(environment: Environment) -> None:
    """Shows that it works, and compiles the modules that are imported: pip would compile all of them."""
    _run(environment.executable, "-c", "import numpy, torch, torch.distributed, torch._dynamo")


def _complete_torch(environment: Environment) -> None:
    """A CUDA build loads libraries that a CPU run never calls; a CPU build needs none of them."""
    (torch,) = environment.path.glob("lib/python3*/site-packages/torch")
    runtime = cuda_stubs.needed_packages(_metadata(torch))
    if not runtime:
        return
    _pip_install(environment, *runtime)
    try:
        cuda_stubs.make(torch / "lib")
    except (OSError, subprocess.CalledProcessError) as error:
        raise NotInstallableError(f"stand-ins for the CUDA libraries could not be made: {error}") from error


def _metadata(torch: Path) -> str:
    (path,) = torch.parent.glob("torch-*.dist-info/METADATA")
    return path.read_text()


def _pip_install(environment: Environment, *packages: str) -> None:
    quiet = ("--quiet", "--no-compile", "--no-cache-dir", "--no-warn-conflicts", "--disable-pip-version-check")
    pip = (sys.executable, _newest_pip(), "--python", environment.executable)
    _run(*pip, "install", *quiet, "--only-binary=:all:", *packages)


@functools.cache
def _newest_pip() -> Path:
    """A separate pip: Debian's Pythons have none, and an older pip does not run on the newest Python."""
    folder = cache_folder() / "pip"
    if not (folder / "pip").exists():
        _run(
            sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target", folder, "pip"
        )
    return folder / "pip"


def _run(*argv: str | Path) -> str:
    without = ("PYTHONPATH", "PYTHONHOME", "PYTHONDONTWRITEBYTECODE")
    environ = {name: value for name, value in os.environ.items() if name not in without}
    try:
        done = subprocess.run([*map(str, argv)], capture_output=True, text=True, check=False, env=environ)
    except OSError as error:
        raise NotInstallableError(f"{argv[0]}: {error.strerror}") from error
    if done.returncode:
        last = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()][-1:]
        raise NotInstallableError(f"{' '.join(map(str, argv))[:120]} failed: {''.join(last)}")
    return done.stdout


# Interpreters


def find_python(version: str) -> Path | None:
    """A released interpreter of this machine that is not in a venv."""
    return found_pythons().get(version)


@functools.cache
def found_pythons() -> dict[str, Path]:
    found: dict[str, Path] = {}
    for candidate in _candidates():
        said = subprocess.run([candidate, "-c", PROBE], capture_output=True, text=True, check=False).stdout.split()
        if len(said) == 2 and said[1] == "final" and _has_venv(candidate):
            found.setdefault(said[0], candidate)
    return found


def _candidates() -> list[Path]:
    managed = [Path.home() / ".pyenv" / "versions", Path.home() / ".local" / "share" / "uv" / "python"]
    theirs = [python for folder in managed for python in sorted(folder.glob("*/bin/python3"), reverse=True)]
    named = [shutil.which(name) for name in ("python3", *(f"python3.{minor}" for minor in range(10, 20)))]
    usual = [Path("/usr/bin/python3"), Path("/usr/local/bin/python3")]
    return [path for path in (*theirs, *map(Path, filter(None, named)), *usual) if os.access(path, os.X_OK)]


def _has_venv(python: Path) -> bool:
    return subprocess.run([python, "-c", "import venv"], capture_output=True, check=False).returncode == 0


def _debian_python(version: str) -> Path:
    try:
        return debian_python.unpacked(version)
    except (OSError, SystemExit) as error:
        problem = str(error).splitlines()[-1]
        raise NotInstallableError(f"no Python {version} on this machine or in Debian's packages: {problem}") from error


if __name__ == "__main__":
    install_missing()
