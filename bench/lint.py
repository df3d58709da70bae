"""Seconds to check 1,000 job scripts, without shellcheck. `python bench/lint.py`; `tools/bench` does not run it."""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from echelon.lint.check import lint_files
from echelon.lint.rules import RULES

FILES = 1000
BODY = """
module load cuda/12.{number}
source "$HOME/venvs/v{number}/bin/activate"
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_PORT=$((10000 + SLURM_JOB_ID % 50000))
ARGS=(--batch-size {number} --data "$DATA/part-{number}" --epochs 10)
for seed in 1 2 3; do
  if [ -f "done-$seed" ]; then continue; fi
  echo "run {number} with seed $seed on $SLURM_NNODES nodes"
done
srun --label torchrun --nnodes=2 --nproc-per-node=4 --rdzv-backend=c10d \\
  --rdzv-id="$SLURM_JOB_ID" --rdzv-endpoint="$MASTER_ADDR:$MASTER_PORT" train.py "${{ARGS[@]}}" 2>&1 | tee log.txt
"""


def main():
    with tempfile.TemporaryDirectory() as folder:
        for number in range(FILES):
            rule = RULES[number % len(RULES)]
            (Path(folder) / f"job-{number}.sh").write_text(rule.bad + BODY.format(number=number))
        began, cpu = time.monotonic(), time.process_time()
        report = lint_files([folder], RULES)
        seconds, cpu = time.monotonic() - began, time.process_time() - cpu
        print(f"{report.files} files, {len(report.findings)} findings: {seconds:.2f} s, {cpu:.2f} s of CPU time")
        argv = [sys.executable, "-m", "echelon", "lint", "--no-shellcheck", folder]
        began = time.monotonic()
        subprocess.run(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        print(f"echelon lint, with its start and output: {time.monotonic() - began:.2f} s")


if __name__ == "__main__":
    main()
