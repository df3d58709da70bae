#!/bin/sh
#PBS -N gpt
#PBS -q gpu
#PBS -P nlp
#PBS -M ada@example.org
#PBS -m ab
#PBS -l select=5:ncpus=96:ngpus=8:mpiprocs=1:mem=900gb:gpu_model=a100
#PBS -l place=scatter:excl
#PBS -l walltime=36:00:00
#PBS -l software=matlab
#PBS -W depend=afterok:1234.pbs
#PBS -W tolerate_node_failures=all
#PBS -W group_list=nlp
#PBS -a 2200
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
