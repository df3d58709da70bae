#!/bin/sh
# gpt: 2 nodes x 4 ranks on this machine
cd /home/ada/gpt || exit
exec /home/ada/gpt/.venv/bin/python /home/ada/gpt/runs/gpt-20260115-101500-7f3a/echelon.pyz supervise /home/ada/gpt/runs/gpt-20260115-101500-7f3a 0 0
