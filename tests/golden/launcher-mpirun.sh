#!/bin/sh
#SBATCH --job-name=gpt
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=4
#SBATCH --cpus-per-task=32
#SBATCH --signal=B:USR1@60
#SBATCH --wait-all-nodes=1
#SBATCH --no-kill
#SBATCH --requeue
#SBATCH --output=/home/ada/gpt/runs/gpt-20260115-101500-7f3a/job.out
#SBATCH --open-mode=append
#SBATCH --chdir=/home/ada/gpt
#SBATCH --export=ALL
exec /home/ada/gpt/.venv/bin/python -I /home/ada/gpt/runs/gpt-20260115-101500-7f3a/echelon.pyz supervise /home/ada/gpt/runs/gpt-20260115-101500-7f3a

# ---- then the agent of the first node starts all ranks with ----
# export OMPI_MCA_orte_abort_on_non_zero_status=0
# export OMPI_MCA_orte_local_tmpdir_base="$NODE_DIR"
# mpirun -n 8 --host "$HOSTS":4 --map-by ppr:4:node --oversubscribe --bind-to none --mca btl_tcp_if_include eth0 -x ECHELON_GENERATION -x ECHELON_NODE_DIR -x ECHELON_NODE_FOLDERS -x HF_TOKEN -x HOME -x LR -x PATH -x PYTHONPATH /home/ada/gpt/.venv/bin/python -I /home/ada/gpt/runs/gpt-20260115-101500-7f3a/echelon.pyz worker mpirun
