"""One rank does not exit: a thread that is no daemon sleeps."""

import threading
import time

from common import IS_CULPRIT, WAIT_SECONDS, train

dist = train()
dist.barrier()
dist.destroy_process_group()
if IS_CULPRIT:
    threading.Thread(target=time.sleep, args=(WAIT_SECONDS,)).start()
