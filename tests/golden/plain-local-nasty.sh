#!/bin/bash
# gpt: 2 nodes x 4 ranks, started by torchrun. Nothing of echelon is needed there. Run it: bash FILE
# shellcheck disable=SC1091,SC2016,SC2089,SC2090,SC2317,SC2329 # parts are run and expanded on the nodes
export GLOO_SOCKET_IFNAME=ib0 GREETING='hello, '"'"'world'"'"' "$HOME"
second line' NCCL_SOCKET_IFNAME=ib0 \
  OMP_NUM_THREADS=8
: "${HF_TOKEN:?is a secret, so it is not written here: export HF_TOKEN first}"
# The nodes are rehearsed on this machine. No --standalone: it takes no notice of --nnodes.
export MASTER_ADDR=127.0.0.1 GLOO_SOCKET_IFNAME=lo NCCL_SOCKET_IFNAME=lo
export MASTER_PORT=$((31000 + $$ % 100)) # two jobs on one port would join each other
while (: <"/dev/tcp/$MASTER_ADDR/$MASTER_PORT") 2>/dev/null; do ((MASTER_PORT += 1)); done # taken: the next one
export JOB_STATE # ranks find "notice" in it when they should stop soon
JOB_STATE=$(mktemp -d) && trap 'rm -rf "$JOB_STATE"' EXIT || exit
# What runs each rank, and stays until that has answered a TERM. Launchers exit with 1 whatever their ranks exit
# with, so the first failure is noted here. 75 is a wish to be run again: the others may finish their saving.
note() { (set -C && echo "$1" >"$JOB_STATE/code") 2>/dev/null; } # set -C: whoever comes second finds it taken
rank() { trap : TERM; "$@" || { code=$? && note "$code"; [ "$code" -eq 75 ] || exit "$code"; }; }
# What each node runs, given its number. What differs between nodes must be expanded there, not here.
node() {
  type module >/dev/null 2>&1 || . /etc/profile # shells that are no login shells may lack it
  module load cuda/12.4 'a b' || exit
  ulimit -n 4096
  . '/home/ada/my venv/bin/activate' && cd '/home/ada/it'"'"'s $HOME 100% #1' || exit
  is_host=$((! $1)) own=$(ip -o route get "$MASTER_ADDR" | sed 's/.* src \([^ ]*\).*/\1/') # torchrun would go by host names
  CUDA_VISIBLE_DEVICES=$(seq -s, $(($1 * 4)) $(($1 * 4 + 3)))
  export CUDA_VISIBLE_DEVICES
  export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1
  '/opt/py thon/bin/python' -m torch.distributed.run --nnodes=2 --nproc-per-node=4 --rdzv-backend=c10d \
    --rdzv-endpoint="$MASTER_ADDR":"$MASTER_PORT" --rdzv-id="$MASTER_PORT" --rdzv-conf=is_host="$is_host" \
    --local-addr="$own" --max-restarts=0 --log-dir="$JOB_STATE" '--role=a role of $USER' --start-method=spawn --no-python \
    bash -c 'rank "$@"' rank './run it.sh' '$HOME' 'it'"'"'s' 'a
b' &
  until [ -e "$JOB_STATE/stop" ] || ! kill -0 $! 2>/dev/null; do sleep 1; done
  [ ! -e "$JOB_STATE/stop" ] || { sleep 5 && kill -TERM $!; } 2>/dev/null # it may be about to end by itself
  wait $!
}
export -f note rank
# A node that fails, or does not get as far as its ranks, is of no use to the others: they are told to stop.
start() { ("$@") || { code=$? && note "$code"; [ "$code" -eq 75 ]; } || touch "$JOB_STATE/stop"; }
for n in {0..1}; do start node "$n" & done
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
