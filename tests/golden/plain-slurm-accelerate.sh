#!/bin/bash
# gpt: 2 nodes x 4 ranks, started by accelerate. Nothing of echelon is needed there. Submit it: sbatch FILE
# shellcheck disable=SC1091,SC2016,SC2089,SC2090,SC2317,SC2329 # parts are run and expanded on the nodes
#SBATCH --job-name=gpt
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=4
#SBATCH --cpus-per-task=32
#SBATCH --time=0-02:00:00
#SBATCH --signal=B:USR1@300
#SBATCH --requeue
#SBATCH --output=gpt-%j.out
#SBATCH --open-mode=append
#SBATCH --chdir=/home/ada/gpt
#SBATCH --export=ALL
export NCCL_DEBUG=WARN OMP_NUM_THREADS=8
: "${HF_TOKEN:?is a secret, so it is not written here: export HF_TOKEN before sbatch}"
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
  exec /home/ada/gpt/.venv/bin/python -m accelerate.commands.launch --num_machines=2 --machine_rank="$1" --num_processes=8 \
    --main_process_ip="$MASTER_ADDR" --main_process_port="$MASTER_PORT" --rdzv_backend=static --same_network \
    --max_restarts=0 --log_dir="$JOB_STATE" --multi_gpu --mixed_precision=no --dynamo_backend=no --no_python bash -c \
    'rank "$@"' rank /home/ada/gpt/.venv/bin/python -u train.py --lr 1e-4
}
export -f note rank node
# Before the limit Slurm sends USR1 to this shell alone (B:): torchrun would die of it. Then TERM, to all.
trap 'touch "$JOB_STATE/notice"' USR1
ended= && trap 'ended=yes' TERM
srun --kill-on-bad-exit=1 --cpus-per-task=32 bash -c 'node "$SLURM_NODEID"' &
while [ "$(jobs -rp)" ]; do sleep 1; done # a trap waits for a command to end, so none may take long
wait $!; code=$?; [ ! -s "$JOB_STATE/code" ] || code=$(cat "$JOB_STATE/code")
# Once more after 75, or after a failure that followed the notice; not for ever, nor if it was ended.
[ "$code" -eq 75 ] || { [ "$code" -ne 0 ] && [ -e "$JOB_STATE/notice" ]; } || exit "$code"
[ -n "$ended" ] || [ "${SLURM_RESTART_COUNT:-0}" -ge 3 ] || scontrol requeue "$SLURM_JOB_ID"
exit "$code"
