"""One rank opens more files than ulimit -n allows."""

import os
import resource

from common import others_wait

others_wait()
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
files = [os.open(__file__, os.O_RDONLY) for _ in range(100)]
