"""`echelon` as run by each Python of the smoke tests: both its command line and its ranks."""

import functools
import os
import pwd
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from loopback_ssh import LoopbackSsh, sshd_program
from smoke_environments import ready_environments

from local_tool import echelon  # noqa: F401

SOURCE = Path(__file__).resolve().parents[2] / "src"
VERSIONS = """
import importlib.metadata, platform
try:
    torch = importlib.metadata.version("torch")
except importlib.metadata.PackageNotFoundError:
    torch = "none"
print(f"Python {platform.python_version()} (torch {torch})")
"""


def pytest_generate_tests(metafunc):
    """`python` is each one with torch; `any_python` is each one."""
    for name in {"python", "any_python"} & set(metafunc.fixturenames):
        ready = ready_environments(with_torch=name == "python")
        pythons = [Path(sys.executable), *(environment.executable for environment in ready)]
        metafunc.parametrize(name, pythons, ids=["this", *(environment.name for environment in ready)])


@pytest.fixture
def use(echelon, record_property):  # noqa: F811
    """`use(python)` is `echelon` run by that Python, from the clone."""

    def chosen(python: Path):
        record_property("smoke", versions_of(python))
        echelon.argv = lambda *args: [str(python), "-m", "echelon", *map(str, args)]
        echelon.env["PYTHONPATH"] = str(SOURCE)
        return echelon

    return chosen


@functools.cache
def versions_of(python: Path) -> str:
    return subprocess.run([python, "-c", VERSIONS], capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture(scope="session")
def ssh(tmp_path_factory):
    """The variables with which `ssh smoke` leads to an sshd on this machine."""
    if sshd_program() is None or shutil.which("ssh") is None:
        pytest.skip("no sshd or ssh is installed")
    if Path(pwd.getpwuid(os.geteuid()).pw_shell).name in ("nologin", "false"):
        pytest.skip("this account cannot log in: its shell runs no commands")
    server = LoopbackSsh(tmp_path_factory.mktemp("ssh"))
    yield {"PATH": f"{server.bin}:{os.environ['PATH']}"}
    server.close()
