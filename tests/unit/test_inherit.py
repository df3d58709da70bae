"""What a run that a rank starts must not inherit."""

import pytest

from echelon.placement import without_outer_run

MINE = {"PATH": "/bin", "HOME": "/root", "MY_RANK": "3", "ECHELON_RUNS": "/runs"}


@pytest.mark.parametrize(
    "name",
    [
        "RANK",
        "LOCAL_RANK",
        "WORLD_SIZE",
        "MASTER_ADDR",
        "MASTER_PORT",
        "TORCHELASTIC_RUN_ID",
        "GROUP_RANK",
        "ECHELON_RUN_ID",
        "ECHELON_NODE_DIR",
        "ECHELON_ATTEMPT",
        "ECHELON_GENERATION",
    ],
)
def test_the_rank_of_an_outer_run_is_not_inherited(name):
    assert without_outer_run({**MINE, name: "1"}) == MINE


@pytest.mark.parametrize("name", ["OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "GLOO_SOCKET_IFNAME"])
def test_node_variables_outside_of_a_run_are_kept(name):
    assert without_outer_run({**MINE, name: "1"}) == {**MINE, name: "1"}
    assert without_outer_run({**MINE, name: "1", "ECHELON_RUN_ID": "x"}) == MINE
