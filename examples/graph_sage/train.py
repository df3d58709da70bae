"""GraphSAGE on sampled neighbours: equal shards for training, and an evaluation on all ranks.

echelon run -N 2 --procs-per-node 2 examples/graph_sage/train.py
"""

import argparse
import os
import signal
from pathlib import Path

import torch
from graph import CLASSES, FEATURES, Graph, load_graph
from neighbours import Layer, layers
from torch.nn.functional import cross_entropy, dropout, relu
from torch_geometric.nn import SAGEConv

import echelon

FANOUTS = (10, 10)
SEED = 0

parser = argparse.ArgumentParser()
parser.add_argument("--nodes", type=int, default=20_000)
parser.add_argument("--edges", type=int, default=300_000)
parser.add_argument("--epochs", type=int, default=5)
parser.add_argument("--batch-size", type=int, default=256, help="batch size of one rank")
parser.add_argument("--data", type=Path, default=Path("graph-data"), help="a folder that all ranks see")
parser.add_argument("--kill-rank", type=int, default=-1, help="this rank kills itself once, with SIGKILL")
parser.add_argument("--kill-at", type=int, default=50)


class SAGE(torch.nn.Module):
    def __init__(self, features: int, hidden: int, classes: int):
        super().__init__()
        self.first, self.second = SAGEConv(features, hidden), SAGEConv(hidden, classes)

    def forward(self, x: torch.Tensor, outer: Layer, inner: Layer) -> torch.Tensor:
        x = relu(self.first((x, x[outer.targets]), outer.edges))
        x = dropout(x, 0.3, self.training)
        return self.second((x, x[inner.targets]), inner.edges)


def predict(model: torch.nn.Module, graph: Graph, seeds: torch.Tensor, generator: torch.Generator, device):
    hops = layers(graph, seeds, FANOUTS, generator)
    x = graph.features[hops[0].nodes]
    return model(x.to(device), *(hop.to(device) for hop in hops))


@torch.no_grad()
def accuracy(model: torch.nn.Module, graph: Graph, nodes: torch.Tensor, world) -> float:
    """Divides the nodes between all ranks, each node once. One all_reduce adds the results."""
    model.eval()
    own = nodes[world.rank :: world.size]
    generator = torch.Generator().manual_seed(SEED)
    right = torch.zeros(())
    for seeds in own.split(1024):
        scores = predict(model.module, graph, seeds, generator, world.device)
        right += (scores.argmax(1).cpu() == graph.labels[seeds]).sum()
    model.train()
    mean = world.reduce_mean({"right": right, "nodes": len(own)})
    return mean["right"] / mean["nodes"]


def main() -> None:
    args = parser.parse_args()
    world = echelon.join()
    with world.main_first():
        graph = load_graph(args.data, nodes=args.nodes, edges=args.edges, seed=SEED)

    shuffled = torch.randperm(args.nodes, generator=torch.Generator().manual_seed(SEED))
    test, train = shuffled.split([args.nodes // 5, args.nodes - args.nodes // 5])
    own = world.shard(train)
    torch.manual_seed(SEED)
    model = world.wrap(SAGE(FEATURES, 64, CLASSES))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    doomed = os.environ.get("ECHELON_GENERATION") == "0" and world.rank == args.kill_rank
    world.print(f"{world.size} ranks with {len(own)} nodes each; {1 / CLASSES:.1%} is chance")

    with echelon.Checkpoint(model=model, optimizer=optimizer, every=20) as checkpoint:
        while checkpoint.epoch < args.epochs:
            epoch = checkpoint.epoch
            order = torch.randperm(len(own), generator=torch.Generator().manual_seed(epoch))
            for seeds in checkpoint.steps(own[order].split(args.batch_size)):
                if doomed and checkpoint.step == args.kill_at:
                    os.kill(os.getpid(), signal.SIGKILL)
                generator = torch.Generator().manual_seed(checkpoint.step * world.size + world.rank)
                scores = predict(model, graph, seeds, generator, world.device)
                loss = cross_entropy(scores, graph.labels[seeds].to(world.device))
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            loss = world.reduce_mean({"loss": loss})["loss"]
            world.print(f"epoch {epoch + 1}  loss {loss:.3f}  accuracy {accuracy(model, graph, test, world):.1%}")


if __name__ == "__main__":
    main()
