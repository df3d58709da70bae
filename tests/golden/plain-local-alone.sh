#!/bin/bash
# gpt: 1 node x 1 rank, started by torchrun. The nodes need no echelon. Run it: bash FILE
# shellcheck disable=SC1091,SC2016,SC2089,SC2090,SC2317,SC2329 # parts run and are expanded on the nodes
# The nodes are rehearsed on this machine. Not with --standalone: it ignores --nnodes.
export MASTER_ADDR=127.0.0.1 GLOO_SOCKET_IFNAME=lo NCCL_SOCKET_IFNAME=lo
export MASTER_PORT=$((20000 + $$ % 10000)) # two jobs on one port would join each other
while (: <"/dev/tcp/$MASTER_ADDR/$MASTER_PORT") 2>/dev/null; do ((MASTER_PORT += 1)); done # in use: try the next
export JOB_STATE # a file "notice" appears here before the time limit
JOB_STATE=$(mktemp -d) && trap 'rm -rf "$JOB_STATE"' EXIT || exit
# Runs one rank, and waits for it after a TERM. Launchers exit with 1 for any exit code of a rank, so the code
# of the first failure is recorded here. 75 requests another run: the other ranks may finish their checkpoint.
note() { (set -C && echo "$1" >"$JOB_STATE/code") 2>/dev/null; } # set -C: only the first one is kept
rank() { trap : TERM; "$@" || { code=$? && note "$code"; [ "$code" -eq 75 ] || exit "$code"; }; }
# What each node runs, given its number. Values that differ between nodes are expanded there, not here.
node() {
  cd /home/ada/gpt || exit
  export CUDA_VISIBLE_DEVICES=
  /home/ada/gpt/.venv/bin/python -m torch.distributed.run --nnodes=1 --node-rank="$1" --nproc-per-node=1 \
    --master-addr="$MASTER_ADDR" --master-port="$MASTER_PORT" --max-restarts=0 --log-dir="$JOB_STATE" --no-python bash -c \
    'rank "$@"' rank /home/ada/gpt/.venv/bin/python -u train.py --lr 1e-4 &
  until [ -e "$JOB_STATE/stop" ] || ! kill -0 $! 2>/dev/null; do sleep 1; done
  [ ! -e "$JOB_STATE/stop" ] || { sleep 5 && kill -TERM $!; } 2>/dev/null # it may end by itself first
  wait $!
}
export -f note rank
# If a node fails, or cannot start its ranks, the other nodes are stopped.
start() { ("$@") || { code=$? && note "$code"; [ "$code" -eq 75 ]; } || touch "$JOB_STATE/stop"; }
for n in {0..0}; do start node "$n" & done
trap 'note 143; touch "$JOB_STATE/stop"' INT TERM HUP
while [ "$(jobs -rp)" ]; do sleep 1 # not longer: a trap runs only after the command has ended
done
code=$(cat "$JOB_STATE/code" 2>/dev/null || echo 0)
exit "$code"
