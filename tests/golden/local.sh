#!/bin/sh
# gpt: nodes rehearsed on this machine: 2, ranks on each: 4
cd /home/ada/gpt || exit
exec /home/ada/gpt/.venv/bin/python /home/ada/gpt/runs/gpt-20260115-101500-7f3a/echelon.pyz supervise /home/ada/gpt/runs/gpt-20260115-101500-7f3a 0 0
