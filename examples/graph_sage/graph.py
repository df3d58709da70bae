"""Generates a graph in which the neighbours of a node predict its class better than its own features do."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

CLASSES = 8
FEATURES = 32
SAME_CLASS = 0.4
"""The share of edges between nodes of one class; the other edges are random."""
NOISE = 5.0
"""Noise in a node's features: by them alone, four of ten nodes can be classified."""


@dataclass(frozen=True)
class Graph:
    """The neighbours of node i are neighbours[starts[i]:starts[i + 1]]."""

    starts: torch.Tensor
    neighbours: torch.Tensor
    features: torch.Tensor
    labels: torch.Tensor


def generate_graph(nodes: int, edges: int, seed: int) -> Graph:
    """Each edge counts in both directions."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(nodes) % CLASSES
    here = torch.randint(nodes, (edges,), generator=generator)
    alike = torch.randint(nodes // CLASSES, (edges,), generator=generator) * CLASSES + labels[here]
    random = torch.randint(nodes, (edges,), generator=generator)
    there = torch.where(torch.rand(edges, generator=generator) < SAME_CLASS, alike, random)
    ends, others = torch.cat([here, there]), torch.cat([there, here])
    centres = torch.randn(CLASSES, FEATURES, generator=generator)
    features = centres[labels] + NOISE * torch.randn(nodes, FEATURES, generator=generator)
    starts = torch.zeros(nodes + 1, dtype=torch.int64)
    starts[1:] = torch.bincount(ends, minlength=nodes).cumsum(0)
    return Graph(starts, others[ends.argsort(stable=True)], features, labels)


def load_graph(folder: Path, *, nodes: int, edges: int, seed: int) -> Graph:
    """Loads the graph, and creates its file first if it is missing. The file is never incomplete, because it is renamed
    when it is written.

    The file is mapped and not read: all ranks of a node share one copy of it in memory.
    """
    path = folder / f"graph-{nodes}-{edges}-{seed}.pt"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(f".{os.getpid()}")
        torch.save(asdict(generate_graph(nodes, edges, seed)), part)
        part.replace(path)
        print(f"made {path}", flush=True)
    return Graph(**torch.load(path, mmap=True, weights_only=True))
