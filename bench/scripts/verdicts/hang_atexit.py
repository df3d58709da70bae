"""One rank does not exit: a function of atexit sleeps."""

import atexit
import time

from common import IS_CULPRIT, WAIT_SECONDS, train

dist = train()
dist.barrier()
if IS_CULPRIT:
    atexit.register(time.sleep, WAIT_SECONDS)
