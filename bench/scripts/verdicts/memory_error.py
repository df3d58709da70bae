"""One rank allocates more than its limit on address space (ulimit -v) allows."""

import resource

from common import others_wait

others_wait()
resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
blocks = [bytearray(64 << 20) for _ in range(64)]
