"""Scripts with the errors of `echelon lint`, their corrected versions, and the expected results of both on Slurm."""

import re
from dataclasses import dataclass

TWO = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=1\n"
ONE = "#!/bin/bash\n#SBATCH --nodes=1\n"
FIRST = "export MASTER_ADDR=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)\n"
PORT = "$((10000 + SLURM_JOB_ID % 50000))"
ENDPOINT = f'--rdzv-id=$SLURM_JOB_ID --rdzv-endpoint="$MASTER_ADDR:{PORT}"'
REAL = "--nproc-per-node=1 --rdzv-conf=join_timeout=8,last_call_timeout=1 --no-python sh -c 'echo world $WORLD_SIZE'"
SAVES = "srun --kill-on-bad-exit=1 python saves.py"
LASTS = "srun --kill-on-bad-exit=1 python lasts.py"
WAIT = 'pid=$!\nwhile kill -0 "$pid" 2>/dev/null; do wait "$pid"; code=$?; done\nexit "$code"\n'
SIGNAL = f"{ONE}#SBATCH --time=10\n#SBATCH --signal=B:USR1@60\n#SBATCH --open-mode=append\n"
FORWARD = "handler() { echo handled; scancel --signal=USR1 $SLURM_JOB_ID; }\ntrap handler USR1\n"
KEY = "0a1b2c3d4e5f60718293a4b5c6d7e8f901234567"
TORCHRUN = """#!/bin/bash
while [ $# -gt 0 ]; do
  case $1 in
    --node-rank=*) rank=${1#*=} ;;
    --nproc-per-node=*) processes=${1#*=} ;;
  esac
  shift
done
for ((i = 0; i < ${processes:-1}; i++)); do echo "$(hostname) node ${rank:-none}"; done
"""
MEET = """
import os, socket, time

address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
if os.environ["SLURM_PROCID"] == "0":
    with socket.create_server(("", port)) as server:
        server.settimeout(10)
        server.accept()
else:
    for attempt in range(30):
        try:
            socket.create_connection((address, port), 1).close()
            break
        except OSError:
            time.sleep(0.1)
    else:
        raise SystemExit("nobody is there")
print("met")
"""
SAVES_TEXT = """
import signal, sys, time

def save(*_):
    time.sleep(2)
    print("saved", flush=True)
    sys.exit()

signal.signal(signal.SIGUSR1, save)
print("ready", flush=True)
time.sleep(30)
"""
LASTS_TEXT = """
import time

print("ready", flush=True)
time.sleep(4)
print("trained", flush=True)
"""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    refused: str
    """What sbatch said, if it did not take the script."""
    code: str = ""
    """As Slurm writes it: exit code, colon, signal."""
    out: str = ""
    shown: str = ""
    """The job and its script, as scontrol shows them."""

    @property
    def words(self) -> list[str]:
        return self.out.split()

    def hosts(self) -> dict[str, int]:
        """How many lines each host printed."""
        names = re.findall(r"^(n\d) node", self.out, re.MULTILINE)
        return {name: names.count(name) for name in names}

    def ranks(self) -> list[str]:
        return sorted(re.findall(r" node (\S+)", self.out))


@dataclass(frozen=True, kw_only=True)
class Twin:
    bad: str
    good: str
    bites: object
    """Whether the outcome of the bad script is that of the trap."""
    works: object
    signal: tuple[str, ...] | None = None
    """Options of scancel for USR1, which is sent when the script prints "ready"."""


