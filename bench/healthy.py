"""Healthy runs of different shapes: how many alarms do they raise? There must be none.

Shapes (scripts/healthy.py): a slow first step, a silent evaluation on all ranks and on rank 0 alone, slow saves, uneven
input, steps of one second, and no reports at all. With `--minutes 30` the evaluations are silent for five minutes.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

from harness import Trial, ours

ROOT = Path(__file__).parents[1]
WEIGHTS = {
    "slow_start": 1,
    "evaluation": 4,
    "evaluation_on_rank_0": 4,
    "slow_save": 1.5,
    "uneven_input": 1,
    "one_second_steps": 1,
    "no_reports": 1,
}
"""The share of each shape in the time."""
START_SECONDS = 120
ALARMS = ("fault", "warning", "slow")


def run_shape(shape: str, seconds: float, flags: list[str]) -> tuple[float, list[str]]:
    """Seconds of the run, and its alarms."""
    trial = Trial()
    argv = [*ours(2, "healthy.py", "-N", "2", *flags), shape, str(seconds)]
    began = time.monotonic()
    environ = {**trial.env, "PYTHONPATH": str(ROOT / "src")}
    with (trial.folder / "output").open("wb") as output:
        code = subprocess.run(
            argv, env=environ, cwd=trial.folder, stdout=output, stderr=output, timeout=2 * seconds + START_SECONDS
        ).returncode
    return time.monotonic() - began, alarms_of(trial.folder, code)


def alarms_of(folder: Path, code: int) -> list[str]:
    events = [json.loads(line) for path in folder.glob("runs/*/events.jsonl") for line in path.open()]
    found = [str(event.get("fault") or event.get("text")) for event in events if event["kind"] in ALARMS]
    if code and not found:
        found.append(f"exit code {code}: {(folder / 'output').read_text(errors='replace')[-500:]}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=3, help="in total")
    parser.add_argument("--only", choices=sorted(WEIGHTS), action="append")
    parser.add_argument("--hang-timeout", help="instead of the learned one, for example 60s")
    arguments = parser.parse_args()
    shapes = {name: weight for name, weight in WEIGHTS.items() if name in (arguments.only or WEIGHTS)}
    flags = ["--hang-timeout", arguments.hang_timeout] if arguments.hang_timeout else []
    total = 0
    print(f"{'shape':<24}{'seconds':>8}{'alarms':>8}")
    for shape, weight in shapes.items():
        took, alarms = run_shape(shape, 60 * arguments.minutes * weight / sum(shapes.values()), flags)
        total += len(alarms)
        print(f"{shape:<24}{took:>8.0f}{len(alarms):>8}")
        for alarm in alarms:
            print(f"    {alarm}")
        sys.stdout.flush()
    print(f"\n{total} alarms in {arguments.minutes:g} minutes of training")
    sys.exit(total > 0)


if __name__ == "__main__":
    main()
