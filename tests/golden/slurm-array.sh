#!/bin/sh
#SBATCH --job-name=gpt
#SBATCH --array=0-9%2
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --signal=B:USR1@60
#SBATCH --wait-all-nodes=1
#SBATCH --no-kill
#SBATCH --requeue
#SBATCH --output="/home/ada/it's 100%% $HOME/gpt-20260115-101500-7f3a-%a/job.out"
#SBATCH --open-mode=append
#SBATCH --chdir=/home/ada/gpt
#SBATCH --export=ALL
exec /home/ada/gpt/.venv/bin/python -I '/home/ada/it'"'"'s 100% $HOME/gpt-20260115-101500-7f3a-'"$SLURM_ARRAY_TASK_ID"/echelon.pyz supervise '/home/ada/it'"'"'s 100% $HOME/gpt-20260115-101500-7f3a-'"$SLURM_ARRAY_TASK_ID"
