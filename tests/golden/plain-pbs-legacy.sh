#!/bin/bash
# gpt: 2 nodes x 4 ranks, started by legacy. The nodes need no echelon. Submit it: qsub -v HF_TOKEN FILE
# shellcheck disable=SC1091,SC2016,SC2089,SC2090,SC2317,SC2329 # parts run and are expanded on the nodes
#PBS -N gpt
#PBS -l select=2:ncpus=32:ngpus=4:mpiprocs=1
#PBS -l place=scatter
#PBS -l walltime=02:00:00
#PBS -r y
#PBS -j oe
#PBS -k oed
#PBS -o /home/ada/gpt/
#PBS -S /bin/bash
cd /home/ada/gpt || exit # PBS starts in the home folder
export PATH=$PATH:${PBS_O_PATH-} # PBS sets a short PATH: add that of the shell that ran qsub
export NCCL_DEBUG=WARN OMP_NUM_THREADS=8
: "${HF_TOKEN:?is a secret, so it is not written here: qsub -v HF_TOKEN passes it (qstat shows it)}"
# The file has a line per process; keep each host once. Ranks meet at the first, where this script runs.
mapfile -t hosts < <(awk '!seen[$0]++' "$PBS_NODEFILE") && first=${hosts[0]} id=${PBS_JOBID%%[!0-9]*}
MASTER_ADDR=$(getent ahostsv4 "$first" | awk '$1 !~ /^127\./ { print $1; exit }')
export MASTER_ADDR=${MASTER_ADDR:-$first} # the name, if no address was found
export MASTER_PORT=$((20000 + id % 10000)) # two jobs on one port would join each other
while (: <"/dev/tcp/$MASTER_ADDR/$MASTER_PORT") 2>/dev/null; do ((MASTER_PORT += 1)); done # in use: try the next
export JOB_STATE=$PWD/.job-$id # a file "notice" appears here before the time limit
rm -rf "$JOB_STATE" && mkdir -m 700 "$JOB_STATE" && trap 'rm -rf "$JOB_STATE"' EXIT || exit
# Runs one rank, and waits for it after a TERM. Launchers exit with 1 for any exit code of a rank, so the code
# of the first failure is recorded here. 75 requests another run: the other ranks may finish their checkpoint.
note() { (set -C && echo "$1" >"$JOB_STATE/code") 2>/dev/null; } # set -C: only the first one is kept
rank() { trap : TERM; "$@" || { code=$? && note "$code"; [ "$code" -eq 75 ] || exit "$code"; }; }
# What each node runs, given its number. Values that differ between nodes are expanded there, not here.
node() {
  cd /home/ada/gpt || exit
  /home/ada/gpt/.venv/bin/python -W ignore::FutureWarning -m torch.distributed.launch --use-env --nnodes=2 \
    --node-rank="$1" --nproc-per-node=4 --master-addr="$MASTER_ADDR" --master-port="$MASTER_PORT" --max-restarts=0 \
    --log-dir="$JOB_STATE" --no-python bash -c 'rank "$@"' rank /home/ada/gpt/.venv/bin/python -u train.py --lr 1e-4 &
  until [ -e "$JOB_STATE/stop" ] || ! kill -0 $! 2>/dev/null; do sleep 1; done
  [ ! -e "$JOB_STATE/stop" ] || { sleep 5 && kill -TERM $!; } 2>/dev/null # it may end by itself first
  wait $!
}
# Tasks of PBS do not inherit variables and functions: they read them from a file.
{ declare -px PATH MASTER_ADDR MASTER_PORT JOB_STATE NCCL_DEBUG OMP_NUM_THREADS && declare -f note rank node && echo 'export -f note rank && node "$1"'; } >"$JOB_STATE/node.sh"
# If a node fails, or cannot start its ranks, the other nodes are stopped.
start() { ("$@") || { code=$? && note "$code"; [ "$code" -eq 75 ]; } || touch "$JOB_STATE/stop"; }
for n in "${!hosts[@]}"; do start pbs_tmrsh "${hosts[n]}" /bin/bash "$JOB_STATE/node.sh" "$n" & done
ended= && trap 'ended=yes' TERM
while [ "$(jobs -rp)" ]; do sleep 1 # not longer: a trap runs only after the command has ended
  [ $SECONDS -lt 6900 ] || touch "$JOB_STATE/notice" # stop soon
done
code=$(cat "$JOB_STATE/code" 2>/dev/null || echo 0)
# Run again after 75, or after a failure that followed the notice, up to a limit; not if it was ended.
[ "$code" -eq 75 ] || { [ "$code" -ne 0 ] && [ -e "$JOB_STATE/notice" ]; } || exit "$code"
[ -n "$ended" ] || [ "${TRIES:-0}" -ge 3 ] || qsub -W "depend=afterany:$PBS_JOBID" -v "TRIES=$((${TRIES:-0} + 1)),HF_TOKEN" "$0"
exit "$code"
