"""Runs short trainings that end in seven ways, and counts those that do not end: `exits.py [RUNS [WAY ...]]`."""

import os
import signal
import subprocess
import sys

from harness import Trial, ours, repeats

WAYS = ("local", "module-level", "two-models", "fsdp2", "no-destroy", "sys-exit", "exception")
SHAPES = {"1x4": ("-N", "1", "-g", "4"), "2x2": ("-N", "2", "-g", "2")}
HANG_SECONDS = 180


def ends(way: str, shape: tuple[str, ...]) -> bool:
    trial = Trial()
    argv = [*ours(4, "exits.py", *shape), way]
    process = trial.start(argv)
    try:
        code = process.wait(HANG_SECONDS)
    except subprocess.TimeoutExpired:
        for pid in trial.processes():
            os.kill(pid, signal.SIGKILL)
        process.wait()
        return False
    if (code == 0) is (way == "exception"):
        sys.exit(f"{way} ended with code {code}:\n{(trial.folder / 'output').read_text()[-3000:]}")
    return True


def main() -> int:
    runs, ways = repeats(3), sys.argv[2:] or WAYS
    hung = 0
    print("\nWarm ranks that do not exit")
    for way in ways:
        for name, shape in SHAPES.items():
            stuck = [ends(way, shape) for _ in range(runs)].count(False)
            hung += stuck
            print(f"  {way:<14}{name:>5}: {stuck} of {runs} runs did not end", flush=True)
    return 1 if hung else 0


sys.exit(main())
