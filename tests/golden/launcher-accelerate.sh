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
# /home/ada/gpt/.venv/bin/python -m accelerate.commands.launch --num_machines=2 --machine_rank="$NODE_RANK" --num_processes=8 --main_process_ip="$MAIN_ADDRESS" --main_process_port="$MAIN_PORT" --rdzv_backend=static --same_network --max_restarts=0 --log_dir="$NODE_DIR" --multi_gpu --dynamo_backend=no --mixed_precision=bf16 --no_python /home/ada/gpt/.venv/bin/python -I /home/ada/gpt/runs/gpt-20260115-101500-7f3a/echelon.pyz worker accelerate
