"""On a real Slurm of two nodes: from sbatch to the first all_reduce, and from a killed rank to the next one.

Echelon against the best hand-written script there is: one torchrun on each node by srun, with the c10d rendezvous.
Needs root, and what tools/test installs.
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path

from harness import DEADLINE_SECONDS, SCRIPTS, repeats, side_by_side, table

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "cluster"))

from cluster import Cluster, missing
from echelon.placement import Placement
from echelon.system import hostlist
from node import wait_for

RANKS_PER_NODE = 4
RANKS = 2 * RANKS_PER_NODE
BY_HAND = """#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1 --cpus-per-task=8
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n1)
port=$((20000 + SLURM_JOB_ID % 10000))
srun --cpus-per-task=8 {python} -m torch.distributed.run --nnodes=2 --nproc-per-node={ranks} \\
  --max-restarts={restarts} --rdzv-backend=c10d --rdzv-endpoint="$head:$port" --rdzv-id="$SLURM_JOB_ID" {script}
"""


class Trial:
    """A separate folder that all nodes see; jobs find it in BENCH_FOLDER."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.folder = cluster.make_folder()
        self.env = {
            "OMP_NUM_THREADS": "1",
            "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
            "BENCH_FOLDER": str(self.folder),
        }

    def by_hand(self, script: str, restarts: int = 0) -> float:
        """The time at which sbatch had accepted the job."""
        path = self.folder / "job.sh"
        path.write_text(
            BY_HAND.format(python=sys.executable, ranks=RANKS_PER_NODE, restarts=restarts, script=SCRIPTS / script)
        )
        self.cluster.run("ctl", ["sbatch", path], cwd=self.folder, env=self.env)
        return time.time()

    def ours(self, script: str, *flags: str) -> float:
        size = ["-N", "2", "--procs-per-node", str(RANKS_PER_NODE), "--cpus", "8"]
        argv = [sys.executable, "-m", "echelon", "submit", *size, *flags, SCRIPTS / script]
        run = self.cluster.run("ctl", argv, cwd=self.folder, env=self.env).stdout.strip()
        return (self.folder / "runs" / run / "native_id").stat().st_mtime

    def marks(self, pattern: str) -> list[Path]:
        return wait_for(lambda: len(found := self._written(pattern)) >= RANKS and found, pattern, DEADLINE_SECONDS)

    def _written(self, pattern: str) -> list[Path]:
        return sorted(path for path in self.folder.glob(pattern) if path.stat().st_size)

    def again(self, since: float) -> float:
        """The time at which the last rank was restarted. Under torchrun only the node of that rank counts a restart."""

        def back() -> dict[str, float]:
            times = {path.name.split("-")[-1]: float(path.read_text().split()[0]) for path in self._marks()}
            return {rank: moment for rank, moment in times.items() if moment > since}

        return max(wait_for(lambda: len(found := back()) >= RANKS and found, "all ranks", DEADLINE_SECONDS).values())

    def _marks(self) -> list[Path]:
        return sorted(self.folder.glob("generation-*"), key=lambda path: path.stat().st_mtime)

    def kill(self, pid: int) -> float:
        """Kills the process with this pid, which is on one of the nodes; ranks of torchrun may be on either."""
        for node in self.cluster.names:
            command = self.cluster.run(node, ["cat", f"/proc/{pid}/cmdline"], check=False).stdout
            environ = self.cluster.run(node, ["cat", f"/proc/{pid}/environ"], check=False).stdout
            if command and str(self.folder) in environ:
                began = time.time()
                self.cluster.run(node, ["kill", "-KILL", str(pid)])
                return began
        sys.exit(f"no node has the process {pid}")

    def end(self) -> None:
        self.cluster.cancel_all()
        wait_for(lambda: not self.cluster.leftovers(), "the nodes to be empty", DEADLINE_SECONDS)
        self.cluster.wait_idle()


def start_seconds(cluster: Cluster, submit: Callable[[Trial], float]) -> float:
    trial = Trial(cluster)
    began = submit(trial)
    took = max(float(mark.read_text()) for mark in trial.marks("first-*")) - began
    trial.end()
    return took


def recovery_seconds(cluster: Cluster, submit: Callable[[Trial], float]) -> float:
    trial = Trial(cluster)
    submit(trial)
    marks = trial.marks("generation-0-*")
    time.sleep(0.5)  # until all ranks are in the loop
    began = trial.kill(int(marks[5].read_text().split()[1]))
    took = trial.again(began) - began
    trial.end()
    return took


def planning_seconds(nodes: int) -> float:
    began = time.process_time()
    names = hostlist.expand(f"rack[01-10]n[0001-{nodes // 10:04}]")
    placements = [
        Placement(
            run_id="gpt",
            attempt=0,
            generation=0,
            node_rank=node,
            nodes=len(names),
            procs_per_node=8,
            main_address="10.0.0.1",
            main_port=29500,
            store_is_up=True,
            max_restarts=0,
        )
        for node in range(len(names))
    ]
    assert placements[-1].world_size == nodes * 8
    return time.process_time() - began


if missing():
    sys.exit(f"no Slurm here: {missing()}")
with Cluster(nodes=2) as cluster:
    table(
        "sbatch to the first all_reduce, 2 nodes x 4 ranks",
        "s",
        side_by_side(
            {
                "echelon submit": lambda: start_seconds(cluster, lambda t: t.ours("first_all_reduce.py")),
                "srun torchrun": lambda: start_seconds(cluster, lambda t: t.by_hand("first_all_reduce.py")),
            },
            repeats(5),
        ),
        ours="echelon submit",
        bound="at least 1.5 times faster",
    )
    forever = "all_reduce_forever.py"
    table(
        "SIGKILL of a rank on one of two nodes to the next all_reduce of 8",
        "s",
        side_by_side(
            {
                "echelon --restarts": lambda: recovery_seconds(cluster, lambda t: t.ours(forever, "--restarts", "1")),
                "torchrun --max-restarts": lambda: recovery_seconds(cluster, lambda t: t.by_hand(forever, 3)),
            },
            repeats(5),
        ),
        ours="echelon --restarts",
        bound="at least 10 times faster",
    )
planned = {"10,000 nodes x 8 ranks": [planning_seconds(10_000) for _ in range(repeats(5))]}
table("Host list and placement", "s", planned, ours="10,000 nodes x 8 ranks", bound="under 0.05 s")
