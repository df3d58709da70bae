"""The stand-in PBS in the dialect of NCI's Gadi: a job requests totals, and the site divides them between nodes.

The nodes of the test cluster pose as those of gpuvolta. Their file names a host once for each of its CPUs, so whoever
counts lines counts no nodes.
"""

from __future__ import annotations

import math

from pbs.request import RESOURCES, Request
from pbs.server import Server

NODE_CPUS, NODE_GPUS = 48, 4


class Gadi(Server):
    queues = ("gpuvolta",)
    resources = RESOURCES | {"wd", "storage", "jobfs"}

    def __init__(self, cluster, **options) -> None:
        super().__init__(cluster, **options)
        self.lives.cpus, self.lives.gpus = NODE_CPUS, NODE_GPUS

    def rewrite(self, request: Request) -> None:
        """To as few nodes as have that many CPUs."""
        cpus, gpus = int(request.resources["ncpus"]), int(request.resources.get("ngpus", 0))
        nodes = math.ceil(cpus / NODE_CPUS)
        each = f"ncpus={cpus // nodes}:ngpus={gpus // nodes}:mpiprocs={cpus // nodes}"
        request.resources |= {"select": f"{nodes}:{each}", "place": "scatter"}
        request.variables |= {"PBS_NCPUS": str(cpus), "PBS_NGPUS": str(gpus), "PBS_NCI_NCPUS_PER_NODE": str(NODE_CPUS)}
