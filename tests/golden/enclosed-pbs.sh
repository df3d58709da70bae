#!/bin/sh
#PBS -N gpt
#PBS -l select=2:ncpus=4:ngpus=4:mpiprocs=1
#PBS -l place=scatter
#PBS -r y
#PBS -S /bin/sh
#PBS -j oe
#PBS -k oed
#PBS -o /home/ada/gpt/runs/gpt-20260115-101500-7f3a/
exec >>/home/ada/gpt/runs/gpt-20260115-101500-7f3a/job.out 2>&1
environment=$(/opt/echelon/bin/python -I /home/ada/gpt/runs/gpt-20260115-101500-7f3a/echelon.pyz environment /home/ada/gpt/runs/gpt-20260115-101500-7f3a) || exit
eval "$environment"
unset environment
cd /home/ada/gpt || exit
exec /opt/echelon/bin/python -I /home/ada/gpt/runs/gpt-20260115-101500-7f3a/echelon.pyz supervise /home/ada/gpt/runs/gpt-20260115-101500-7f3a
