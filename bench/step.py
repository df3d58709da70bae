"""The CPU time that checkpoint.steps adds to a step: count, report, check for the notice, agreement of the ranks."""

import shutil
import statistics

from harness import Trial, ours, repeats

STEPS = {"of 1 ms": ("0.001", "1000"), "of 10 ms": ("0.01", "264"), "of the smallest DDP": ("0", "500")}


def pairs(length: str, steps: str) -> list[tuple[float, float]]:
    """Microseconds between two steps, without the library and with it."""
    trial = Trial()
    process = trial.start([*ours(2, "step_cost.py"), length, steps])
    if process.wait(300) != 0:
        raise SystemExit((trial.folder / "output").read_text()[-3000:])
    lines = (trial.folder / "results").read_text().splitlines()
    shutil.rmtree(trial.folder)
    return [(float(bare), float(with_it)) for bare, with_it in map(str.split, lines)]


print("\nCPU time between two steps of a loop over a DataLoader, 2 ranks, without and with the library (under 20 us)")
print(f"  {'steps':<22}{'without':>10}{'with':>10}{'more':>10}{'min':>10}{'max':>10}  us")
for name, (length, steps) in STEPS.items():
    found = [pair for _ in range(repeats(1)) for pair in pairs(length, steps)]
    bare, with_it = (statistics.median(side) for side in zip(*found, strict=True))
    more = [with_it - bare for bare, with_it in found]
    numbers = (bare, with_it, statistics.median(more), min(more), max(more))
    print(f"  {name:<22}{''.join(f'{number:>10.1f}' for number in numbers)}  us", flush=True)
