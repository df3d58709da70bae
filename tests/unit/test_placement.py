"""Ranks, GPUs, threads and ports by arithmetic."""

import pytest

from echelon.placement import Placement, gpus_of_node, parse_ports, threads_per_rank


def placement(**fields):
    return Placement(
        **{
            "run_id": "gpt-1",
            "attempt": 2,
            "generation": 1,
            "node_rank": 1,
            "nodes": 2,
            "procs_per_node": 4,
            "main_address": "10.0.0.1",
            "main_port": 29500,
            "store_is_up": True,
            "max_restarts": 3,
            **fields,
        }
    )


def test_ranks_get_the_variables_of_torchrun_and_echelon():
    assert placement().variables(2) == {
        "RANK": "6",
        "LOCAL_RANK": "2",
        "WORLD_SIZE": "8",
        "LOCAL_WORLD_SIZE": "4",
        "GROUP_RANK": "1",
        "GROUP_WORLD_SIZE": "2",
        "ROLE_NAME": "default",
        "ROLE_RANK": "6",
        "ROLE_WORLD_SIZE": "8",
        "MASTER_ADDR": "10.0.0.1",
        "MASTER_PORT": "29500",
        "TORCHELASTIC_RUN_ID": "gpt-1",
        "TORCHELASTIC_RESTART_COUNT": "1",
        "TORCHELASTIC_MAX_RESTARTS": "3",
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
        "ECHELON_RUN_ID": "gpt-1",
        "ECHELON_ATTEMPT": "2",
        "ECHELON_GENERATION": "1",
        "ECHELON_STORE_KEY": "",
    }


def test_cold_rank_creates_the_store_itself():
    assert placement(store_is_up=False).variables(0)["TORCHELASTIC_USE_AGENT_STORE"] == "False"


def test_every_rank_of_all_nodes_has_a_unique_number():
    ranks = [placement(node_rank=node, nodes=3).rank(local) for node in range(3) for local in range(4)]
    assert ranks == list(range(12))


@pytest.mark.parametrize(("cores", "ranks", "threads"), [(8, 2, 4), (8, 3, 2), (2, 4, 1), (1, 1, 1), (8, 0, 8)])
def test_cores_are_shared_out_evenly_and_everyone_has_one(cores, ranks, threads):
    assert threads_per_rank(cores, ranks) == threads


def test_rehearsed_nodes_get_consecutive_separate_gpus():
    visible = ("0", "1", "GPU-a", "3")
    assert gpus_of_node(visible, 0, 2) == ("0", "1")
    assert gpus_of_node(visible, 1, 2) == ("GPU-a", "3")


@pytest.mark.parametrize(
    ("text", "ports"), [("29500", range(29500, 29501)), ("1-65535", range(1, 65536)), ("7-9", range(7, 10))]
)
def test_ports_are_one_or_a_range(text, ports):
    assert parse_ports(text) == ports


@pytest.mark.parametrize("text", ["", "x", "0", "65536", "9-7", "1-65536", "-5", "1-2-3", "29500:29599", "1.5"])
def test_other_ports_are_refused(text):
    with pytest.raises(ValueError):
        parse_ports(text)
