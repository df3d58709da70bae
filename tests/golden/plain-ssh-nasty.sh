#!/bin/bash
# gpt: 2 nodes x 4 ranks, started by torchrun. The nodes need no echelon. Run it: bash FILE
# shellcheck disable=SC1091,SC2016,SC2089,SC2090,SC2317,SC2329 # parts run and are expanded on the nodes
export GLOO_SOCKET_IFNAME=ib0 GREETING='hello, '"'"'world'"'"' "$HOME"
second line' NCCL_SOCKET_IFNAME=ib0 \
  OMP_NUM_THREADS=8
: "${HF_TOKEN:?is a secret, so it is not written here: export HF_TOKEN first}"
hosts=('ada@gpu 1' '$(id)')
ssh=(ssh -o BatchMode=yes -o ServerAliveInterval=5 -o ServerAliveCountMax=3)
# Ranks meet at the first host, at the address at which this machine reaches it.
read -r _ _ MASTER_ADDR _ < <("${ssh[@]}" "${hosts[0]}" 'echo "$SSH_CONNECTION"') || exit
export MASTER_PORT=$((31000 + $$ % 100)) # two jobs on one port would join each other
JOB_STATE=$(mktemp -d) && trap 'rm -rf "$JOB_STATE"' EXIT || exit
# Runs one rank, and waits for it after a TERM. Launchers exit with 1 for any exit code of a rank, so the code
# of the first failure is recorded here. 75 requests another run: the other ranks may finish their checkpoint.
note() { (set -C && echo "$1" >"$JOB_STATE/code") 2>/dev/null; } # set -C: only the first one is kept
rank() { trap : TERM; "$@" || { code=$? && note "$code"; [ "$code" -eq 75 ] || exit "$code"; }; }
# What each node runs, given its number. Values that differ between nodes are expanded there, not here.
node() {
  type module >/dev/null 2>&1 || . /etc/profile # a non-login shell may lack it
  module load cuda/12.4 'a b' || exit
  ulimit -n 4096
  . '/home/ada/my venv/bin/activate' && cd '/home/ada/it'"'"'s $HOME 100% #1' || exit
  is_host=$((! $1)) own=$(ip -o route get "$MASTER_ADDR" | sed 's/.* src \([^ ]*\).*/\1/') # torchrun would compare host names
  export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1
  exec '/opt/py thon/bin/python' -m torch.distributed.run --nnodes=2 --nproc-per-node=4 --rdzv-backend=c10d \
    --rdzv-endpoint="$MASTER_ADDR":"$MASTER_PORT" --rdzv-id="$MASTER_PORT" --rdzv-conf=is_host="$is_host" \
    --local-addr="$own" --max-restarts=0 --log-dir="$JOB_STATE" '--role=a role of $USER' --start-method=spawn --no-python \
    bash -c 'rank "$@"' rank './run it.sh' '$HOME' 'it'"'"'s' 'a
b'
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
  declare -px MASTER_ADDR MASTER_PORT GLOO_SOCKET_IFNAME GREETING NCCL_SOCKET_IFNAME OMP_NUM_THREADS HF_TOKEN && declare -f note rank node watch && echo "export -f note rank; watch $1"
  while kill -0 $$ && [ ! -e "$JOB_STATE/stop" ]; do
    if [ -e "$JOB_STATE/notice" ]; then echo notice; else echo; fi && sleep 1 || exit
  done 2>/dev/null
}
# If a node fails, or cannot start its ranks, the other nodes are stopped.
start() { ("$@") || { code=$? && note "$code"; [ "$code" -eq 75 ]; } || touch "$JOB_STATE/stop"; }
for n in "${!hosts[@]}"; do start "${ssh[@]}" "${hosts[n]}" bash -s < <(feed "$n") & done
ended= && trap 'ended=yes; note 143; touch "$JOB_STATE/stop"' INT TERM HUP
while [ "$(jobs -rp)" ]; do sleep 1 # not longer: a trap runs only after the command has ended
  [ $SECONDS -lt 6900 ] || touch "$JOB_STATE/notice" # stop soon
  [ $SECONDS -lt 7200 ] || { note 124; touch "$JOB_STATE/stop"; }
done
code=$(cat "$JOB_STATE/code" 2>/dev/null || echo 0)
# Run again after 75, or after a failure that followed the notice, up to a limit; not if it was ended.
[ "$code" -eq 75 ] || { [ "$code" -ne 0 ] && [ -e "$JOB_STATE/notice" ]; } || exit "$code"
[ -n "$ended" ] || [ "${TRIES:-0}" -ge 3 ] || { rm -rf "$JOB_STATE"; TRIES=$((${TRIES:-0} + 1)) exec "$BASH" "$0"; }
exit "$code"
