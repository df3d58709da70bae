"""Real runs of the real command line, and the promise that nothing of them is left."""

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parent / "scripts"
DEADLINE_SECONDS = 90


class Tool:
    """`echelon`, as a user would type it, in a folder of its own."""

    def __init__(self, folder: Path, mark: str) -> None:
        self.folder = folder
        self.mark = mark
        self.tmp = folder / "tmp"
        self.tmp.mkdir()
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

    def argv(self, *args: str) -> list[str]:
        return [sys.executable, "-m", "echelon", *map(str, args)]

    def __call__(self, *args, env=None, cwd=None, **options) -> subprocess.CompletedProcess:
        return subprocess.run(
            self.argv(*args),
            env={**self.env, **(env or {})},
            cwd=cwd or self.folder,
            capture_output=True,
            text=True,
            timeout=DEADLINE_SECONDS,
            stdin=subprocess.DEVNULL,
            check=False,
            **options,
        )

    def start(self, *args, env=None, **options) -> subprocess.Popen:
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL, **options}
        return subprocess.Popen(
            self.argv(*args), env={**self.env, **(env or {})}, cwd=self.folder, text=True, **options
        )

    def submit(self, *args, env=None) -> "Run":
        result = self("submit", *args, env=env)
        assert result.returncode == 0, result.stderr
        return Run(self, result.stdout.strip())

    def only_run(self) -> "Run":
        (path,) = (self.folder / "runs").iterdir()
        return Run(self, path.name)

    def script(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.write_text(text)
        return path


class Run:
    def __init__(self, tool: Tool, run_id: str) -> None:
        self.tool = tool
        self.id = run_id
        self.path = tool.folder / "runs" / run_id

    def events(self, kind: str | None = None) -> list[dict]:
        path = self.path / "events.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return [event for event in map(json.loads, lines) if kind in (None, event["kind"])]

    def status(self) -> dict:
        return json.loads(self.tool("status", "--json", self.id).stdout)

    def rank_log(self, rank: int, attempt: int = 0) -> str:
        path = self.path / f"attempt-{attempt}" / f"rank-{rank}.out"
        return path.read_text() if path.exists() else ""

    def pid_of(self, rank: int, generation: int = 0) -> int:
        ready = wait_for(
            lambda: [e for e in self.events("rank_ready") if e["rank"] == rank and e["generation"] == generation],
            f"rank {rank} of generation {generation}",
        )
        return ready[0]["pid"]

    def supervisor(self) -> int:
        return wait_for(lambda: self.events("started"), "the supervisor")[-1]["pid"]

    def wait(self) -> dict:
        return wait_for(lambda: self.events("finished"), "the end of the run")[-1]


def wait_for(condition, what: str, seconds: float = 60):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.01)
    raise AssertionError(f"waited {seconds} s for {what}")


def marked_processes(mark: str) -> list[tuple[int, str]]:
    """Every living process that inherited the mark, with its command line."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            if f"TEST_MARK={mark}".encode() in (entry / "environ").read_bytes():
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                if "State:\tZ" not in (entry / "status").read_text():
                    found.append((int(entry.name), command))
        except OSError:
            continue
    return found


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
    assert list(tool.tmp.glob("echelon-*")) == [], "left in the temporary folder"
    assert list(tool.folder.glob("runs/*/token")) == [], "a token outlived its attempt"