STATIC = "torchrun --nnodes=2 --nproc-per-node=1 --master-addr=$MASTER_ADDR"
TWINS = {
    "node-rank-in-batch-shell": Twin(
        bad=f"{TWO}{FIRST}srun {STATIC} --node-rank=$SLURM_NODEID t.py\n",
        good=f"{TWO}{FIRST}srun bash -c '{STATIC} --node-rank=$SLURM_NODEID t.py'\n",
        bites=lambda end: end.ranks() == ["0", "0"],
        works=lambda end: end.ranks() == ["0", "1"],
    ),
    "launcher-on-first-node": Twin(
        bad=f"{TWO}{FIRST}{STATIC} t.py\n",
        good=f"{TWO}{FIRST}srun {STATIC} t.py\n",
        bites=lambda end: len(end.hosts()) == 1,
        works=lambda end: len(end.hosts()) == 2,
    ),
    "localhost-address": Twin(
        bad=f"{TWO}export MASTER_ADDR=localhost\nexport MASTER_PORT={PORT}\nsrun python meet.py\n",
        good=f"{TWO}{FIRST}export MASTER_PORT={PORT}\nsrun python meet.py\n",
        bites=lambda end: "nobody is there" in end.out and end.code != "0:0",
        works=lambda end: (end.words, end.code) == (["met", "met"], "0:0"),
    ),
    "standalone-multi-node": Twin(
        bad=f"{TWO}srun $REAL --standalone --nnodes=2 {REAL}\n",
        good=f"{TWO}{FIRST}srun $REAL --nnodes=2 --rdzv-backend=c10d {ENDPOINT} {REAL}\n",
        bites=lambda end: "RendezvousTimeoutError" in end.out and "world" not in end.words,
        works=lambda end: end.out.count("world 2") == 2,
    ),
    "c10d-without-endpoint": Twin(
        bad=f"{TWO}{FIRST}srun $REAL --nnodes=2 --rdzv-backend=c10d --master-addr=$MASTER_ADDR {REAL}\n",
        good=f"{TWO}{FIRST}srun $REAL --nnodes=2 --rdzv-backend=c10d {ENDPOINT} {REAL}\n",
        bites=lambda end: "RendezvousTimeoutError" in end.out and "world" not in end.words,
        works=lambda end: end.out.count("world 2") == 2,
    ),
    "nnodes-mismatch": Twin(
        bad=f"{TWO}{FIRST}srun $REAL --nnodes=3 --rdzv-backend=c10d {ENDPOINT} {REAL}\n",
        good=f"{TWO}{FIRST}srun $REAL --nnodes=2 --rdzv-backend=c10d {ENDPOINT} {REAL}\n",
        bites=lambda end: "RendezvousTimeoutError" in end.out and "world" not in end.words,
        works=lambda end: end.out.count("world 2") == 2,
    ),
    "more-processes-than-gpus": Twin(
        bad=f"{ONE}#SBATCH --ntasks-per-node=4\n#SBATCH --gpus-per-node=4\nsrun torchrun --nproc-per-node=4 t.py\n",
        good=f"{ONE}#SBATCH --ntasks-per-node=1\n#SBATCH --gpus-per-node=4\nsrun torchrun --nproc-per-node=4 t.py\n",
        bites=lambda end: list(end.hosts().values()) == [16],
        works=lambda end: list(end.hosts().values()) == [4],
    ),
    "mixed-gpu-requests": Twin(
        bad=f"{ONE}#SBATCH --gres=gpu:1\n#SBATCH --gpus-per-node=2\necho $SLURM_GPUS_ON_NODE $SLURM_GPUS_PER_NODE\n",
        good=f"{ONE}#SBATCH --gpus-per-node=2\necho $SLURM_GPUS_ON_NODE $SLURM_GPUS_PER_NODE\n",
        bites=lambda end: "mutually exclusive" in end.refused or end.words == ["1", "2"],
        works=lambda end: end.words == ["2", "2"],
    ),
    "variable-is-not-a-number": Twin(
        bad=f"{TWO}echo $((SLURM_NNODES * SLURM_TASKS_PER_NODE)) ranks\n",
        good=f"{TWO}echo $((SLURM_NNODES * SLURM_NTASKS_PER_NODE)) ranks\n",
        bites=lambda end: "syntax error" in end.out and "ranks" not in end.words,
        works=lambda end: end.words == ["2", "ranks"],
    ),
    "exit-code-lost": Twin(
        bad=f"{ONE}srun python fail.py | tee log\n",
        good=f"{ONE}set -o pipefail\nsrun python fail.py | tee log\n",
        bites=lambda end: end.code == "0:0",
        works=lambda end: end.code == "3:0",
    ),
    "signal-without-trap": Twin(
        bad=f"{SIGNAL}{LASTS}\n",
        good=f"{SIGNAL}trap 'echo handled' USR1\n{LASTS} &\n{WAIT}",
        bites=lambda end: end.code == "0:10" and "trained" not in end.words,
        works=lambda end: end.words == ["ready", "handled", "trained"],
        signal=("--batch",),
    ),
    "signal-misses-batch-shell": Twin(
        bad=f"{SIGNAL.replace('B:', '')}trap 'echo handled; date' USR1\n{SAVES} &\n{WAIT}",
        good=f"{SIGNAL}{FORWARD}{SAVES} &\n{WAIT}",
        bites=lambda end: "handled" not in end.words,
        works=lambda end: end.words == ["ready", "handled", "saved"],
        signal=(),
    ),
    "trap-foreground-child": Twin(
        bad=f"{SIGNAL}trap 'echo handled' USR1\n{LASTS}\n",
        good=f"{SIGNAL}trap 'echo handled' USR1\n{LASTS} &\n{WAIT}",
        bites=lambda end: end.words == ["ready", "trained", "handled"],
        works=lambda end: end.words == ["ready", "handled", "trained"],
        signal=("--batch",),
    ),
    "single-wait-after-trap": Twin(
        bad=f'{SIGNAL}{FORWARD}{SAVES} &\nwait "$!"\n',
        good=f"{SIGNAL}{FORWARD}{SAVES} &\n{WAIT}",
        bites=lambda end: "handled" in end.words and "saved" not in end.words,
        works=lambda end: end.words == ["ready", "handled", "saved"],
        signal=("--batch",),
    ),
    "directive-after-command": Twin(
        bad="#!/bin/bash\n#SBATCH --ntasks-per-node=1\ntrue\n#SBATCH --nodes=2\necho $SLURM_NNODES\n",
        good="#!/bin/bash\n#SBATCH --ntasks-per-node=1\n#SBATCH --nodes=2\ntrue\necho $SLURM_NNODES\n",
        bites=lambda end: end.words == ["1"],
        works=lambda end: end.words == ["2"],
    ),
    "directive-variable": Twin(
        bad=f"{ONE}#SBATCH --error=$HOME/%j.err\necho here\n",
        good=f"{ONE}#SBATCH --error=%j.err\necho here\n",
        bites=lambda end: "/$HOME/" in end.shown and end.code != "0:0",
        works=lambda end: (end.words, end.code) == (["here"], "0:0"),
    ),
    "directive-two-on-a-line": Twin(
        bad="#!/bin/bash\n#SBATCH --nodes=2 #SBATCH --ntasks-per-node=2\necho $SLURM_NTASKS.\n",
        good="#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=2\necho $SLURM_NTASKS.\n",
        bites=lambda end: end.words == ["."],
        works=lambda end: end.words == ["4."],
    ),
    "directive-dash": Twin(
        bad="#!/bin/bash\n#SBATCH \u2013nodes=2\necho $SLURM_NNODES\n",
        good="#!/bin/bash\n#SBATCH --nodes=2\necho $SLURM_NNODES\n",
        bites=lambda end: "Invalid directive" in end.refused,
        works=lambda end: end.words == ["2"],
    ),
    "unknown-option": Twin(
        bad="#!/bin/bash\n#SBATCH --gpu-per-node=2\necho $SLURM_GPUS_ON_NODE\n",
        good="#!/bin/bash\n#SBATCH --gpus-per-node=2\necho $SLURM_GPUS_ON_NODE\n",
        bites=lambda end: "unrecognized option" in end.refused,
        works=lambda end: end.words == ["2"],
    ),
    "invalid-value": Twin(
        bad="#!/bin/bash\n#SBATCH --mem=1Go\necho $SLURM_MEM_PER_NODE\n",
        good="#!/bin/bash\n#SBATCH --mem=1G\necho $SLURM_MEM_PER_NODE\n",
        bites=lambda end: "Invalid --mem" in end.refused,
        works=lambda end: end.words == ["1024"],
    ),
    "secret-in-script": Twin(
        bad=f"{ONE}export WANDB_API_KEY={KEY}\necho ${{#WANDB_API_KEY}}\n",
        good=f"{ONE}source ./secrets || exit 1\necho ${{#WANDB_API_KEY}}\n",
        bites=lambda end: KEY in end.shown,
        works=lambda end: end.words == ["40"] and KEY not in end.shown,
    ),
    "export-comma": Twin(
        bad=f"{ONE}#SBATCH --export=ALL,LAYERS=0,1\necho $LAYERS\n",
        good=f"{ONE}#SBATCH --export=ALL\nexport LAYERS=0,1\necho $LAYERS\n",
        bites=lambda end: end.words == ["0"],
        works=lambda end: end.words == ["0,1"],
    ),
}
