#!/bin/sh
#SBATCH --job-name=gpt
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=4
#SBATCH --cpus-per-task=32
#SBATCH --signal=B:USR1@60
#SBATCH --wait-all-nodes=1
#SBATCH --no-kill
#SBATCH --requeue
#SBATCH --output=/home/ada/gpt/runs/gpt-20260115-101500-7f3a/job.out
#SBATCH --open-mode=append
#SBATCH --chdir=/home/ada/gpt
#SBATCH --export=ALL
exec /home/ada/gpt/.venv/bin/python -I /home/ada/gpt/runs/gpt-20260115-101500-7f3a/echelon.pyz supervise /home/ada/gpt/runs/gpt-20260115-101500-7f3a

# ---- then the agent of each node starts its ranks with ----
# /home/ada/gpt/.venv/bin/python -W ignore::FutureWarning -m torch.distributed.launch --use-env --nnodes=2 --node-rank="$NODE_RANK" --nproc-per-node=4 --master-addr="$MAIN_ADDRESS" --master-port="$MAIN_PORT" --max-restarts=0 --log-dir="$NODE_DIR" --no-python /home/ada/gpt/.venv/bin/python -I /home/ada/gpt/runs/gpt-20260115-101500-7f3a/echelon.pyz worker legacy
