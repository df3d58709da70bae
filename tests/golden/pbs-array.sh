#!/bin/sh
#PBS -N gpt
#PBS -J 0-9%2
#PBS -l select=1:ncpus=1:mpiprocs=1
#PBS -l place=scatter
#PBS -r y
#PBS -S /bin/sh
#PBS -j oe
#PBS -o /dev/null
exec >>'/home/ada/it'"'"'s 100% $HOME/gpt-20260115-101500-7f3a-'"$PBS_ARRAY_INDEX"/job.out 2>&1
environment=$(/home/ada/gpt/.venv/bin/python -I '/home/ada/it'"'"'s 100% $HOME/gpt-20260115-101500-7f3a-'"$PBS_ARRAY_INDEX"/echelon.pyz environment '/home/ada/it'"'"'s 100% $HOME/gpt-20260115-101500-7f3a-'"$PBS_ARRAY_INDEX") || exit
eval "$environment"
unset environment
cd /home/ada/gpt || exit
exec /home/ada/gpt/.venv/bin/python -I '/home/ada/it'"'"'s 100% $HOME/gpt-20260115-101500-7f3a-'"$PBS_ARRAY_INDEX"/echelon.pyz supervise '/home/ada/it'"'"'s 100% $HOME/gpt-20260115-101500-7f3a-'"$PBS_ARRAY_INDEX"
