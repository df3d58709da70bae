"""One rank does not call init_process_group."""

import time

from common import IS_CULPRIT, WAIT_SECONDS, train

print("starting", flush=True)
if IS_CULPRIT:
    time.sleep(WAIT_SECONDS)
train()
