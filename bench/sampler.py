"""Time to a rank's first index, memory, and time per index, compared with torch's DistributedSampler."""

import subprocess
import sys

from harness import SCRIPTS, Trial, repeats, side_by_side, table


def cost(kind: str, measure: str, length: int, ranks: int) -> float:
    trial = Trial()
    argv = [sys.executable, str(SCRIPTS / "samples.py"), kind, measure, str(length), str(ranks)]
    return float(subprocess.run(argv, env=trial.env, cwd=trial.folder, capture_output=True, check=True).stdout)


for measure, title, unit, length, ranks, bound in (
    ("first", "Time to a rank's first index", "ms", 10**8, 8, "at least 100 times faster"),
    ("memory", "Memory for a rank's indices", "MiB", 10**8, 8, "at least 1,000 times less"),
    ("each", "Cost of each index", "ns", 10**6, 8, "not higher"),
    ("each", "Cost of each index", "ns", 10**7, 8, "not higher"),
    ("each", "Cost of each index", "ns", 10**6, 1, "not higher"),
    ("each", "Cost of each index", "ns", 10**7, 1, "not higher"),
):
    asked = (measure, length, ranks)
    results = side_by_side(
        {
            "ElasticSampler": lambda asked=asked: cost("echelon", *asked),
            "DistributedSampler": lambda asked=asked: cost("torch", *asked),
        },
        repeats(3),
    )
    title = f"{title}, {length:,} samples, {ranks} rank{'s' * (ranks > 1)}"
    table(title, unit, results, ours="ElasticSampler", bound=bound)
