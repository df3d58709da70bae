"""One rank kills a process of its node: its parent, the starter (1), or the agent (2)."""

import os
import signal
import sys
import time
from pathlib import Path

from common import others_wait


def parent_of(pid):
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("PPid:"))


def agent_pid():
    """The process that was started as `echelon.pyz agent RUN ATTEMPT NODE ...` for this rank's node."""
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        is_python = Path(words[0]).name.startswith("python")  # srun has the words of its command too
        if is_python and "agent" in words and os.environ["ECHELON_RUN_DIR"] in words:
            place = words.index("agent")
            if words[place + 3] == os.environ["GROUP_RANK"]:
                return int(entry.name)
    return parent_of(os.getppid())  # over ssh the agent has another command line, and is the parent of the starter


others_wait()
if "ECHELON_NODE_DIR" not in os.environ:
    sys.exit("only under echelon: by hand this would kill your shell")
os.kill(os.getppid() if sys.argv[1] == "1" else agent_pid(), signal.SIGKILL)
time.sleep(60)
