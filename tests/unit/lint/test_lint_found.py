"""More forms of the traps than the examples of the rules have."""

import pytest
from linting import HEAD, PBS, findings, rules, script

from echelon.lint.check import check_script
from echelon.lint.rules import BY_ID
from echelon.lint.script import JobScript

SRUN = "srun --kill-on-bad-exit=1"
STATIC = "torchrun --nnodes=2 --nproc-per-node=4 --master-addr=$A --master-port=$P"
SIGNAL = f"{HEAD}#SBATCH --signal=B:USR1@60\n#SBATCH --open-mode=append\n"
BY_HOST_NAME = """\
i=0
for n in $(scontrol show hostnames); do
  [ $n = $(hostname) ] && NODE_RANK=$i
  i=$((i + 1))
done
"""
KEY = "0a1b2c3d4e5f60718293a4b5c6d7e8f901234567"
CASES = {
    "through a variable": (
        "node-rank-in-batch-shell",
        f"{HEAD}NODE_RANK=$SLURM_NODEID\n{SRUN} {STATIC} --node-rank=$NODE_RANK t.py\n",
    ),
    "double quotes": ("node-rank-in-batch-shell", f'{HEAD}{SRUN} bash -c "{STATIC} --node-rank=$SLURM_NODEID t.py"\n'),
    "through a command variable": (
        "node-rank-in-batch-shell",
        f'{HEAD}CMD="{STATIC} --node-rank $SLURM_PROCID"\n{SRUN} $CMD t.py\n',
    ),
    "through an array": (
        "node-rank-in-batch-shell",
        f'{HEAD}ARGS=(--nnodes 2 --node-rank $SLURM_NODEID)\n{SRUN} torchrun "${{ARGS[@]}}" t.py\n',
    ),
    "exported rank": ("node-rank-in-batch-shell", f"{HEAD}export RANK=$SLURM_PROCID\n{SRUN} python t.py\n"),
    "argument of the script": ("node-rank-in-batch-shell", f"{HEAD}{SRUN} python t.py --local_rank $SLURM_LOCALID\n"),
    "by host name": (
        "node-rank-in-batch-shell",
        f"{HEAD}{BY_HOST_NAME}{SRUN} {STATIC} --node-rank=$NODE_RANK t.py\n",
    ),
    "in a container": (
        "more-processes-than-gpus",
        HEAD.replace("node=1", "node=2") + f"{SRUN} apptainer exec i.sif torchrun --nproc-per-node=4 t.py\n",
    ),
    "one process per gpu each": (
        "more-processes-than-gpus",
        HEAD.replace("node=1", "node=4") + f"{SRUN} torchrun --nproc-per-node=gpu t.py\n",
    ),
    "launch without srun": (
        "launcher-on-first-node",
        f"{HEAD}python -m torch.distributed.run --nproc-per-node=4 t.py\n",
    ),
    "on PBS": ("launcher-on-first-node", f"{PBS}torchrun --nnodes=2 t.py\n"),
    "port in an option": ("fixed-port", f"{HEAD}{SRUN} accelerate launch --main_process_port 29500 t.py\n"),
    "port on PBS": ("fixed-port", f"{PBS}export MASTER_PORT=29500\nmpiexec python t.py\n"),
    "localhost without srun": (
        "localhost-address",
        f"{HEAD}torchrun --nnodes=2 --nproc-per-node=4 --rdzv-endpoint=localhost:29500 t.py\n",
    ),
    "localhost as an option": ("localhost-address", f"{HEAD}{SRUN} torchrun --nnodes=2 --master-addr=127.0.0.1 t.py\n"),
    "by srun on the first node": (
        "hostname-i-address",
        f"{HEAD}head_node_ip=$(srun -N1 -n1 -w $h hostname --ip-address)\n{SRUN} python t.py\n",
    ),
    "sum too large": ("mixed-gpu-requests", f"{HEAD}#SBATCH --gpus=4\ntrue\n"),
    "tasks that do not fit": ("mixed-gpu-requests", f"{HEAD}#SBATCH --gpus-per-task=1\ntrue\n"),
    "no blank between": (
        "directive-two-on-a-line",
        f"#!/bin/bash\n#SBATCH --job-name=a#SBATCH -N 2\n{SRUN} python t.py\n",
    ),
    "type of GPU": (
        "variable-is-not-a-number",
        f"#!/bin/bash\n#SBATCH --gpus-per-node=a100:4\n{SRUN} torchrun --nproc-per-node=$SLURM_GPUS_PER_NODE t.py\n",
    ),
    "in arithmetic": ("variable-is-not-a-number", f"{HEAD}WORLD=$((SLURM_NNODES * SLURM_TASKS_PER_NODE))\n"),
    "many in the background": ("exit-code-lost", f"{HEAD}for i in 1 2; do\n  srun -n1 python t.py $i &\ndone\nwait\n"),
    "pipe behind a string": ("exit-code-lost", f"{HEAD}{SRUN} bash -c 'python t.py' | tee log\n"),
    "pipe with stderr": ("exit-code-lost", f"{HEAD}{SRUN} python t.py |& tee log\n"),
    "any number of nodes": (
        "srun-without-kill-on-bad-exit",
        "#!/bin/bash\n#SBATCH --ntasks-per-node=4\n#SBATCH --gpus-per-node=4\nsrun python t.py\n",
    ),
    "program in a variable": (
        "srun-without-kill-on-bad-exit",
        f'{HEAD.replace("node=1", "node=4")}P=""\nif [ "$1" = x ]; then P="nsys profile"; fi\nsrun $P python t.py\n',
    ),
    "cpus with a program in a variable": (
        "srun-cpus-per-task",
        f'{HEAD}#SBATCH -c 8\nP=""\nif [ "$1" = x ]; then P="nsys profile"; fi\nsrun $P python t.py\n',
    ),
    "through a function": (
        "srun-without-kill-on-bad-exit",
        f'{HEAD}run() {{ echo "$@"; time "$@"; }}\nrun srun torchrun --nproc-per-node=4 t.py\n',
    ),
    "set-up before a function": (
        "setup-failure-ignored",
        f'{HEAD}run() {{ echo "$@"; time "$@"; }}\nsource env/bin/activate\nrun {SRUN} python t.py\n',
    ),
    "trap of another signal": ("signal-without-trap", f"{SIGNAL}trap 'echo x' TERM\n{SRUN} python t.py\n"),
    "signal by number": (
        "trap-foreground-child",
        f"{SIGNAL.replace('USR1', '10')}trap 'echo x' USR1\n{SRUN} python t.py\n",
    ),
    "no signal to the shell": (
        "signal-misses-batch-shell",
        f"{SIGNAL.replace('B:', '')}trap 'echo x; date' USR1\npython t.py &\nwait $!\n",
    ),
    "all are comments": (
        "directive-is-a-comment",
        f"#!/bin/bash\n# SBATCH --nodes=2\n# SBATCH --time=10\n{SRUN} python t.py\n",
    ),
    "indented": ("directive-is-a-comment", f"{HEAD} #SBATCH --time=10\n{SRUN} python t.py\n"),
    "lower case": ("directive-is-a-comment", f"{HEAD}#sbatch --time=10\n{SRUN} python t.py\n"),
    "on PBS, late": ("directive-after-command", f"{PBS}#PBS -q gpu\nmpiexec python t.py\n"),
    "one dash": ("unknown-option", f"{HEAD}#SBATCH -exclusive\n{SRUN} python t.py\n"),
    "ambiguous": ("unknown-option", f"{HEAD}#SBATCH --node=3\n{SRUN} python t.py\n"),
    "four fields": ("invalid-value", f"{HEAD}#SBATCH --time=05:00:00:00\n{SRUN} python t.py\n"),
    "blanks around =": ("invalid-value", f"#!/bin/bash\n#SBATCH --nodes = 2\n{SRUN} python t.py\n"),
    "hours": ("invalid-value", f"{HEAD}#SBATCH -t 12h\n{SRUN} python t.py\n"),
    "login": ("secret-in-script", f"{HEAD}wandb login {KEY}\n{SRUN} python t.py\n"),
    "in --export": ("secret-in-script", f"{HEAD}#SBATCH --export=ALL,WANDB_API_KEY={KEY}\n{SRUN} python t.py\n"),
    "of Hugging Face": ("secret-in-script", f"{HEAD}export HF_TOKEN=hf_{KEY[:20]}XyZ\n{SRUN} python t.py\n"),
    "comma for srun": ("export-comma", f"{HEAD}{SRUN} --export=ALL,GPUS=0,1 python t.py\n"),
    "chunks of one GPU": (
        "pbs-chunks-on-one-host",
        "#!/bin/bash\n#PBS -l select=2:ncpus=8:ngpus=1\ncd $PBS_O_WORKDIR || exit\nmpiexec torchrun --nnodes=2 t.py\n",
    ),
}


