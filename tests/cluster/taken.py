"""The samples that a run used, from its output, and their order in an undisturbed run."""

from echelon import ElasticSampler
from running import Run


def steps(run: Run, rank: int, attempt: int = 0) -> list[str]:
    return [line for line in run.rank_log(rank, attempt).splitlines() if line.startswith("step ")]


def samples(run: Run, ranks: int, attempts: int = 1) -> list[int]:
    """In the order in which the world took them."""
    taken = []
    for attempt in range(attempts):
        columns = [[int(line.split()[-1]) for line in steps(run, rank, attempt)] for rank in range(ranks)]
        taken += [sample for row in zip(*columns, strict=True) for sample in row]
    return taken


def undisturbed(length: int) -> list[int]:
    return list(ElasticSampler(length, seed=7, rank=0, world_size=1))
