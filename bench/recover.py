"""From SIGKILL of one rank to the next all_reduce of all eight: echelon and torchrun."""

import os
import signal
import time

from harness import Trial, ours, repeats, side_by_side, table, torchrun

RANKS = 8


def seconds(argv: list[str]) -> float:
    trial = Trial()
    process = trial.start(argv)
    marks = trial.wait_for("generation-0-*", RANKS)
    time.sleep(0.5)  # until all ranks are in the loop
    began = time.time()
    os.kill(int(marks[3].read_text().split()[1]), signal.SIGKILL)
    again = trial.wait_for("generation-1-*", RANKS)
    took = max(float(mark.read_text().split()[0]) for mark in again) - began
    process.send_signal(signal.SIGTERM)
    process.wait(90)
    return took


results = side_by_side(
    {
        "echelon run --restarts": lambda: seconds(ours(RANKS, "all_reduce_forever.py", "--restarts", "1")),
        "torchrun --max-restarts": lambda: seconds(torchrun(RANKS, "all_reduce_forever.py", "--max-restarts=1")),
    },
    repeats(5),
)
table(
    "SIGKILL of one rank to the next all_reduce of 8",
    "s",
    results,
    ours="echelon run --restarts",
    bound="at least 10 times faster",
)
