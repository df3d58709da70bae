"""A run on this machine inside a job or an mpirun: its ranks do not inherit the outer rank."""

import json

OUTER = {
    "SLURM_JOB_ID": "7",
    "SLURM_PROCID": "0",
    "SLURM_NTASKS": "1",
    "SLURM_LOCALID": "0",
    "SLURM_NODEID": "0",
    "SLURM_JOB_NODELIST": "n1",
    "PBS_JOBID": "3.server",
    "PBS_NODENUM": "0",
    "PBS_VNODENUM": "0",
    "OMPI_COMM_WORLD_RANK": "0",
    "OMPI_COMM_WORLD_SIZE": "1",
    "PMIX_RANK": "0",
    "PMIX_NAMESPACE": "99",
}
SHOW = """
import json, os
names = ("RANK", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_JOB_NODELIST", "PBS_NODENUM",
         "PBS_VNODENUM", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMIX_NAMESPACE")
hosts = open(os.environ["PBS_NODEFILE"]).read().split()
print(json.dumps([os.environ.get(name) for name in names] + [hosts]), flush=True)
"""


def test_every_variable_agrees_with_rank_and_world_size(echelon):
    size = ("-N", "2", "--procs-per-node", "2")
    result = echelon("run", *size, "--cold", echelon.script("show.py", SHOW), env=OUTER)
    assert result.returncode == 0, result.stderr
    seen = sorted(json.loads(line.partition("] ")[2]) for line in result.stdout.splitlines())
    hosts = ["node0", "node0", "node1", "node1"]
    assert seen == [
        [rank, rank, "4", local, node, "n1", node, rank, rank, "4", rank, None, hosts]
        for rank, local, node in (("0", "0", "0"), ("1", "1", "0"), ("2", "0", "1"), ("3", "1", "1"))
    ]
