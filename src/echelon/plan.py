"""Who is which rank: the variables each rank gets, by arithmetic alone."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Placement:
    """One node's share of a generation; enough to work out every variable of its ranks."""

    run_id: str
    attempt: int
    generation: int
    node_rank: int
    nodes: int
    procs_per_node: int
    main_address: str
    main_port: int
    store_is_up: bool
    """The rendezvous store already listens on the main port, so that no rank has to start one."""
    max_restarts: int
    launcher_port: int = 0
    """Where a launcher's own processes meet, if not at the main port."""

    @property
    def world_size(self) -> int:
        return self.nodes * self.procs_per_node

    def rank(self, local_rank: int) -> int:
        return self.node_rank * self.procs_per_node + local_rank

    def variables(self, local_rank: int) -> dict[str, str]:
        """What torchrun would set, and what our library looks for."""
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
        }


def threads_per_rank(cores: int, ranks: int) -> int:
    """Cores shared out evenly; torchrun's fixed 1 wastes most of a CPU machine."""
    return max(1, cores // max(1, ranks))


def gpus_of_node(visible: tuple[str, ...], node: int, gpus_per_node: int) -> tuple[str, ...]:
    """Which of this machine's GPUs a rehearsed node gets: consecutive, never shared."""
    return visible[node * gpus_per_node : (node + 1) * gpus_per_node]


def parse_ports(text: str) -> range:
    """`29500` or `29500-29599`; raises ValueError."""
    first, _, last = text.partition("-")
    ports = range(int(first), int(last or first) + 1)
    if not ports or ports[0] < 1 or ports[-1] > 65535:
        raise ValueError(f"{text!r} is not a range of ports")
    return ports
