#!/bin/bash
# gpt: 2 nodes x 4 ranks, started by legacy. The nodes need no echelon. Submit it: sbatch FILE
# shellcheck disable=SC1091,SC2016,SC2089,SC2090,SC2317,SC2329 # parts run and are expanded on the nodes
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
# Ranks meet at the first node, where this script runs, at a port computed from the job's id.
first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
MASTER_ADDR=$(getent ahostsv4 "$first" | awk '$1 !~ /^127\./ { print $1; exit }')
export MASTER_ADDR=${MASTER_ADDR:-$first} # the name, if no address was found
export MASTER_PORT=$((20000 + SLURM_JOB_ID % 10000)) # two jobs on one port would join each other
while (: <"/dev/tcp/$MASTER_ADDR/$MASTER_PORT") 2>/dev/null; do ((MASTER_PORT += 1)); done # in use: try the next
export JOB_STATE=$PWD/.job-$SLURM_JOB_ID # a file "notice" appears here before the time limit
rm -rf "$JOB_STATE" && mkdir -m 700 "$JOB_STATE" && trap 'rm -rf "$JOB_STATE"' EXIT || exit
# Slurm starts one task per node: a script that reads SLURM_PROCID would see one rank per node.
as_task() { export SLURM_PROCID=${RANK:-0} SLURM_LOCALID=${LOCAL_RANK:-0} SLURM_NTASKS=${WORLD_SIZE:-1}
  export SLURM_NPROCS=$SLURM_NTASKS SLURM_STEP_NUM_TASKS=$SLURM_NTASKS; }
# Runs one rank, and waits for it after a TERM. Launchers exit with 1 for any exit code of a rank, so the code
# of the first failure is recorded here. 75 requests another run: the other ranks may finish their checkpoint.
note() { (set -C && echo "$1" >"$JOB_STATE/code") 2>/dev/null; } # set -C: only the first one is kept
rank() { trap : TERM; as_task; "$@" || { code=$? && note "$code"; [ "$code" -eq 75 ] || exit "$code"; }; }
# What each node runs, given its number. Values that differ between nodes are expanded there, not here.
node() {
  exec /home/ada/gpt/.venv/bin/python -W ignore::FutureWarning -m torch.distributed.launch --use-env --nnodes=2 \
    --node-rank="$1" --nproc-per-node=4 --master-addr="$MASTER_ADDR" --master-port="$MASTER_PORT" --max-restarts=0 \
    --log-dir="$JOB_STATE" --no-python bash -c 'rank "$@"' rank /home/ada/gpt/.venv/bin/python -u train.py --lr 1e-4
}
export -f note rank node as_task
# Before the limit Slurm sends USR1, only to this shell (B:): it would kill torchrun. Then TERM, to all.
trap 'touch "$JOB_STATE/notice"' USR1
ended= && trap 'ended=yes' TERM
srun --kill-on-bad-exit=1 --cpus-per-task=32 bash -c 'node "$SLURM_NODEID"' &
while [ "$(jobs -rp)" ]; do sleep 1; done # a trap waits for a command to end, so none may take long
wait $!; code=$?; [ ! -s "$JOB_STATE/code" ] || code=$(cat "$JOB_STATE/code")
# Run again after 75, or after a failure that followed the notice, up to a limit; not if it was ended.
[ "$code" -eq 75 ] || { [ "$code" -ne 0 ] && [ -e "$JOB_STATE/notice" ]; } || exit "$code"
[ -n "$ended" ] || [ "${SLURM_RESTART_COUNT:-0}" -ge 3 ] || scontrol requeue "$SLURM_JOB_ID"
exit "$code"
