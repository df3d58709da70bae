#!/bin/sh
#SBATCH --job-name=gpt
#SBATCH --partition=gpu,long
#SBATCH --account=nlp
#SBATCH --qos=high
#SBATCH --reservation=deadline
#SBATCH --constraint="a100&nvlink"
#SBATCH --nodelist=gpu[01-16]
#SBATCH --exclude=gpu03,gpu[07-09]
#SBATCH --dependency=afterok:1234:1235,singleton
#SBATCH --licenses=matlab:2
#SBATCH --comment="ablation 7"
#SBATCH --mail-user=ada@example.org
#SBATCH --mail-type=BEGIN,TIME_LIMIT_80
#SBATCH --nodes=5
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=a100:8
#SBATCH --cpus-per-task=96
#SBATCH --mem=900G
#SBATCH --time=1-12:00:00
#SBATCH --signal=B:USR1@300
#SBATCH --wait-all-nodes=1
#SBATCH --no-kill
#SBATCH --requeue
#SBATCH --output=/home/ada/gpt/runs/gpt-20260115-101500-7f3a/job.out
#SBATCH --open-mode=append
#SBATCH --chdir=/home/ada/gpt
#SBATCH --export=ALL
#SBATCH --exclusive
#SBATCH --switches=1@00:10:00
#SBATCH --nice=100
exec /home/ada/gpt/.venv/bin/python -I /home/ada/gpt/runs/gpt-20260115-101500-7f3a/echelon.pyz supervise /home/ada/gpt/runs/gpt-20260115-101500-7f3a
