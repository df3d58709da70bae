"""One rank ends with the given exit code after a last line: exit_code.py 3 [silent]."""

import os
import sys

from common import RANK, others_wait

others_wait()
if "silent" not in sys.argv:
    print(f"rank {RANK}: the licence server refused the request", flush=True)
os._exit(int(sys.argv[1]))
