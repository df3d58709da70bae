"""CPU time of `echelon --help` and `echelon render`, compared with torchrun's --help and an import of click."""

import resource
import statistics
import subprocess
import sys
from pathlib import Path

from harness import Trial, repeats, side_by_side, table


def milliseconds(*argv: str) -> float:
    trial = Trial()
    (trial.folder / "train.py").touch()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(argv, env=trial.env, cwd=trial.folder, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1000 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def script(name: str) -> str:
    return str(Path(sys.executable).with_name(name))


results = side_by_side(
    {
        "echelon --help": lambda: milliseconds(script("echelon"), "--help"),
        "echelon render train.py": lambda: milliseconds(script("echelon"), "render", "-N", "2", "train.py"),
        "torchrun --help": lambda: milliseconds(script("torchrun"), "--help"),
        "python -c 'import click'": lambda: milliseconds(sys.executable, "-c", "import click"),
        "python -c pass": lambda: milliseconds(sys.executable, "-c", "pass"),
    },
    repeats(15),
)
table("CPU time of the command line", "ms", results, ours="echelon --help", bound="under 80 ms")

print("\nThe same as multiples of `python -c pass`")
for name, values in results.items():
    if name.startswith("echelon"):
        print(f"  {name:<36}{statistics.median(values) / statistics.median(results['python -c pass']):>10.1f}")
