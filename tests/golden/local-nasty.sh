#!/bin/sh
# gpt: 1 rehearsed nodes, 1 ranks on each
cd '/home/ada/it'"'"'s $HOME' || exit
exec '/opt/py thon/bin/python' -I /home/ada/gpt/runs/gpt-20260115-101500-7f3a/echelon.pyz supervise /home/ada/gpt/runs/gpt-20260115-101500-7f3a
