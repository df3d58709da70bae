"""From a fault that needs a new starter to the next all_reduce: a killed starter, a killed agent, a requeue.

Two rehearsed nodes with two ranks each. torchrun has no starter and no agent: its row is a killed launcher, and the
user starts it again.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from harness import SCRIPTS, Trial, repeats, side_by_side, table, torchrun

RANKS = 4
SCRIPT = str(SCRIPTS / "all_reduce_forever.py")


def echelon(*flags: str) -> list[str]:
    head = [sys.executable, "-m", "echelon", "run", "--on", "local", "-N", "2", "--procs-per-node", "2"]
    return [*head, *flags, SCRIPT]


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def starter(trial: Trial) -> int:
    return parent(int((trial.folder / "generation-0-3").read_text().split()[1]))


def agent(trial: Trial) -> int:
    lines = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in trial.processes()}
    return next(pid for pid, line in lines.items() if b"echelon.pyz\0agent" in line)


def after_kill(find: Callable[[Trial], int]) -> float:
    trial = Trial()
    process = trial.start(echelon("--restarts", "1"))
    trial.wait_for("generation-0-*", RANKS)
    time.sleep(0.5)  # until all ranks are in the loop
    killed = find(trial)
    began = time.time()
    os.kill(killed, signal.SIGKILL)
    return finish(process, trial.wait_for("generation-1-*", RANKS), began)


def after_requeue() -> float:
    """Ranks exit with 75 when they get SIGUSR1; the next attempt follows in the same process."""
    trial = Trial()
    trial.env["BENCH_NOTICE"] = "1"
    process = trial.start(echelon("--requeues", "1"))
    marks = trial.wait_for("attempt-0-*", RANKS)
    time.sleep(0.5)
    began = time.time()
    for mark in marks:
        os.kill(int(mark.read_text().split()[1]), signal.SIGUSR1)
    return finish(process, trial.wait_for("attempt-1-*", RANKS), began)


def launcher_again() -> float:
    trial = Trial()
    process = trial.start(torchrun(RANKS, "all_reduce_forever.py"))
    trial.wait_for("generation-0-*", RANKS)
    time.sleep(0.5)
    began = time.time()
    process.kill()
    process.wait()
    for pid in trial.processes():
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    for mark in trial.folder.glob("generation-0-*"):
        mark.unlink()
    process = trial.start(torchrun(RANKS, "all_reduce_forever.py"))
    return finish(process, trial.wait_for("generation-0-*", RANKS), began)


def finish(process: subprocess.Popen, marks: list[Path], began: float) -> float:
    took = max(float(mark.read_text().split()[0]) for mark in marks) - began
    process.send_signal(signal.SIGTERM)
    process.wait(90)
    return took


if __name__ == "__main__":
    results = side_by_side(
        {
            "echelon, killed starter": lambda: after_kill(starter),
            "echelon, killed agent": lambda: after_kill(agent),
            "echelon, requeue on this machine": after_requeue,
            "torchrun killed and started again": launcher_again,
        },
        repeats(5),
    )
    table("Fault to the next all_reduce of 4", "s", results, ours="echelon, killed starter", bound="no import of torch")
