"""What a run does not inherit when it is started by a rank of another one: that one's rank, and what was set for it."""

from __future__ import annotations

from collections.abc import Mapping

from echelon.plan import Placement

RANK_VARIABLES = frozenset(
    Placement(
        run_id="", attempt=0, generation=0, node_rank=0, nodes=1, procs_per_node=1, main_address="", main_port=0,
        store_is_up=False, max_restarts=0,
    ).variables(0)
) | {
    *("ECHELON_RUN_DIR", "ECHELON_NODE_DIR", "ECHELON_FOLDER", "ECHELON_SUBMIT_DIR", "TORCHELASTIC_ERROR_FILE")
}  # fmt: skip
NODE_VARIABLES = frozenset(
    {"OMP_NUM_THREADS", "GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "CUDA_VISIBLE_DEVICES"}
    | {"PYTORCH_NVML_BASED_CUDA_CHECK"}
)
"""What an outer run's node may have set; outside of a run they are the user's own."""


def without_outer_run(environ: Mapping[str, str]) -> dict[str, str]:
    dropped = RANK_VARIABLES | (NODE_VARIABLES if "ECHELON_RUN_ID" in environ else frozenset())
    return {name: value for name, value in environ.items() if name not in dropped}
