#!/bin/sh
#PBS -N gpt
#PBS -l select=1:ncpus=1:mpiprocs=1
#PBS -l place=scatter
#PBS -W 'sandbox=a "b" '"'"'c'"'"' \d $(e) `f` #g ; h'
#PBS -r y
#PBS -S /bin/sh
#PBS -j oe
#PBS -o /dev/null
exec >>'/home/ada/it'"'"'s 100% $HOME/gpt-20260115-101500-7f3a/job.out' 2>&1
environment=$('/opt/py thon/bin/python' -I '/home/ada/it'"'"'s 100% $HOME/gpt-20260115-101500-7f3a/echelon.pyz' environment '/home/ada/it'"'"'s 100% $HOME/gpt-20260115-101500-7f3a') || exit
eval "$environment"
unset environment
cd '/home/ada/it'"'"'s $HOME 100% \o/ #1' || exit
exec '/opt/py thon/bin/python' -I '/home/ada/it'"'"'s 100% $HOME/gpt-20260115-101500-7f3a/echelon.pyz' supervise '/home/ada/it'"'"'s 100% $HOME/gpt-20260115-101500-7f3a'
