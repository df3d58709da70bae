"""Two ordinary users of one machine, each with a home of their own, who run `echelon`; needs root."""

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import echelon as package

DEADLINE_SECONDS = 90
PACKAGES = ("click", "tomli")


class User:
    """`user("ls")` is `echelon ls` by that user, in a folder that both see."""

    def __init__(self, uid: int, place: Path, python: str) -> None:
        self.uid = uid
        self.home = place / f"home-{uid}"
        self.home.mkdir(mode=0o700)
        os.chown(self.home, uid, uid)
        self.folder = place / "project"
        self._python = python
        self._env = {
            "HOME": str(self.home),
            "PATH": "/usr/bin:/bin",
            "PYTHONPATH": str(place / "lib"),
            "ECHELON_ON": "local",
            "TMPDIR": str(self.home),
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    def __call__(self, *args, cwd=None, env=None) -> subprocess.CompletedProcess:
        return subprocess.run(
            [*as_user(self.uid), self._python, "-m", "echelon", *map(str, args)],
            env={**self._env, **(env or {})},
            cwd=cwd or self.folder,
            umask=0o022,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=DEADLINE_SECONDS,
            check=False,
        )

    def own(self, path: Path, text: str | None = None, mode: int = 0o644) -> Path:
        """A file of the user, or a folder if there is no text."""
        if text is None:
            path.mkdir(parents=True)
        else:
            path.write_text(text)
        path.chmod(mode if text is not None else 0o755)
        os.chown(path, self.uid, self.uid)
        return path


def as_user(uid: int) -> list[str]:
    """The shell is needed: setpriv itself still has root's capabilities when it executes a program."""
    return ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "sh", "-c", 'exec "$0" "$@"']


def readable_python() -> str:
    """The one of the tests may lie in a home that others cannot enter."""
    for python in (sys.executable, "/usr/bin/python3"):
        argv = [*as_user(40011), python, "-c", "import sys; sys.exit(sys.version_info < (3, 10))"]
        if subprocess.run(argv, cwd="/", stderr=subprocess.DEVNULL, check=False).returncode == 0:
            return python
    raise AssertionError("no Python 3.10 or newer that every user can run; /usr/bin/python3 was tried")


def copy_packages(target: Path) -> None:
    folders = [Path(package.__file__).parent]
    for name in PACKAGES:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.origin is not None:
            folders.append(Path(spec.origin).parent)
    for folder in folders:
        shutil.copytree(folder, target / folder.name, ignore=shutil.ignore_patterns("__pycache__"))


@pytest.fixture
def users():
    """Two users and a project folder that both may write to, as a group's shared folder."""
    place = Path(tempfile.mkdtemp(prefix="two-users-"))
    place.chmod(0o755)
    (place / "project").mkdir()
    (place / "project").chmod(0o777)
    copy_packages(place / "lib")
    python = readable_python()
    yield User(40011, place, python), User(40012, place, python)
    shutil.rmtree(place)
