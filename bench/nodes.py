"""Runs `true` on 64 rehearsed nodes, and counts the runs that fail: `nodes.py [RUNS]`."""

import statistics
import sys
import time

from harness import Trial, repeats

NODES = 64


def run() -> tuple[int, float]:
    """The exit code of a run and its duration in seconds."""
    trial = Trial()
    argv = [sys.executable, "-m", "echelon", "run", "--on", "local", "-N", str(NODES), "--procs-per-node", "1"]
    began = time.monotonic()
    code = trial.start([*argv, "--", "true"]).wait()
    if code != 0:
        print((trial.folder / "output").read_text()[-3000:])
    return code, time.monotonic() - began


results = [run() for _ in range(repeats(20))]
failed = sum(code != 0 for code, _ in results)
seconds = statistics.median(taken for _, taken in results)
print(f"\n{NODES} rehearsed nodes: {failed} of {len(results)} runs failed, {seconds:.1f} s each (median)")
sys.exit(failed > 0)
