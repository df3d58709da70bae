"""CPU time of `echelon --help` and `echelon render`, beside what the peers' --help costs."""

import os
import subprocess
import sys
from pathlib import Path

from harness import Trial, repeats, side_by_side, table


def milliseconds(*argv: str) -> float:
    trial = Trial()
    (trial.folder / "train.py").touch()
    before = os.times()
    subprocess.run(argv, env=trial.env, cwd=trial.folder, stdout=subprocess.DEVNULL, check=True)
    after = os.times()
    return 1000 * (after.children_user + after.children_system - before.children_user - before.children_system)


def script(name: str) -> str:
    return str(Path(sys.executable).with_name(name))


results = side_by_side(
    {
        "echelon --help": lambda: milliseconds(script("echelon"), "--help"),
        "echelon render train.py": lambda: milliseconds(script("echelon"), "render", "-N", "2", "train.py"),
        "torchrun --help": lambda: milliseconds(script("torchrun"), "--help"),
        "python -c pass": lambda: milliseconds(sys.executable, "-c", "pass"),
    },
    repeats(9),
)
table("CPU time of the command line", "ms", results, ours="echelon --help", bound="under 80 ms")
