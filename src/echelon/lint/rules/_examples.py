"""Beginnings of the example scripts of the rules."""

HEAD = """\
#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=4
"""
FIRST_NODE = 'MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)\n'
JOB_PORT = "$((10000 + SLURM_JOB_ID % 50000))"
SRUN = "srun --kill-on-bad-exit=1"
TORCHRUN = f"{SRUN} torchrun --nnodes=2 --nproc-per-node=4 --rdzv-backend=c10d"
ENDPOINT = f'--rdzv-id="$SLURM_JOB_ID" --rdzv-endpoint="$MASTER_ADDR:{JOB_PORT}"'
GOOD_TORCHRUN = f"{HEAD}{FIRST_NODE}{TORCHRUN} {ENDPOINT} train.py\n"
PBS_HEAD = """\
#!/bin/bash
#PBS -l select=2:ncpus=8:ngpus=4:mpiprocs=1
#PBS -l place=scatter
cd "$PBS_O_WORKDIR" || exit 1
"""
