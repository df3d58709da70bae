"""All ranks sleep after the same collective."""

import time

from common import arrive, join

join()
arrive()
time.sleep(600)
