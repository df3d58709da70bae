"""Neighbour sampling with torch alone: PyG's NeighborLoader needs pyg-lib or torch-sparse, which few clusters have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from graph import Graph


@dataclass(frozen=True)
class Layer:
    """One hop: edges from nodes to targets, both numbered by their places in these lists."""

    nodes: torch.Tensor
    """In the graph's own numbers: all targets, and the neighbours that were drawn."""
    targets: torch.Tensor
    """Their places in `nodes`."""
    edges: torch.Tensor

    def to(self, device: torch.device) -> Layer:
        """What the model needs of it there; the nodes stay where the graph is."""
        return Layer(self.nodes, self.targets.to(device), self.edges.to(device))


def layers(graph: Graph, seeds: torch.Tensor, fanouts: Sequence[int], generator: torch.Generator) -> list[Layer]:
    """What is needed to compute the seeds, the outermost hop first: `layers(...)[0].nodes` are those to fetch."""
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
    """At most `fanout` neighbours of each seed, none of its edges twice: the seed's place, and the neighbour.

    All edges of the seeds are laid out row by row and shuffled inside of their rows; the first few of each row stay.
    """
    first = graph.starts[seeds]
    degrees = graph.starts[seeds + 1] - first
    rows = torch.repeat_interleave(degrees)
    before = degrees.cumsum(0) - degrees
    columns = torch.arange(len(rows)) - before[rows]
    shuffled = torch.argsort(rows + torch.rand(len(rows), dtype=torch.float64, generator=generator))
    kept = shuffled[columns < fanout]
    return rows[kept], graph.neighbours[first[rows[kept]] + columns[kept]]
