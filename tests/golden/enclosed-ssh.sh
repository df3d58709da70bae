#!/bin/sh
# gpt: 2 of the hosts gpu1, gpu2, 4 ranks on each
cd /home/ada/gpt || exit
exec /opt/echelon/bin/python -I /home/ada/gpt/runs/gpt-20260115-101500-7f3a/echelon.pyz supervise /home/ada/gpt/runs/gpt-20260115-101500-7f3a
