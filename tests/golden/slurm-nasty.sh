#!/bin/sh
#SBATCH --job-name=gpt
#SBATCH --comment="a \"b\" 'c' \\d $(e) `f` #g ; h"
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --signal=B:USR1@60
#SBATCH --wait-all-nodes=1
#SBATCH --no-kill
#SBATCH --requeue
#SBATCH --output="/home/ada/it's 100%% $HOME/gpt-20260115-101500-7f3a/job.out"
#SBATCH --open-mode=append
#SBATCH --chdir="/home/ada/it's $HOME 100% \\o/ #1"
#SBATCH --export=ALL
#SBATCH --container-env="A,B C"
exec '/opt/py thon/bin/python' -I '/home/ada/it'"'"'s 100% $HOME/gpt-20260115-101500-7f3a/echelon.pyz' supervise '/home/ada/it'"'"'s 100% $HOME/gpt-20260115-101500-7f3a'
