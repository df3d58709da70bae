#!/bin/bash
# gpt: 2 nodes x 4 ranks, started by torchrun. Nothing of echelon is needed there. Run it: bash FILE
# shellcheck disable=SC1091,SC2016,SC2089,SC2090,SC2317,SC2329 # parts are run and expanded on the nodes
export HF_HOME=/scratch/ab12/hf NCCL_DEBUG=WARN OMP_NUM_THREADS=8
: "${HF_TOKEN:?is a secret, so it is not written here: export HF_TOKEN first}"
hosts=(gpu1 gpu2)
ssh=(ssh -o BatchMode=yes -o ServerAliveInterval=5 -o ServerAliveCountMax=3)
# Ranks meet at the first host, at the address that it was reached at.
read -r _ _ MASTER_ADDR _ < <("${ssh[@]}" "${hosts[0]}" 'echo "$SSH_CONNECTION"') || exit
export MASTER_PORT=$((20000 + $$ % 10000)) # two jobs on one port would join each other
JOB_STATE=$(mktemp -d) && trap 'rm -rf "$JOB_STATE"' EXIT || exit
# What runs each rank, and stays until that has answered a TERM. Launchers exit with 1 whatever their ranks exit
# with, so the first failure is noted here. 75 is a wish to be run again: the others may finish their saving.
note() { (set -C && echo "$1" >"$JOB_STATE/code") 2>/dev/null; } # set -C: whoever comes second finds it taken
rank() { trap : TERM; "$@" || { code=$? && note "$code"; [ "$code" -eq 75 ] || exit "$code"; }; }
# What each node runs, given its number. What differs between nodes must be expanded there, not here.
node() {
  type module >/dev/null 2>&1 || . /etc/profile # shells that are no login shells may lack it
  module load cuda/12.4 && eval "$("${CONDA_EXE:-conda}" shell.bash hook)" && conda activate 'my env' && cd /home/ada/gpt || exit
  exec python -m torch.distributed.run --nnodes=2 --node-rank="$1" --nproc-per-node=4 --master-addr="$MASTER_ADDR" \
    --master-port="$MASTER_PORT" --max-restarts=0 --log-dir="$JOB_STATE" --no-python bash -c 'rank "$@"' rank python -u \
    train.py --lr 1e-4
}
# On the host, reading from us: a word is the notice, silence the end of the ranks (ssh would let them run on).
watch() {
  JOB_STATE=$(mktemp -d) && export JOB_STATE && exec 3<&0 || exit
  node "$1" </dev/null 3<&- & ranks=$!
  { while read -r -t 30 word; do [ -z "$word" ] || touch "$JOB_STATE/notice"; done; kill "$ranks"; } <&3 &>/dev/null &
  wait "$ranks"; code=$?; [ ! -s "$JOB_STATE/code" ] || code=$(cat "$JOB_STATE/code")
  kill $!; rm -rf "$JOB_STATE"; exit "$code"
}
# What a host reads: all it needs, for in arguments others would see it; then a line a second while we live.
feed() {
  declare -px MASTER_ADDR MASTER_PORT HF_HOME NCCL_DEBUG OMP_NUM_THREADS HF_TOKEN && declare -f note rank node watch && echo "export -f note rank; watch $1"
  while kill -0 $$ && [ ! -e "$JOB_STATE/stop" ]; do
    if [ -e "$JOB_STATE/notice" ]; then echo notice; else echo; fi && sleep 1 || exit
  done 2>/dev/null
}
# A node that fails, or does not get as far as its ranks, is of no use to the others: they are told to stop.
start() { ("$@") || { code=$? && note "$code"; [ "$code" -eq 75 ]; } || touch "$JOB_STATE/stop"; }
for n in "${!hosts[@]}"; do start "${ssh[@]}" "${hosts[n]}" bash -s < <(feed "$n") & done
ended= && trap 'ended=yes; note 143; touch "$JOB_STATE/stop"' INT TERM HUP
while [ "$(jobs -rp)" ]; do sleep 1 # and no longer: a trap waits for a command to end
  [ $SECONDS -lt 6900 ] || touch "$JOB_STATE/notice" # stop soon
  [ $SECONDS -lt 7200 ] || { note 124; touch "$JOB_STATE/stop"; }
done
code=$(cat "$JOB_STATE/code" 2>/dev/null || echo 0)
# Once more after 75, or after a failure that followed the notice; not for ever, nor if it was ended.
[ "$code" -eq 75 ] || { [ "$code" -ne 0 ] && [ -e "$JOB_STATE/notice" ]; } || exit "$code"
[ -n "$ended" ] || [ "${TRIES:-0}" -ge 3 ] || { rm -rf "$JOB_STATE"; TRIES=$((${TRIES:-0} + 1)) exec "$BASH" "$0"; }
exit "$code"
