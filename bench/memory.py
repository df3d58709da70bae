"""Memory of eight ranks in a loop of all_reduces, launcher included, as the kernel counts it (PSS)."""

import re
import signal
from pathlib import Path

from harness import Trial, ours, repeats, side_by_side, table, torchrun

RANKS = 8


def pss_mebibytes(pid: int) -> float:
    try:
        return int(re.search(r"^Pss:\s+(\d+)", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.M)[1]) / 1024
    except OSError:
        return 0.0


def mebibytes(argv: list[str]) -> float:
    trial = Trial()
    process = trial.start(argv)
    trial.wait_for("generation-0-*", RANKS)
    total = sum(map(pss_mebibytes, trial.processes()))
    process.send_signal(signal.SIGTERM)
    process.wait(90)
    return total


results = side_by_side(
    {
        "echelon run": lambda: mebibytes(ours(RANKS, "all_reduce_forever.py")),
        "torchrun": lambda: mebibytes(torchrun(RANKS, "all_reduce_forever.py")),
    },
    repeats(3),
)
table(
    "Memory of 8 ranks and their launcher, PSS", "MiB", results, ours="echelon run", bound="at most 0.6 of torchrun's"
)
