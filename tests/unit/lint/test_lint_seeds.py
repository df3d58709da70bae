"""Scripts with the traps of five published tutorials, in our own words, and the exact findings in each.

The tutorials themselves are checked too if they are beside the project.
"""

from pathlib import Path

import pytest
from linting import findings

TUTORIALS = Path(__file__).parents[4] / "shared" / "seeds"

IN_PARTS = """\
# One task per GPU

The request comes first.

```bash
#!/bin/bash
#SBATCH -N 2
#SBATCH --ntasks=4   # one for each GPU
#SBATCH --gpus-per-task=1
```

Then the address.

```bash
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_PORT=$((20000 + SLURM_JOB_ID % 1000))
```

And the start.

```bash
srun python sample.py
```

```console
$ sbatch sample.sbatch
```
"""
CONTAINER = """\
# Two scripts

```bash
first=`scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1`
MASTER_ADDR=`cat /etc/hosts | grep $first | awk '{print $1}'`
enroot start --rw torch \\
    bash -c "start.sh \\$NODE_RANK $MASTER_ADDR"
```

```bash
torchrun --standalone \\
    --nnodes $NNODES \\
    --node_rank $NODE_RANK \\
    --master_addr $MASTER_ADDR \\
    train.py
```
"""
TWO_REQUESTS = """\
Several nodes
=============

.. code-block:: bash
   :linenos:

    # three nodes
    #SBATCH --nodes=3
    #SBATCH --ntasks=3
    #SBATCH --gres=gpu:4
    #SBATCH --gpus-per-node=4
    #SBATCH --mem=16Go

    ADDR=$(hostname)
    srun -l torchrun \\
        --nproc_per_node=$SLURM_GPUS_PER_NODE\\
        --nnodes=$SLURM_JOB_NUM_NODES\\
        --rdzv_id=$SLURM_JOB_ID\\
        --rdzv_backend=c10d\\
        --rdzv_endpoint=$ADDR\\
        train.py

.. code-block:: python

    import torch  # srun is not shell here
"""
PBS_TOTALS = """\
#!/bin/bash
#PBS -q gpuvolta
#PBS -l ncpus=96
#PBS -l ngpus=8
module load cuda
python3 /data/first.py
NODES=$(cat $PBS_NODEFILE | uniq)
MASTER_PORT=12355
torchrun --nnodes=2 --nproc_per_node=4 \\
    --node_rank=$PBS_NODEID \\
    --master_port=$MASTER_PORT /data/train.py
"""
REQUEUE = """\
# Two ways

### job.slurm

```bash
#!/bin/bash
#SBATCH --gres=gpu:4
##SBATCH --ntasks=2
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=6
readonly MASTER_ADDR_JOB=$SLURMD_NODENAME MASTER_PORT_JOB="12234"
readonly srun='srun --output=%x-%j.%t.out'
$srun bash \\
   task.sh $MASTER_PORT_JOB &
wait
```

### task.sh

```bash
#!/bin/bash
source /opt/forge/bin/activate
conda activate torch
python -m torch.distributed.launch --nproc_per_node=4 --node_rank=$SLURM_NODEID main.py --lr 1e-4 &
wait
```

## With accelerate

```sh
#!/bin/bash
#SBATCH --gres=gpu:4
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=8
#SBATCH --output=%x-%j.out
#SBATCH --signal=B:USR1@30
#SBATCH --requeue
function again {
   date
   scontrol requeue "$SLURM_JOBID"
}
if [[ -n "$SLURM_JOBID" ]]; then
   trap again USR1
fi
source setup_env.sh ""
head_node_ip=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
head_node_port=29507
srun accelerate launch \\
  --num_machines="$SLURM_NNODES" \\
  --rdzv_backend=c10d \\
  --main_process_ip="$head_node_ip" \\
  --main_process_port="$head_node_port" \\
  --machine_rank="$SLURM_NODEID" \\
  trainer.py
```
"""
CASES = {
    "in parts": (
        "a.md",
        IN_PARTS,
        [
            (8, "ntasks-without-per-node"),
            (22, "srun-without-kill-on-bad-exit"),
        ],
    ),
    "container": (
        "a.md",
        CONTAINER,
        [
            (5, "etc-hosts-address"),
            (7, "enroot-variable-not-passed"),
            (11, "standalone-multi-node"),
        ],
    ),
    "two requests": (
        "a.rst",
        TWO_REQUESTS,
        [
            (11, "mixed-gpu-requests"),
            (12, "invalid-value"),
            (15, "srun-without-kill-on-bad-exit"),
            (20, "endpoint-without-port"),
        ],
    ),
    "pbs totals": (
        "a.pbs",
        PBS_TOTALS,
        [
            (5, "setup-failure-ignored"),
            (8, "fixed-port"),
            (9, "launcher-on-first-node"),
            (10, "pbs-nodeid"),
        ],
    ),
    "requeue": (
        "a.md",
        REQUEUE,
        [
            (12, "fixed-port"),
            (14, "srun-cpus-per-task"),
            (14, "srun-without-kill-on-bad-exit"),
            (16, "exit-code-lost"),
            (23, "setup-failure-ignored"),
            (26, "exit-code-lost"),
            (37, "requeue-overwrites-log"),
            (38, "signal-reaches-only-bash"),
            (42, "requeue-without-limit"),
            (47, "setup-failure-ignored"),
            (49, "fixed-port"),
            (50, "trap-foreground-child"),
            (50, "srun-cpus-per-task"),
            (50, "srun-without-kill-on-bad-exit"),
            (55, "c10d-ignores-node-rank"),
            (55, "node-rank-in-batch-shell"),
        ],
    ),
}
IN_TUTORIALS = {
    "000": [(29, "ntasks-without-per-node"), (50, "srun-without-kill-on-bad-exit")],
    "001": [(92, "etc-hosts-address"), (148, "enroot-variable-not-passed"), (160, "standalone-multi-node")],
    "002": [
        (22, "mixed-gpu-requests"),
        (28, "invalid-value"),
        (43, "srun-without-kill-on-bad-exit"),
        (48, "endpoint-without-port"),
    ],
    "003": [
        (43, "setup-failure-ignored"),
        (57, "fixed-port"),
        (63, "launcher-on-first-node"),
        (64, "pbs-nodeid"),
    ],
    "004": [
        (32, "fixed-port"),
        (39, "srun-cpus-per-task"),
        (39, "srun-without-kill-on-bad-exit"),
        (44, "exit-code-lost"),
        (62, "setup-failure-ignored"),
        (83, "exit-code-lost"),
        (104, "requeue-overwrites-log"),
        (105, "signal-reaches-only-bash"),
        (117, "requeue-without-limit"),
        (129, "setup-failure-ignored"),
        (133, "fixed-port"),
        (139, "trap-foreground-child"),
        (139, "srun-cpus-per-task"),
        (139, "srun-without-kill-on-bad-exit"),
        (145, "c10d-ignores-node-rank"),
        (145, "node-rank-in-batch-shell"),
    ],
}


@pytest.mark.parametrize(("path", "text", "expected"), CASES.values(), ids=CASES)
def test_traps_of_the_tutorials_are_found_exactly(path, text, expected):
    assert findings(text, path) == expected


def test_the_tutorials_themselves_have_these_findings():
    """Without the folder there is nothing to compare: the scripts above contain the same traps."""
    found = {path.name[:3]: findings(path.read_text(), str(path)) for path in TUTORIALS.glob("*.txt")}
    assert found in ({}, IN_TUTORIALS)
