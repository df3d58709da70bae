"""One rank kills the starter (1) or the agent (2) of its node: its parent, or the parent of that one."""

import os
import signal
import sys
import time
from pathlib import Path

from common import others_wait


def parent_of(pid):
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("PPid:"))


others_wait()
pid = os.getpid()
if "ECHELON_NODE_DIR" not in os.environ:
    sys.exit("only under echelon: by hand this would kill your shell")
for _ in range(int(sys.argv[1])):
    pid = parent_of(pid)
os.kill(pid, signal.SIGKILL)
time.sleep(60)
