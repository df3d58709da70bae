"""Samples neighbours with torch only: PyG's NeighborLoader needs pyg-lib or torch-sparse, which few clusters have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from graph import Graph


@dataclass(frozen=True)
class Layer:
    """One hop: edges from nodes to targets, both given by their indices in these lists."""

    nodes: torch.Tensor
    """Node numbers of the graph: all targets, and the neighbours that were drawn."""
    targets: torch.Tensor
    """Indices of the targets in `nodes`."""
    edges: torch.Tensor

    def to(self, device: torch.device) -> Layer:
        """Moves the targets and edges, which the model needs. The nodes stay beside the graph."""
        return Layer(self.nodes, self.targets.to(device), self.edges.to(device))


def layers(graph: Graph, seeds: torch.Tensor, fanouts: Sequence[int], generator: torch.Generator) -> list[Layer]:
    """The hops that are needed to compute the seeds, outermost first: `layers(...)[0].nodes` are the inputs."""
    found: list[Layer] = []
    for fanout in reversed(fanouts):
        found.insert(0, layer(graph, seeds, fanout, generator))
        seeds = found[0].nodes
    return found


def layer(graph: Graph, seeds: torch.Tensor, fanout: int, generator: torch.Generator) -> Layer:
    rows, drawn = sample(graph, seeds, fanout, generator)
    nodes, places = torch.unique(torch.cat([seeds, drawn]), return_inverse=True)
    targets, sources = places[: len(seeds)], places[len(seeds) :]
    return Layer(nodes, targets, torch.stack([sources, rows]))


def sample(
    graph: Graph, seeds: torch.Tensor, fanout: int, generator: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    """At most `fanout` neighbours of each seed, no edge twice. Returns the index of the seed and the neighbour.

    All edges of the seeds are arranged in one row per seed and shuffled in their row. The first ones of each row are
    used.
    """
    first = graph.starts[seeds]
    degrees = graph.starts[seeds + 1] - first
    rows = torch.repeat_interleave(degrees)
    before = degrees.cumsum(0) - degrees
    columns = torch.arange(len(rows)) - before[rows]
    shuffled = torch.argsort(rows + torch.rand(len(rows), dtype=torch.float64, generator=generator))
    kept = shuffled[columns < fanout]
    return rows[kept], graph.neighbours[first[rows[kept]] + columns[kept]]
