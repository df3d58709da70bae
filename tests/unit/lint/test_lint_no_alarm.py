"""Scripts that look like a trap and are none. Each was a false alarm once, or could be one."""

from pathlib import Path

import pytest
from linting import HEAD, PBS, findings, rules

SRUN = "srun --kill-on-bad-exit=1"
STATIC = "torchrun --nnodes=2 --nproc-per-node=4 --master-addr=$A --master-port=$P"
SIGNAL = f"{HEAD}#SBATCH --signal=B:USR1@60\n#SBATCH --open-mode=append\n"
CASES = {
    # expanded by the task, not by the batch shell
    "single quotes": ("node-rank-in-batch-shell", f"{HEAD}{SRUN} bash -c '{STATIC} --node-rank=$SLURM_NODEID t.py'\n"),
    "escaped": ("node-rank-in-batch-shell", f'{HEAD}{SRUN} bash -c "{STATIC} --node-rank=\\$SLURM_NODEID t.py"\n'),
    "variable for later": (
        "node-rank-in-batch-shell",
        f"{HEAD}export L='{STATIC}'\n{SRUN} bash -c '$L --node_rank $SLURM_PROCID t.py'\n",
    ),
    "task script": ("node-rank-in-batch-shell", f"#!/bin/bash\n{STATIC} --node-rank=$SLURM_NODEID t.py\n"),
    "one node": (
        "node-rank-in-batch-shell",
        f"#!/bin/bash\n#SBATCH -N 1\n{SRUN} {STATIC} --node-rank=$SLURM_NODEID t.py\n",
    ),
    "only printed": ("node-rank-in-batch-shell", f"{HEAD}echo srun {STATIC} --node-rank=$SLURM_NODEID t.py\n"),
    # started on all nodes
    "ssh": ("launcher-on-first-node", f"{HEAD}ssh n2 torchrun --nnodes=2 t.py &\ntorchrun --nnodes=2 t.py\n"),
    "mpirun": ("launcher-on-first-node", f"{PBS}mpirun -np 2 torchrun --nnodes=2 t.py\n"),
    "srun in a loop": (
        "launcher-on-first-node",
        f"{HEAD}for n in a b; do srun -w $n torchrun --nnodes=2 t.py & done\ntorchrun --nnodes=2 t.py\n",
    ),
    "deepspeed starts nodes": ("launcher-on-first-node", f"{HEAD}deepspeed --hostfile h t.py\n"),
    "unknown number": ("launcher-on-first-node", "#!/bin/bash\n#SBATCH -p gpu\ntorchrun --nnodes=$N t.py\n"),
    "never called": ("more-processes-than-gpus", f"{HEAD}old() {{ torchrun --nproc-per-node=8 t.py; }}\npython t.py\n"),
    # values from outside
    "port from outside": ("fixed-port", f"{HEAD}MASTER_PORT=${{MASTER_PORT:-29500}}\n{SRUN} python t.py\n"),
    "port if unset": (
        "fixed-port",
        f'{HEAD}if [ -z "$MASTER_PORT" ]; then MASTER_PORT=29500; fi\n{SRUN} python t.py\n',
    ),
    "port of the job": ("fixed-port", f"{HEAD}MASTER_PORT=$((20000 + SLURM_JOB_ID % 9999))\n{SRUN} python t.py\n"),
    "whole nodes": ("fixed-port", f"{HEAD}#SBATCH --exclusive\nMASTER_PORT=29500\n{SRUN} python t.py\n"),
    "no job": ("fixed-port", "#!/bin/bash\ntorchrun --master_port=29500 t.py\n"),
    "endpoint from outside": (
        "endpoint-without-port",
        f"{HEAD}{SRUN} torchrun --rdzv-backend=c10d --rdzv-endpoint=$E t.py\n",
    ),
    "endpoint on whole nodes": (
        "endpoint-without-port",
        f"{HEAD}#SBATCH --exclusive\n{SRUN} torchrun --rdzv-backend=c10d --rdzv-endpoint=$(hostname) t.py\n",
    ),
    "id of a unique port": (
        "constant-rdzv-id",
        f"{HEAD}{SRUN} torchrun --nnodes=2 --rdzv-backend=c10d --rdzv-id=1 --rdzv-endpoint=$A:$P t.py\n",
    ),
    "standalone on one node": ("standalone-multi-node", "#!/bin/bash\n#SBATCH -N 1\ntorchrun --standalone t.py\n"),
    "standalone with nnodes 1": ("standalone-multi-node", f"{HEAD}{SRUN} torchrun --standalone --nnodes=1 t.py\n"),
    "localhost on one node": (
        "localhost-address",
        f"#!/bin/bash\n#SBATCH -N 1\nMASTER_ADDR=localhost\n{SRUN} python t.py\n",
    ),
    "localhost replaced": (
        "localhost-address",
        f"{HEAD}MASTER_ADDR=localhost\nMASTER_ADDR=$(hostname)\n{SRUN} python t.py\n",
    ),
    "first of several": (
        "hostname-i-address",
        f"{HEAD}MASTER_ADDR=$(hostname -I | awk '{{print $1}}')\n{SRUN} python t.py\n",
    ),
    "other use of hosts": ("etc-hosts-address", f"{HEAD}LINES=$(wc -l /etc/hosts)\n{SRUN} python t.py\n"),
    "endpoint given": (
        "c10d-without-endpoint",
        f"{HEAD}{SRUN} torchrun --nnodes=2 --rdzv-backend=c10d --rdzv-endpoint=$E t.py\n",
    ),
    # numbers
    "gpus by task": (
        "more-processes-than-gpus",
        f"#!/bin/bash\n#SBATCH -N 1\n#SBATCH --ntasks-per-node=4\n#SBATCH --gpus-per-task=1\n{SRUN} torchrun --nproc-per-node=1 t.py\n",
    ),
    "one task of several": ("more-processes-than-gpus", f"{HEAD}srun -n1 torchrun --nproc-per-node=4 t.py\n"),
    "one process for all": ("idle-gpus", f"{HEAD}{SRUN} torchrun --nproc-per-node=1 t.py\n"),
    "step of fewer nodes": ("nnodes-mismatch", f"{HEAD}srun -N 1 -n 1 torchrun --nnodes=1 t.py\n"),
    "one job per node": ("nnodes-mismatch", "#!/bin/bash\n#SBATCH -N 1\ntorchrun --nnodes=4 --node-rank=$1 t.py\n"),
    "as many tasks as nodes": (
        "ntasks-without-per-node",
        f"#!/bin/bash\n#SBATCH -N 2\n#SBATCH -n 2\n#SBATCH --gres=gpu:4\n{SRUN} python t.py\n",
    ),
    "mpi without gpus": ("ntasks-without-per-node", "#!/bin/bash\n#SBATCH -N 2\n#SBATCH -n 80\nsrun ./solver\n"),
    "gpus and other gres": (
        "mixed-gpu-requests",
        "#!/bin/bash\n#SBATCH --gres=nvme:10\n#SBATCH --gpus-per-node=4\ntrue\n",
    ),
    "sum that fits": ("mixed-gpu-requests", f"{HEAD}#SBATCH --gpus=8\ntrue\n"),
    "one node is a number": (
        "variable-is-not-a-number",
        f"#!/bin/bash\n#SBATCH -N 1\n{SRUN} torchrun --nproc-per-node=$SLURM_TASKS_PER_NODE t.py\n",
    ),
    "cut before use": ("variable-is-not-a-number", f"{HEAD}N=$((${{SLURM_TASKS_PER_NODE%%(*}} * 2))\n"),
    # srun
    "options from outside": ("srun-without-kill-on-bad-exit", f"{HEAD}srun $SRUN_ARGS torchrun t.py\n"),
    "cpus from outside": ("srun-cpus-per-task", f"{HEAD}#SBATCH -c 8\nsrun $SRUN_ARGS python t.py\n"),
    "not our program": ("srun-without-kill-on-bad-exit", f"{HEAD}MASTER_ADDR=x\nsrun hostname\n"),
    "mpi4py ends all ranks": (
        "srun-without-kill-on-bad-exit",
        f"{HEAD}export MASTER_ADDR=x\nsrun python -m mpi4py t.py\n",
    ),
    "tasks on their own": (
        "srun-without-kill-on-bad-exit",
        "#!/bin/bash\n#SBATCH -N 1 -n 4\nmodule load pytorch || exit\nsrun python t.py\n",
    ),
    "code on purpose": ("exit-code-lost", f"{HEAD}{SRUN} python t.py &\nwait\nexit 0\n"),
    "several addresses are handled": (
        "hostname-i-address",
        f'{HEAD}head_node_ip=$(hostname -i)\nif [[ "$head_node_ip" == *" "* ]]; then x; fi\n',
    ),
    "cpus by variable": (
        "srun-cpus-per-task",
        f"{HEAD}#SBATCH -c 8\nexport SRUN_CPUS_PER_TASK=8\n{SRUN} python t.py\n",
    ),
    "process of a daemon": (
        "srun-cpus-per-task",
        "#!/bin/bash\n#SBATCH -N 1\n#SBATCH -c 16\nsrun -n 1 docker exec box python3 t.py\n",
    ),
    "program or options": (
        "srun-cpus-per-task",
        f"{HEAD}#SBATCH -c 8\nX=-c8\nX=nsys\nif a; then X=; fi\nsrun $X python t.py\n",
    ),
    "tasks of the whole job": (
        "srun-without-kill-on-bad-exit",
        "#!/bin/bash\n#SBATCH --ntasks-per-node=4\n#SBATCH --gpus-per-node=4\nsrun -n 1 python t.py\n",
    ),
    "function that starts nodes": (
        "launcher-on-first-node",
        f'{HEAD}on() {{ srun "$@"; }}\non torchrun --nnodes=2 t.py\n',
    ),
    "output in a file": ("srun-output-of-one-task", f"{HEAD}{SRUN} --output=0.log python t.py\n"),
    # exit codes
    "pipefail": ("exit-code-lost", f"{HEAD}set -euo pipefail\n{SRUN} python t.py | tee log\n"),
    "status of the pipe": ("exit-code-lost", f"{HEAD}{SRUN} python t.py | tee log\nexit ${{PIPESTATUS[0]}}\n"),
    "wait for the process": ("exit-code-lost", f"{HEAD}{SRUN} python t.py &\nwait $!\n"),
    "a listing": ("exit-code-lost", f"{HEAD}srun hostname | sort\npython --version | tee v\n{SRUN} python t.py\n"),
    "errexit": ("setup-failure-ignored", f"{HEAD}set -e\nmodule load cuda\n{SRUN} python t.py\n"),
    "errexit in the first line": (
        "setup-failure-ignored",
        "#!/bin/bash -e\n#SBATCH -N 1\nmodule load x\npython t.py\n",
    ),
    "purge only": (
        "setup-failure-ignored",
        f"{HEAD}module purge\nmodule spider x\nml list\nsource ~/.bashrc\n{SRUN} python t.py\n",
    ),
    # signals
    "exec": ("signal-without-trap", f"{SIGNAL}exec srun python t.py\n"),
    "not to the shell": ("signal-without-trap", f"{SIGNAL.replace('B:', '')}{SRUN} python t.py\n"),
    "handler does the work": ("single-wait-after-trap", f"{SIGNAL}trap 'cp -r out $HOME' USR1\nsleep 99 &\nwait\n"),
    "in the background": ("trap-foreground-child", f"{SIGNAL}trap 'echo x' USR1\n{SRUN} python t.py &\nwait $!\n"),
    "a service": (
        "requeue-without-limit",
        f"{SIGNAL}again() {{ scontrol requeue $SLURM_JOB_ID; }}\ntrap again USR1\nsleep 9 &\nwait\n",
    ),
    "if it is not done": (
        "requeue-without-limit",
        f"{SIGNAL}again() {{\n  if [ ! -f done ]; then\n    scontrol requeue $SLURM_JOB_ID\n  fi\n}}\ntrap again USR1\npython t.py &\nwait $!\n",
    ),
    "requeue by hand": (
        "requeue-without-limit",
        f"#SBATCH --nodes=2\nsbatch train.sh\nscontrol requeue 77\n{SRUN} torchrun t.py\n",
    ),
    # directives
    "switched off": ("directive-is-a-comment", f"{HEAD}##SBATCH --time=1:00\n# SBATCH --mem=0\n{SRUN} python t.py\n"),
    "how to submit": ("directive-is-a-comment", f"#!/bin/bash\n# sbatch -N 2 job.sh\n{HEAD[12:]}{SRUN} python t.py\n"),
    "comment behind": (
        "directive-two-on-a-line",
        f"{HEAD}#SBATCH -t 10 # or '#SBATCH -t 1:00:00'\n{SRUN} python t.py\n",
    ),
    "plugin of the site": (
        "unknown-option",
        f"{HEAD}#SBATCH --container-image=x\n#SBATCH --chemical=2\n{SRUN} python t.py\n",
    ),
    "abbreviation": (
        "unknown-option",
        f"{HEAD}#SBATCH --cpus-per-t=2\n#SBATCH --tasks-per-node=1\n{SRUN} python t.py\n",
    ),
    "pattern in a file name": ("directive-variable", f"{HEAD}#SBATCH --output=%x-%j.out\n{SRUN} python t.py\n"),
    "memory": ("invalid-value", f"{HEAD}#SBATCH --mem=16GB\n#SBATCH --mem-per-cpu=500m\n{SRUN} python t.py\n"),
    "time": ("invalid-value", f"{HEAD}#SBATCH --time=1-12\n#SBATCH --time-min=90:30\n{SRUN} python t.py\n"),
    "word for another program": (
        "invalid-value",
        f"{HEAD}#SBATCH --mem=MEM_FOR_JOB\n#SBATCH -t WTIME\n{SRUN} python t.py\n",
    ),
    "many variables": (
        "directive-variable",
        "#!/bin/bash\n#SBATCH -o $a\n#SBATCH -e $b\n#SBATCH -p $c\n#SBATCH -A $d\npython t.py\n",
    ),
    "usage in lower case": ("directive-is-a-comment", f"{HEAD}#sbatch --export=A=1 job.sh\n{SRUN} python t.py\n"),
    "tasks that fit": ("mixed-gpu-requests", HEAD.replace("node=1", "node=4") + "#SBATCH --gpus-per-task=1\ntrue\n"),
    "template": ("invalid-value", f"{HEAD}#SBATCH --mem=@MEM@\n#SBATCH --time={{{{ time }}}}\n{SRUN} python t.py\n"),
    "generated script": ("directive-after-command", f"{HEAD}cat >x <<EOF\n#SBATCH --nodes=4\nEOF\nsbatch x\n"),
    "several scripts": ("directive-after-command", f"{HEAD}true\n#!/bin/bash\n#SBATCH -N 1\ntrue\n"),
    # secrets
    "secret from a file": ("secret-in-script", f"{HEAD}export WANDB_API_KEY=$(cat ~/.key)\n{SRUN} python t.py\n"),
    "placeholder": ("secret-in-script", f"{HEAD}export HF_TOKEN=your_token_goes_here_1\n{SRUN} python t.py\n"),
    "a tokenizer": ("secret-in-script", f"{HEAD}TOKENIZER_PATH=EleutherAI/gpt-neox-20b\n{SRUN} python t.py\n"),
    "names only": ("export-comma", f"{HEAD}#SBATCH --export=ALL,HOME,LAYERS=3\n{SRUN} python t.py\n"),
    # PBS
    "folder given": ("pbs-wrong-folder", "#!/bin/bash\n#PBS -l ncpus=1\n#PBS -l wd\npython train.py\n"),
    "absolute": ("pbs-wrong-folder", "#!/bin/bash\n#PBS -l ncpus=1\npython /data/train.py\n"),
    "one line per host": ("pbs-repeated-hosts", f"{PBS}NNODES=$(wc -l < $PBS_NODEFILE)\nmpiexec python t.py\n"),
    "processes": (
        "pbs-repeated-hosts",
        "#!/bin/bash\n#PBS -l nodes=2:ppn=4\nNP=$(wc -l < $PBS_NODEFILE)\nmpirun -np $NP ./solver\n",
    ),
    "not python": ("launcher-on-first-node", "#!/usr/bin/env python3\n#SBATCH --nodes=2\nimport torchrun\n"),
}


