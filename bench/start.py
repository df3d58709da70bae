"""Cold start to the first all_reduce of all ranks, one node: echelon and torchrun."""

import time

from harness import Trial, ours, repeats, side_by_side, table, torchrun


def seconds(argv: list[str], ranks: int) -> float:
    trial = Trial()
    began = time.time()
    process = trial.start(argv)
    marks = trial.wait_for("first-*", ranks)
    process.wait(60)
    return max(float(mark.read_text()) for mark in marks) - began


for ranks, bound in ((4, "at least 2 times faster"), (8, "at least 2.5 times faster")):
    results = side_by_side(
        {
            "echelon run": lambda n=ranks: seconds(ours(n, "first_all_reduce.py"), n),
            "torchrun": lambda n=ranks: seconds(torchrun(n, "first_all_reduce.py"), n),
            "echelon run --cold": lambda n=ranks: seconds(ours(n, "first_all_reduce.py", "--cold"), n),
        },
        repeats(5),
    )
    table(f"Start to first all_reduce, {ranks} ranks", "s", results, ours="echelon run", bound=bound)
