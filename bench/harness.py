"""Shared by all benchmarks: runs the candidates alternately and prints medians, minimum, maximum and ratios."""

import atexit
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path

SCRIPTS = Path(__file__).parent / "scripts"
DEADLINE_SECONDS = 120
BEFORE = os.environ.get("BENCH_BEFORE")
"""Another checkout, which is measured in the same run (tools/bench --before FOLDER)."""


class Trial:
    """A separate folder and environ, and a variable in it by which all processes of the trial are found."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="bench-"))
        atexit.register(shutil.rmtree, self.folder, ignore_errors=True)
        self.mark = uuid.uuid4().hex
        (self.folder / "tmp").mkdir()  # torchrun never removes its own folders
        self.env = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
            "ECHELON_RUNS": str(self.folder / "runs"),
            "XDG_STATE_HOME": str(self.folder / "state"),
            "TMPDIR": str(self.folder / "tmp"),
            "BENCH_FOLDER": str(self.folder),
            "BENCH_MARK": self.mark,
        }

    def start(self, argv: list[str]) -> subprocess.Popen:
        with (self.folder / "output").open("wb") as output:
            return subprocess.Popen(argv, env=self.env, cwd=self.folder, stdout=output, stderr=output)

    def wait_for(self, pattern: str, count: int) -> list[Path]:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while time.monotonic() < deadline:
            found = sorted(self.folder.glob(pattern))
            if len(found) >= count:
                return found
            time.sleep(0.005)
        sys.exit(f"waited for {count} of {pattern}:\n{(self.folder / 'output').read_text()[-3000:]}")

    def processes(self) -> list[int]:
        found = []
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and f"BENCH_MARK={self.mark}".encode() in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
        return [pid for pid in found if pid != os.getpid()]


def ours(ranks: int, script: str, *flags: str) -> list[str]:
    return [sys.executable, "-m", "echelon", "run", "--on", "local", "-g", str(ranks), *flags, str(SCRIPTS / script)]


def torchrun(ranks: int, script: str, *flags: str) -> list[str]:
    head = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    return [*head, *flags, str(SCRIPTS / script)]


def side_by_side(rows: dict[str, Callable[[], float]], repeats: int) -> dict[str, list[float]]:
    """Alternates between the candidates, so that a noisy minute affects all of them."""
    rows = add_rows_before(rows) if BEFORE else rows
    results: dict[str, list[float]] = {name: [] for name in rows}
    for _ in range(repeats):
        for name, measure in rows.items():
            results[name].append(measure())
    return results


def add_rows_before(rows: dict[str, Callable[[], float]]) -> dict[str, Callable[[], float]]:
    """Adds the same row for the other checkout after each row of echelon."""
    both: dict[str, Callable[[], float]] = {}
    for name, measure in rows.items():
        both[name] = measure
        if name.startswith("echelon"):
            both[f"{name}, before"] = lambda measure=measure: measure_before(measure)
    return both


def measure_before(measure: Callable[[], float]) -> float:
    """Trials inherit PYTHONPATH, which takes precedence over the installed checkout."""
    os.environ["PYTHONPATH"] = f"{BEFORE}/src"
    try:
        return measure()
    finally:
        del os.environ["PYTHONPATH"]


def table(title: str, unit: str, results: dict[str, list[float]], *, ours: str, bound: str) -> None:
    """Prints median, minimum and maximum of each candidate, and its ratio to ours."""
    base = statistics.median(results[ours])
    print(f"\n{title} ({bound})")
    print(f"  {'':<36}{'median':>10}{'min':>10}{'max':>10}  {unit:<6}{'ratio':>10}")
    for name, values in results.items():
        middle = statistics.median(values)
        numbers = f"{middle:>10.3f}{min(values):>10.3f}{max(values):>10.3f}"
        print(f"  {name:<36}{numbers}  {unit:<6}{middle / base:>10.2f}")
    sys.stdout.flush()


def repeats(default: int) -> int:
    return int(sys.argv[1]) if len(sys.argv) > 1 else default