@pytest.mark.parametrize(("rule", "text"), CASES.values(), ids=CASES)
def test_trap_is_found(rule, text):
    assert rule in rules(text)


FIXES = {
    "option of srun": (
        "unknown-option",
        f"{HEAD}#SBATCH --cpu-bind=cores\n{SRUN} python t.py\n",
        "srun --cpu-bind=cores ...",
    ),
    "one fix for c10d": (
        "node-rank-in-batch-shell",
        f"{HEAD}{SRUN} torchrun --rdzv-backend=c10d --node_rank=$SLURM_NODEID t.py\n",
        "# remove --node_rank",
    ),
    "last command": ("exit-code-lost", f"{HEAD}{SRUN} python t.py | tee log\n", "set -o pipefail"),
    "commands follow": (
        "exit-code-lost",
        f"{HEAD}{SRUN} python t.py | tee log\nenv >e\n",
        "set -o pipefail\n... | tee log || exit",
    ),
    "commands follow set -e": (
        "exit-code-lost",
        f"{HEAD}set -e\n{SRUN} python t.py | tee log\nenv >e\n",
        "set -o pipefail",
    ),
    "one task with all GPUs": (
        "more-processes-than-gpus",
        f"#!/bin/bash\n#SBATCH -N 2\n#SBATCH --ntasks-per-node=4\n#SBATCH --gpus-per-task=1\n{SRUN} torchrun --nproc-per-node=4 t.py\n",
        "#SBATCH --ntasks-per-node=1\n#SBATCH --gpus-per-task=4",
    ),
    "old short option": ("directive-is-a-comment", f"{HEAD}#BATCH -P batch\n{SRUN} python t.py\n", "#SBATCH -p batch"),
}


