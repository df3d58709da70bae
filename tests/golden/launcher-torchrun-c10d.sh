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
# export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1
# /home/ada/gpt/.venv/bin/python -m torch.distributed.run --nnodes=2 --nproc-per-node=4 --rdzv-backend=c10d --rdzv-endpoint="$MAIN_ADDRESS":"$LAUNCHER_PORT" --rdzv-id="$LAUNCHER_PORT" --rdzv-conf=is_host="$IS_FIRST" --local-addr="$OWN_ADDRESS" --max-restarts=0 --log-dir="$NODE_DIR" --no-python /home/ada/gpt/.venv/bin/python -I /home/ada/gpt/runs/gpt-20260115-101500-7f3a/echelon.pyz worker torchrun