@pytest.mark.parametrize(("rule", "text"), CASES.values(), ids=CASES)
def test_no_false_alarm(rule, text):
    assert rule not in rules(text)


DOCUMENTS = {
    "typed": ("exit-code-lost", "```bash\n$ export OMP_NUM_THREADS=2\n$ srun -N1 -n2 ./hello | sort\n```\n"),
    "console": ("exit-code-lost", "```console\nsrun -n2 ./hello | sort\n```\n"),
    "list of commands": (
        "requeue-overwrites-log",
        "```\n#!/bin/bash\n#SBATCH --nodes=1\n```\n\nThen:\n\n```\nsbatch train.sh\nscontrol requeue $SLURM_JOB_ID\n```\n",
    ),
    "value to fill in": (
        "requeue-without-limit",
        "```\n#!/bin/bash\n#SBATCH -N 1\nscontrol requeue <jobid>\npython t.py\n```\n",
    ),
}


@pytest.mark.parametrize(("rule", "text"), DOCUMENTS.values(), ids=DOCUMENTS)
def test_no_false_alarm_in_a_document(rule, text):
    assert rule not in rules(text, "a.md")


GOLDEN = sorted((Path(__file__).parents[2] / "golden").glob("*.sh"))


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_scripts_that_echelon_makes_have_no_findings(path):
    assert findings(path.read_text(), str(path)) == []
