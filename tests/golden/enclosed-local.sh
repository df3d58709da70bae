#!/bin/sh
# gpt: 2 rehearsed nodes, 4 ranks on each
cd /home/ada/gpt || exit
exec /opt/echelon/bin/python -I /home/ada/gpt/runs/gpt-20260115-101500-7f3a/echelon.pyz supervise /home/ada/gpt/runs/gpt-20260115-101500-7f3a