@pytest.mark.parametrize(("rule", "text", "fix"), FIXES.values(), ids=FIXES)
def test_fix_of_a_finding(rule, text, fix):
    assert [one.fix for one in check_script(script(text), [BY_ID[rule]])] == [fix]


TASKS = "#!/bin/bash\n#SBATCH -N 2\n#SBATCH --ntasks-per-node=4\n#SBATCH --gpus-per-task=1\n"


@pytest.mark.parametrize(("word", "found"), [("task.sh", True), ("./task.sh", True), ("tools/task.sh", False)])
def test_launcher_in_a_script_that_srun_runs(word, found):
    task = script("#!/bin/bash\nN=4\ntorchrun --nnodes=2 --nproc_per_node=$N t.py\n").source
    job = JobScript(script(f"{TASKS}{SRUN} bash {word}\n").source, {"task.sh": task}.get)
    hits = [one.sentence for one in check_script(job, [BY_ID["more-processes-than-gpus"]])]
    assert hits == ["4 tasks x 4 processes on each node, but 4 GPUs"] * found


def test_option_from_a_variable_has_the_line_of_its_text():
    text = f'{HEAD}CMD="torchrun \\\n  --nnodes 2 \\\n  --node_rank $SLURM_NODEID \\\n  t.py"\n{SRUN} $CMD\n'
    assert (7, "node-rank-in-batch-shell") in findings(text)


def test_blocks_keep_the_lines_of_the_document():
    block = "".join(f"  {line}\n" for line in (*HEAD.splitlines(), "torchrun t.py"))
    text = f"# Title\n\n- item\n\n  ```bash\n{block}  ```\n"
    assert (10, "launcher-on-first-node") in findings(text, "a.md")
