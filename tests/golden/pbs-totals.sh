#!/bin/sh
#PBS -N gpt
#PBS -q gpuvolta
#PBS -P ab12
#PBS -l ncpus=96
#PBS -l ngpus=8
#PBS -l mem=764gb
#PBS -l walltime=02:00:00
#PBS -l wd
#PBS -l storage=gdata/ab12+scratch/ab12
#PBS -l jobfs=100GB
#PBS -r y
#PBS -S /bin/sh
#PBS -j oe
#PBS -k oed
#PBS -o /home/ada/gpt/runs/gpt-20260115-101500-7f3a/
exec >>/home/ada/gpt/runs/gpt-20260115-101500-7f3a/job.out 2>&1
environment=$(/home/ada/gpt/.venv/bin/python -I /home/ada/gpt/runs/gpt-20260115-101500-7f3a/echelon.pyz environment /home/ada/gpt/runs/gpt-20260115-101500-7f3a) || exit
eval "$environment"
unset environment
cd /home/ada/gpt || exit
exec /home/ada/gpt/.venv/bin/python -I /home/ada/gpt/runs/gpt-20260115-101500-7f3a/echelon.pyz supervise /home/ada/gpt/runs/gpt-20260115-101500-7f3a
