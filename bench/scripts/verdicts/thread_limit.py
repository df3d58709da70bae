"""One rank starts a thread, but ulimit -u allows no further one."""

import resource
import threading

from common import drop_root, others_wait

others_wait()
drop_root()
resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))
threading.Thread(target=print).start()
