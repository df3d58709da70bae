"""The examples on a real cluster, unchanged: the scripts that run on one machine, and the commands of their READMEs."""

import re
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"
GRAPH_SAGE = EXAMPLES / "graph_sage" / "train.py"


def test_graph_sage_learns_on_two_nodes_of_slurm(cluster, echelon):
    result = echelon(
        "run", "-N", "2", "--procs-per-node", "2", GRAPH_SAGE,
        "--nodes", "8000", "--edges", "120000", "--epochs", "3", "--batch-size", "64",
    )  # fmt: skip
    remove_what_pyg_leaves(cluster)
    assert result.returncode == 0, result.stderr + result.stdout
    assert "2 nodes x 2 ranks" in result.stderr
    assert "[0] 4 ranks with 1600 nodes each; 12.5% is chance" in result.stdout
    assert result.stdout.count("made graph-data") == 1
    shares = [float(share) for share in re.findall(r"accuracy (\S+)%", result.stdout)]
    assert len(shares) == 3
    assert shares[-1] > max(40, shares[0] + 5)
    assert echelon.only_run().events("generation")[0]["hosts"] == ["n1", "n2"]


def remove_what_pyg_leaves(cluster):
    """It writes the code that it generates to a temporary file, imports it, and leaves it there."""
    for name, paths in cluster.debris().items():
        its = [path for path in paths if path.name.startswith(("torch_geometric", "__pycache__"))]
        cluster.run(name, ["rm", "-rf", *its], user="root")
