"""One rank creates files until the file system has no free inode. SMALL_FOLDER is on a file system with few inodes."""

import os
from pathlib import Path

from common import others_wait

others_wait()
for number in range(100_000):
    (Path(os.environ["SMALL_FOLDER"]) / f"sample-{number}").touch()
