"""The `echelon` command on this machine. Checks that its runs leave no process."""

import os
import shutil
import signal
import subprocess
import tempfile
import uuid
from pathlib import Path

import pytest

from running import DEADLINE_SECONDS, AnyTool, marked_processes, patience, wait_for


class Tool(AnyTool):
    """`echelon`, as a user would type it, in a folder of its own."""

    def __init__(self, folder: Path, mark: str) -> None:
        self.folder = folder
        self.mark = mark
        self.tmp = Path(tempfile.mkdtemp())  # a short name: sockets in it have no room for long ones
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("ECHELON_", "SLURM_", "PBS_"))}
        self.env = {
            **inherited,
            "HOME": str(folder),
            "TMPDIR": str(self.tmp),
            "ECHELON_RUNS": str(folder / "runs"),
            "ECHELON_ON": "local",
            "XDG_STATE_HOME": str(folder / "state"),
            "XDG_CONFIG_HOME": str(folder / "config"),
            "TEST_MARK": mark,
        }

    def __call__(self, *args, env=None, cwd=None, **options) -> subprocess.CompletedProcess:
        return subprocess.run(
            self.argv(*args),
            env={**self.env, **(env or {})},
            cwd=cwd or self.folder,
            capture_output=True,
            text=True,
            timeout=patience(DEADLINE_SECONDS),
            stdin=subprocess.DEVNULL,
            check=False,
            **options,
        )

    def start(self, *args, env=None, **options) -> subprocess.Popen:
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL, **options}
        return subprocess.Popen(
            self.argv(*args), env={**self.env, **(env or {})}, cwd=self.folder, text=True, **options
        )


@pytest.fixture
def echelon(tmp_path):
    tool = Tool(tmp_path, uuid.uuid4().hex)
    yield tool
    try:
        wait_for(lambda: not marked_processes(tool.mark), "every process of the test to be gone", 10)
    except AssertionError:
        left = marked_processes(tool.mark)
        for pid, _ in left:
            os.kill(pid, signal.SIGKILL)
        pytest.fail(f"left running: {left}")
    left = list(tool.tmp.glob("echelon-*"))
    shutil.rmtree(tool.tmp)
    assert left == [], "left in the temporary folder"
    assert list(tool.folder.glob("runs/*/token")) == [], "a token outlived its attempt"
