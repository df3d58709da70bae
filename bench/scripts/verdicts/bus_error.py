"""One rank reads a memory-mapped file that was truncated."""

import mmap
import tempfile

from common import others_wait

others_wait()
with tempfile.TemporaryFile() as file:
    file.truncate(1 << 20)
    samples = mmap.mmap(file.fileno(), 1 << 20)
    file.truncate(0)
    print(samples[1000], flush=True)
