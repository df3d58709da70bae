"""A graph made up on the fly, in which the neighbours of a node tell more about it than its own features do."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

CLASSES = 8
FEATURES = 32
SAME_CLASS = 0.4
"""The share of edges inside of a class; the rest lead anywhere."""
NOISE = 5.0
"""Of a node's features: by them alone four of ten nodes can be told."""


@dataclass(frozen=True)
class Graph:
    """The neighbours of node i are neighbours[starts[i]:starts[i + 1]]."""

    starts: torch.Tensor
    neighbours: torch.Tensor
    features: torch.Tensor
    labels: torch.Tensor


def made(nodes: int, edges: int, seed: int) -> Graph:
    """Each of the edges counts in both directions."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(nodes) % CLASSES
    here = torch.randint(nodes, (edges,), generator=generator)
    alike = torch.randint(nodes // CLASSES, (edges,), generator=generator) * CLASSES + labels[here]
    anyone = torch.randint(nodes, (edges,), generator=generator)
    there = torch.where(torch.rand(edges, generator=generator) < SAME_CLASS, alike, anyone)
    ends, others = torch.cat([here, there]), torch.cat([there, here])
    centres = torch.randn(CLASSES, FEATURES, generator=generator)
    features = centres[labels] + NOISE * torch.randn(nodes, FEATURES, generator=generator)
    starts = torch.zeros(nodes + 1, dtype=torch.int64)
    starts[1:] = torch.bincount(ends, minlength=nodes).cumsum(0)
    return Graph(starts, others[ends.argsort(stable=True)], features, labels)


def loaded(folder: Path, *, nodes: int, edges: int, seed: int) -> Graph:
    """From the folder, into which it is put first if it is not there; whole or not at all, whenever this is stopped.

    The file is mapped and not read: all ranks of a node share one copy of it in memory.
    """
    path = folder / f"graph-{nodes}-{edges}-{seed}.pt"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(f".{os.getpid()}")
        torch.save(asdict(made(nodes, edges, seed)), part)
        part.replace(path)
        print(f"made {path}", flush=True)
    return Graph(**torch.load(path, mmap=True, weights_only=True))
