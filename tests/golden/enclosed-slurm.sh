#!/bin/sh
#SBATCH --job-name=gpt
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=4
#SBATCH --signal=B:USR1@60
#SBATCH --wait-all-nodes=1
#SBATCH --no-kill
#SBATCH --requeue
#SBATCH --output=/home/ada/gpt/runs/gpt-20260115-101500-7f3a/job.out
#SBATCH --open-mode=append
#SBATCH --chdir=/home/ada/gpt
#SBATCH --export=ALL
exec /opt/echelon/bin/python -I /home/ada/gpt/runs/gpt-20260115-101500-7f3a/echelon.pyz supervise /home/ada/gpt/runs/gpt-20260115-101500-7f3a
