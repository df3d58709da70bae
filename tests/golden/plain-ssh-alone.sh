#!/bin/bash
# gpt: 1 node x 1 rank, started by torchrun. The nodes need no echelon. Run it: bash FILE
# shellcheck disable=SC1091,SC2016,SC2089,SC2090,SC2317,SC2329 # parts run and are expanded on the nodes
hosts=(gpu1)
ssh=(ssh -o BatchMode=yes -o ServerAliveInterval=5 -o ServerAliveCountMax=3)
# Ranks meet at the first host, at the address at which this machine reaches it.
read -r _ _ MASTER_ADDR _ < <("${ssh[@]}" "${hosts[0]}" 'echo "$SSH_CONNECTION"') || exit
export MASTER_PORT=$((20000 + $$ % 10000)) # two jobs on one port would join each other
JOB_STATE=$(mktemp -d) && trap 'rm -rf "$JOB_STATE"' EXIT || exit
# Runs one rank, and waits for it after a TERM. Launchers exit with 1 for any exit code of a rank, so the code
# of the first failure is recorded here. 75 requests another run: the other ranks may finish their checkpoint.
note() { (set -C && echo "$1" >"$JOB_STATE/code") 2>/dev/null; } # set -C: only the first one is kept
rank() { trap : TERM; "$@" || { code=$? && note "$code"; [ "$code" -eq 75 ] || exit "$code"; }; }
# What each node runs, given its number. Values that differ between nodes are expanded there, not here.
node() {
  cd /home/ada/gpt || exit
  exec /home/ada/gpt/.venv/bin/python -m torch.distributed.run --nnodes=1 --node-rank="$1" --nproc-per-node=1 \
    --master-addr="$MASTER_ADDR" --master-port="$MASTER_PORT" --max-restarts=0 --log-dir="$JOB_STATE" --no-python bash -c \
    'rank "$@"' rank /home/ada/gpt/.venv/bin/python -u train.py --lr 1e-4
}
# Runs on each host. A word from feed is the notice. After 30 s without a line it ends the ranks: ssh would not.
watch() {
  JOB_STATE=$(mktemp -d) && export JOB_STATE && exec 3<&0 || exit
  node "$1" </dev/null 3<&- & ranks=$!
  { while read -r -t 30 word; do [ -z "$word" ] || touch "$JOB_STATE/notice"; done; kill "$ranks"; } <&3 &>/dev/null &
  wait "$ranks"; code=$?; [ ! -s "$JOB_STATE/code" ] || code=$(cat "$JOB_STATE/code")
  kill $!; rm -rf "$JOB_STATE"; exit "$code"
}
# Prints what a host needs (other users could see arguments), then a line per second while this script runs.
feed() {
  declare -px MASTER_ADDR MASTER_PORT && declare -f note rank node watch && echo "export -f note rank; watch $1"
  while kill -0 $$ && [ ! -e "$JOB_STATE/stop" ]; do
    if [ -e "$JOB_STATE/notice" ]; then echo notice; else echo; fi && sleep 1 || exit
  done 2>/dev/null
}
# If a node fails, or cannot start its ranks, the other nodes are stopped.
start() { ("$@") || { code=$? && note "$code"; [ "$code" -eq 75 ]; } || touch "$JOB_STATE/stop"; }
for n in "${!hosts[@]}"; do start "${ssh[@]}" "${hosts[n]}" bash -s < <(feed "$n") & done
trap 'note 143; touch "$JOB_STATE/stop"' INT TERM HUP
while [ "$(jobs -rp)" ]; do sleep 1 # not longer: a trap runs only after the command has ended
done
code=$(cat "$JOB_STATE/code" 2>/dev/null || echo 0)
exit "$code"
