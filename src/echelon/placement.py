"""Computes the placement of ranks: rank numbers, and the variables, threads and GPUs of each rank."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from echelon.record import record

STORE_KEY = "ECHELON_STORE_KEY"
REJECTED_CHECKPOINT = "ECHELON_REJECTED_CHECKPOINT"


@record
class Placement:
    """One node's part of a generation. It determines all variables of its ranks."""

    run_id: str
    attempt: int
    generation: int
    node_rank: int
    nodes: int
    procs_per_node: int
    main_address: str
    main_port: int
    store_is_up: bool
    """The rendezvous store already listens on the main port, so that ranks do not start one."""
    max_restarts: int
    launcher_port: int = 0
    """The rendezvous port of a launcher's own processes, if it is not the main port."""
    store_key: str = field(default="", repr=False)
    """Signs the values that ranks of this generation exchange through the store."""
    rejected_checkpoint: str = ""
    """Load another checkpoint if possible: the run failed several times soon after a restore of this one."""

    @property
    def world_size(self) -> int:
        return self.nodes * self.procs_per_node

    def rank(self, local_rank: int) -> int:
        return self.node_rank * self.procs_per_node + local_rank

    def variables(self, local_rank: int) -> dict[str, str]:
        """The variables that torchrun would set, and those that the echelon library reads."""
        rank, world_size = str(self.rank(local_rank)), str(self.world_size)
        return {
            "RANK": rank,
            "LOCAL_RANK": str(local_rank),
            "WORLD_SIZE": world_size,
            "LOCAL_WORLD_SIZE": str(self.procs_per_node),
            "GROUP_RANK": str(self.node_rank),
            "GROUP_WORLD_SIZE": str(self.nodes),
            "ROLE_NAME": "default",
            "ROLE_RANK": rank,
            "ROLE_WORLD_SIZE": world_size,
            "MASTER_ADDR": self.main_address,
            "MASTER_PORT": str(self.main_port),
            "TORCHELASTIC_RUN_ID": self.run_id,
            "TORCHELASTIC_RESTART_COUNT": str(self.generation),
            "TORCHELASTIC_MAX_RESTARTS": str(self.max_restarts),
            "TORCHELASTIC_USE_AGENT_STORE": str(self.store_is_up),
            "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
            "ECHELON_RUN_ID": self.run_id,
            "ECHELON_ATTEMPT": str(self.attempt),
            "ECHELON_GENERATION": str(self.generation),
            STORE_KEY: self.store_key,
            **({REJECTED_CHECKPOINT: self.rejected_checkpoint} if self.rejected_checkpoint else {}),
        }


def threads_per_rank(cores: int, ranks: int) -> int:
    """An equal share of the cores. torchrun's fixed 1 wastes most of a machine without GPUs."""
    return max(1, cores // max(1, ranks))


def gpus_of_node(visible: tuple[str, ...], node: int, gpus_per_node: int) -> tuple[str, ...]:
    """The GPUs of one rehearsed node on this machine: consecutive, never shared."""
    return visible[node * gpus_per_node : (node + 1) * gpus_per_node]


def parse_ports(text: str) -> range:
    """Parses `29500` or `29500-29599`. Raises ValueError."""
    first, _, last = text.partition("-")
    ports = range(int(first), int(last or first) + 1)
    if not ports or ports[0] < 1 or ports[-1] > 65535:
        raise ValueError(f"{text!r} is not a range of ports")
    return ports


@record
class RankPlace:
    """One rank of a generation, and the facts that determine its SLURM_*, PBS_* and MPI variables."""

    placement: Placement
    local_rank: int
    hosts: str = ""
    """The names of the generation's nodes by node rank, as a host list."""
    has_mpi_variables: bool = False
    """The launcher of this rank set its MPI variables, which are correct."""
    user_variables: tuple[str, ...] = ()
    """Variables that the user set. They do not change."""
    nodefile: str = ""
    """The path of this generation's PBS_NODEFILE."""

    @property
    def rank(self) -> int:
        return self.placement.rank(self.local_rank)


RANK_VARIABLES = frozenset(
    Placement(
        run_id="",
        attempt=0,
        generation=0,
        node_rank=0,
        nodes=1,
        procs_per_node=1,
        main_address="",
        main_port=0,
        store_is_up=False,
        max_restarts=0,
    ).variables(0)
) | {
    REJECTED_CHECKPOINT,
    "ECHELON_RUN_DIR",
    "ECHELON_NODE_DIR",
    "ECHELON_FOLDER",
    "ECHELON_SUBMIT_DIR",
    "TORCHELASTIC_ERROR_FILE",
}
NODE_VARIABLES = frozenset(
    {"OMP_NUM_THREADS", "GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "CUDA_VISIBLE_DEVICES"}
    | {"PYTORCH_NVML_BASED_CUDA_CHECK"}
)
"""Variables that a node of an outer run may have set. Outside of a run they are the user's."""


def without_outer_run(environ: Mapping[str, str]) -> dict[str, str]:
    dropped = RANK_VARIABLES | (NODE_VARIABLES if "ECHELON_RUN_ID" in environ else frozenset())
    return {name: value for name, value in environ.items() if name not in dropped}
