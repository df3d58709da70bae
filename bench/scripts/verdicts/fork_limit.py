"""One rank starts a program, but ulimit -u allows no further process."""

import os
import resource
import subprocess

from common import drop_root, others_wait

others_wait()
drop_root()
resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))
os.chdir("/")
subprocess.run(["true"], check=True)
