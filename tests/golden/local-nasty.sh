#!/bin/sh
# gpt: nodes rehearsed on this machine: 1, ranks on each: 1
cd '/home/ada/it'"'"'s $HOME' || exit
export GREETING='hello, '"'"'world'"'"' "$HOME"
second line'
export NCCL_DEBUG=INFO
exec '/opt/py thon/bin/python' /home/ada/gpt/runs/gpt-20260115-101500-7f3a/echelon.pyz supervise /home/ada/gpt/runs/gpt-20260115-101500-7f3a 0 0
