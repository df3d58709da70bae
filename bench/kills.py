"""Kills ranks a thousand times while they save, and counts bad loads and lost checkpoints. Both must be 0."""

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from harness import repeats

SCRIPT = Path(__file__).parents[1] / "tests" / "runtime" / "scripts" / "kill_saves.py"
memory = Path("/dev/shm")
folder = Path(tempfile.mkdtemp(prefix="bench-", dir=memory if memory.is_dir() else None))
kills = 200 * repeats(5)
try:
    argv = [sys.executable, str(SCRIPT), str(folder / "saved"), str(kills), "2"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
finally:
    shutil.rmtree(folder)
if not done.stdout:
    sys.exit(done.stderr)
told = json.loads(done.stdout)
print(f"\nRanks killed with SIGKILL while they save: {told['kills']} times, over {told['steps']} committed steps")
print(f"  {told['inside_a_save']} left a save unfinished; {told['unsaid']} came between a commit and its report")
print(f"  {len(told['bad'])} bad loads of {told['loads']}, {len(told['lost'])} acknowledged checkpoints lost")
for line in told["bad"] + told["lost"]:
    print(f"  {line}")
sys.exit(done.returncode)
