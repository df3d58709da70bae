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

# ---- then the agent of the first node starts all ranks with ----
# srun --overlap --kill-on-bad-exit=0 --no-kill --wait=0 --input=none --export=ALL --mem=0 --nodes=2 --nodelist="$HOSTS" --ntasks=8 --ntasks-per-node=4 --distribution=block --cpu-bind=none --cpus-per-task=8 --gpus-per-node=4 --gpu-bind=none --mpi=pmix /home/ada/gpt/.venv/bin/python -I /home/ada/gpt/runs/gpt-20260115-101500-7f3a/echelon.pyz worker srun
