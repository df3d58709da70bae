"""Job scripts with the traps of five published tutorials, in our own words."""

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
