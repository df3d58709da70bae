"""Helpers for tests on a real Slurm."""

from pathlib import Path

from running import Run, wait_for
from taken import steps

SCRIPTS = Path(__file__).parent / "scripts"
TRAIN, SAVE, THREE_WAYS = SCRIPTS / "train.py", SCRIPTS / "save.py", SCRIPTS / "three_ways.py"


def native_id(run: Run) -> str:
    return (run.path / "native_id").read_text().strip()


def kill_rank(cluster, run: Run, rank: int) -> None:
    """The pid of the event is the node's own; its node's processes are known by their machine-wide pids."""
    pid = run.pid_of(rank)
    host = next(event["hosts"] for event in run.events("generation"))[rank // 2]
    cluster.run(host, ["kill", "-KILL", str(pid)])


def waiting(run: Run, rank: int = 0) -> None:
    """Waits until the ranks are blocked at --wait-for."""
    wait_for(lambda: any(line.startswith("step 3 ") for line in steps(run, rank)), f"step 3 of rank {rank}")


def finished(run: Run, outcome: str, seconds: float = 90) -> dict:
    event = wait_for(lambda: run.events("finished"), "the end of the run", seconds)[-1]
    assert event["outcome"] == outcome, (event, (run.path / "job.out").read_text())
    return event
