"""Helpers for tests of a run on any backend: its events, status, logs and end."""

import json
import os
import sys
import time
from pathlib import Path

SCRIPTS = Path(__file__).parent / "runtime" / "scripts"
# For steps.py: time to be hurt, and soon over after that.
ONCE_MORE = ("--steps", "900", "--later-steps", "20", "--seconds", "0.05")
DEADLINE_SECONDS = 90
POLL_COST = 4
"""A poll waits this many times as long as its check took, so that polling takes at most a fifth of a core."""
LONGEST_PAUSE = 0.25


class AnyTool:
    """What `echelon` does for a test, wherever it is typed: `self(...)` calls it, `self.folder` is where."""

    folder: Path

    def argv(self, *args: str) -> list[str]:
        return [sys.executable, "-m", "echelon", *map(str, args)]

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
        path.chmod(0o755)
        return path


class Run:
    """A run that a tool submitted; the tool is called as `echelon` is, and has the folder that `runs` is in."""

    def __init__(self, tool, run_id: str) -> None:
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


def patience(seconds: float) -> float:
    """A deadline of `seconds` on an idle machine, scaled by its load: a busy one needs more time for the same work."""
    return seconds * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def wait_for(condition, what: str, seconds: float = 60, *, every: float = 0.01, failure: type = AssertionError):
    """Polls until the condition holds, and returns its value. A check that takes long is made less often."""
    began = time.monotonic()
    while time.monotonic() - began < patience(seconds):
        checked = time.monotonic()
        value = condition()
        if value:
            return value
        time.sleep(max(every, min(LONGEST_PAUSE, POLL_COST * (time.monotonic() - checked))))
    raise failure(f"waited {time.monotonic() - began:.0f} s for {what}")


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
