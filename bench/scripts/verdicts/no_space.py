"""One rank writes a file until the file system is full. SMALL_FOLDER is on a small file system, such as a tmpfs."""

import os
from pathlib import Path

from common import others_wait

others_wait()
with (Path(os.environ["SMALL_FOLDER"]) / "model.bin").open("wb", buffering=0) as file:
    for _ in range(1024):
        file.write(bytes(1 << 20))
