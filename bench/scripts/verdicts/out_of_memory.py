"""One rank allocates until the kernel kills it. Needs a memory limit of at most MOST_BYTES."""

import os

from common import others_wait

MOST_BYTES = int(os.environ.get("MOST_BYTES", str(2 << 30)))
others_wait()
blocks = []
for used in range(0, MOST_BYTES, 16 << 20):
    blocks.append(bytearray(os.urandom(1 << 20) * 16))
    print(f"{used >> 20} MiB", flush=True)
