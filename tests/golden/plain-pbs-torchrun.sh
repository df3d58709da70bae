#!/bin/bash
# gpt: 2 nodes x 4 ranks, started by torchrun. Nothing of echelon is needed there. Submit it: qsub -v HF_TOKEN FILE
# shellcheck disable=SC1091,SC2016,SC2089,SC2090,SC2317,SC2329 # parts are run and expanded on the nodes
#PBS -N gpt
#PBS -l select=2:ncpus=32:ngpus=4:mpiprocs=1
#PBS -l place=scatter
#PBS -l walltime=02:00:00
#PBS -r y
#PBS -j oe
#PBS -k oed
#PBS -o /home/ada/gpt/
#PBS -S /bin/bash
cd /home/ada/gpt || exit # PBS starts us at home
export PATH=$PATH:${PBS_O_PATH-} # and with little in it: that of the shell where qsub was typed
export NCCL_DEBUG=WARN OMP_NUM_THREADS=8
: "${HF_TOKEN:?is a secret, so it is not written here: qsub -v HF_TOKEN brings it (and qstat shows it)}"
# The file has a line for each process: each host once. Ranks meet at the first, where this script runs.
mapfile -t hosts < <(awk '!seen[$0]++' "$PBS_NODEFILE") && first=${hosts[0]} id=${PBS_JOBID%%[!0-9]*}
MASTER_ADDR=$(getent ahostsv4 "$first" | awk '$1 !~ /^127\./ { print $1; exit }')
export MASTER_ADDR=${MASTER_ADDR:-$first} # by its name, where that is all there is
export MASTER_PORT=$((20000 + id % 10000)) # two jobs on one port would join each other
while (: <"/dev/tcp/$MASTER_ADDR/$MASTER_PORT") 2>/dev/null; do ((MASTER_PORT += 1)); done # taken: the next one
export JOB_STATE=$PWD/.job-$id # ranks find "notice" in it when they should stop soon
rm -rf "$JOB_STATE" && mkdir -m 700 "$JOB_STATE" && trap 'rm -rf "$JOB_STATE"' EXIT || exit
# What runs each rank, and stays until that has answered a TERM. Launchers exit with 1 whatever their ranks exit
# with, so the first failure is noted here. 75 is a wish to be run again: the others may finish their saving.
note() { (set -C && echo "$1" >"$JOB_STATE/code") 2>/dev/null; } # set -C: whoever comes second finds it taken
rank() { trap : TERM; "$@" || { code=$? && note "$code"; [ "$code" -eq 75 ] || exit "$code"; }; }
# What each node runs, given its number. What differs between nodes must be expanded there, not here.
node() {
  cd /home/ada/gpt || exit
  /home/ada/gpt/.venv/bin/python -m torch.distributed.run --nnodes=2 --node-rank="$1" --nproc-per-node=4 \
    --master-addr="$MASTER_ADDR" --master-port="$MASTER_PORT" --max-restarts=0 --log-dir="$JOB_STATE" --no-python bash -c \
    'rank "$@"' rank /home/ada/gpt/.venv/bin/python -u train.py --lr 1e-4 &
  until [ -e "$JOB_STATE/stop" ] || ! kill -0 $! 2>/dev/null; do sleep 1; done
  [ ! -e "$JOB_STATE/stop" ] || { sleep 5 && kill -TERM $!; } 2>/dev/null # it may be about to end by itself
  wait $!
}
# Tasks of PBS get none of our variables and functions: they read them from a file.
{ declare -px PATH MASTER_ADDR MASTER_PORT JOB_STATE NCCL_DEBUG OMP_NUM_THREADS && declare -f note rank node && echo 'export -f note rank && node "$1"'; } >"$JOB_STATE/node.sh"
# A node that fails, or does not get as far as its ranks, is of no use to the others: they are told to stop.
start() { ("$@") || { code=$? && note "$code"; [ "$code" -eq 75 ]; } || touch "$JOB_STATE/stop"; }
for n in "${!hosts[@]}"; do start pbs_tmrsh "${hosts[n]}" /bin/bash "$JOB_STATE/node.sh" "$n" & done
ended= && trap 'ended=yes' TERM
while [ "$(jobs -rp)" ]; do sleep 1 # and no longer: a trap waits for a command to end
  [ $SECONDS -lt 6900 ] || touch "$JOB_STATE/notice" # stop soon
done
code=$(cat "$JOB_STATE/code" 2>/dev/null || echo 0)
# Once more after 75, or after a failure that followed the notice; not for ever, nor if it was ended.
[ "$code" -eq 75 ] || { [ "$code" -ne 0 ] && [ -e "$JOB_STATE/notice" ]; } || exit "$code"
[ -n "$ended" ] || [ "${TRIES:-0}" -ge 3 ] || qsub -W "depend=afterany:$PBS_JOBID" -v "TRIES=$((${TRIES:-0} + 1)),HF_TOKEN" "$0"
exit "$code"
