"""GraphSAGE on sampled neighbours: the samples, the accuracy and the exact continuation."""

import re
import sys
from pathlib import Path

import pytest
import torch

FOLDER = Path(__file__).parents[2] / "examples" / "graph_sage"
SMALL = ("--nodes", "8000", "--edges", "120000", "--epochs", "4", "--batch-size", "64")


@pytest.fixture
def modules(monkeypatch):
    """The example's own, as its script imports them."""
    monkeypatch.syspath_prepend(str(FOLDER))
    import graph
    import neighbours

    yield graph, neighbours
    for module in (graph, neighbours):
        del sys.modules[module.__name__]


def by_node(graph, node):
    return graph.neighbours[graph.starts[node] : graph.starts[node + 1]].tolist()


def epochs(output):
    """Loss and accuracy in percent that rank 0 printed after each epoch."""
    found = re.findall(r"^\[0\] epoch (\d+)  loss (\S+)  accuracy (\S+)%$", output, re.MULTILINE)
    assert [int(number) for number, _, _ in found] == list(range(1, len(found) + 1))
    return [(float(loss), float(share)) for _, loss, share in found]


def test_each_seed_gets_different_edges_up_to_the_fanout(modules):
    graphs, neighbours = modules
    graph = graphs.generate_graph(400, 900, seed=3)
    seeds = torch.arange(400)
    rows, drawn = neighbours.sample(graph, seeds, 4, torch.Generator().manual_seed(1))
    assert 0 in (graph.starts[1:] - graph.starts[:-1]), "some node here has no neighbour"
    for node in range(400):
        left = by_node(graph, node)
        own = drawn[rows == node].tolist()
        assert len(own) == min(4, len(left))
        for neighbour in own:
            left.remove(neighbour)  # each edge once


def test_every_edge_may_be_drawn_and_draws_are_reproducible(modules):
    graphs, neighbours = modules
    graph = graphs.generate_graph(400, 4000, seed=3)
    seed = torch.tensor([7])
    draws = [neighbours.sample(graph, seed, 2, torch.Generator().manual_seed(i))[1].tolist() for i in range(300)]
    assert {neighbour for draw in draws for neighbour in draw} == set(by_node(graph, 7))
    assert draws[5] == neighbours.sample(graph, seed, 2, torch.Generator().manual_seed(5))[1].tolist()


def test_hops_are_consistent(modules):
    graphs, neighbours = modules
    graph = graphs.generate_graph(400, 4000, seed=3)
    seeds = torch.tensor([5, 300, 7])
    outer, inner = neighbours.layers(graph, seeds, (3, 2), torch.Generator().manual_seed(1))
    assert inner.nodes[inner.targets].tolist() == seeds.tolist()
    assert outer.nodes[outer.targets].tolist() == inner.nodes.tolist()
    for hop, targets in ((outer, inner.nodes), (inner, seeds)):
        for source, target in zip(hop.nodes[hop.edges[0]].tolist(), targets[hop.edges[1]].tolist(), strict=True):
            assert source in by_node(graph, target)


@pytest.mark.torch
def test_training_learns_and_a_killed_rank_changes_nothing(echelon):
    run = ("run", "-N", "2", "--procs-per-node", "2", "--restarts", "1", FOLDER / "train.py", *SMALL)
    whole, killed = echelon(*run), echelon(*run, "--kill-rank", "3")
    assert whole.returncode == 0, whole.stderr + whole.stdout
    assert killed.returncode == 0, killed.stderr + killed.stdout
    assert "4 ranks with 1600 nodes each" in whole.stdout
    shares = [share for _, share in epochs(whole.stdout)]
    assert len(shares) == 4
    assert shares[-1] > max(45, shares[0] + 10), "features alone give 42%, chance 12.5%"
    assert "rank 3 on node1 was killed by SIGKILL" in killed.stderr
    assert "resumed from step " in killed.stdout
    told_again = {line for line in killed.stdout.splitlines() if "accuracy" in line}
    assert told_again == {line for line in whole.stdout.splitlines() if "accuracy" in line}
    assert (whole.stdout + killed.stdout).count("made graph-data") == 1, "one rank makes the graph, once"
