"""What checkpoint.steps costs a step: the count, the report, a look at the notice, and the ranks' agreement."""

import shutil
import statistics

from harness import Trial, ours, repeats


def microseconds(length: str, steps: str) -> list[float]:
    trial = Trial()
    process = trial.start([*ours(2, "step_cost.py"), length, steps])
    if process.wait(300) != 0:
        raise SystemExit((trial.folder / "output").read_text()[-3000:])
    values = [float(word) for word in (trial.folder / "results").read_text().split()]
    shutil.rmtree(trial.folder)
    return values


print("\nThe library's cost per step, 2 ranks, time of the main thread (under 20 us)")
print(f"  {'a step of':<28}{'median':>10}{'least':>10}{'most':>10}  us")
for length, steps in (("0.001", "1000"), ("0.01", "200")):
    values = [value for _ in range(repeats(1)) for value in microseconds(length, steps)]
    numbers = f"{statistics.median(values):>10.1f}{min(values):>10.1f}{max(values):>10.1f}"
    print(f"  {float(length) * 1000:<4g}{'ms':<24}{numbers}  us")
