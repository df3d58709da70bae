#!/bin/bash
# gpt: 1 node x 1 rank, started by torchrun. Nothing of echelon is needed there. Submit it: sbatch FILE
# shellcheck disable=SC1091,SC2016,SC2089,SC2090,SC2317,SC2329 # parts are run and expanded on the nodes
#SBATCH --job-name=gpt
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --signal=B:USR1@60
#SBATCH --requeue
#SBATCH --output=gpt-%j.out
#SBATCH --open-mode=append
#SBATCH --chdir=/home/ada/gpt
#SBATCH --export=ALL
# Ranks meet at the first node, where this script runs, at a port worked out from the job's id.
first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
MASTER_ADDR=$(getent ahostsv4 "$first" | awk '$1 !~ /^127\./ { print $1; exit }')
export MASTER_ADDR=${MASTER_ADDR:-$first} # by its name, where that is all there is
export MASTER_PORT=$((20000 + SLURM_JOB_ID % 10000)) # two jobs on one port would join each other
while (: <"/dev/tcp/$MASTER_ADDR/$MASTER_PORT") 2>/dev/null; do ((MASTER_PORT += 1)); done # taken: the next one
export JOB_STATE=$PWD/.job-$SLURM_JOB_ID # ranks find "notice" in it when they should stop soon
rm -rf "$JOB_STATE" && mkdir -m 700 "$JOB_STATE" && trap 'rm -rf "$JOB_STATE"' EXIT || exit
# What runs each rank, and stays until that has answered a TERM. Launchers exit with 1 whatever their ranks exit
# with, so the first failure is noted here. 75 is a wish to be run again: the others may finish their saving.
note() { (set -C && echo "$1" >"$JOB_STATE/code") 2>/dev/null; } # set -C: whoever comes second finds it taken
rank() { trap : TERM; "$@" || { code=$? && note "$code"; [ "$code" -eq 75 ] || exit "$code"; }; }
# What each node runs, given its number. What differs between nodes must be expanded there, not here.
node() {
  exec /home/ada/gpt/.venv/bin/python -m torch.distributed.run --nnodes=1 --node-rank="$1" --nproc-per-node=1 \
    --master-addr="$MASTER_ADDR" --master-port="$MASTER_PORT" --max-restarts=0 --log-dir="$JOB_STATE" --no-python bash -c \
    'rank "$@"' rank /home/ada/gpt/.venv/bin/python -u train.py --lr 1e-4
}
export -f note rank node
# Before the limit Slurm sends USR1 to this shell alone (B:): torchrun would die of it. Then TERM, to all.
trap 'touch "$JOB_STATE/notice"' USR1
trap ':' TERM
srun --kill-on-bad-exit=1 bash -c 'node "$SLURM_NODEID"' &
while [ "$(jobs -rp)" ]; do sleep 1; done # a trap waits for a command to end, so none may take long
wait $!; code=$?; [ ! -s "$JOB_STATE/code" ] || code=$(cat "$JOB_STATE/code")
exit "$code"
