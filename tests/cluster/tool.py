"""The `echelon` command on the login node of the test cluster."""

import subprocess
import uuid
from pathlib import Path

from cluster import Cluster
from running import AnyTool


class Tool(AnyTool):
    """Runs `echelon` on the login node as the user, in a separate folder."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster = cluster
        self.folder = folder
        self.mark = uuid.uuid4().hex
        # torch's compiler, which DDP imports, keeps a cache beside the nodes' temporary files: not a thing of ours
        self.env = {"TEST_MARK": self.mark, "TORCHINDUCTOR_CACHE_DIR": str(folder / "cache")}

    def __call__(self, *args, env=None, cwd=None, timeout=90) -> subprocess.CompletedProcess:
        return self.cluster.run(
            "ctl",
            self.argv(*args),
            env={**self.env, **(env or {})},
            cwd=cwd or self.folder,
            timeout=timeout,
            check=False,
        )

    def start(self, *args, env=None, **options) -> subprocess.Popen:
        """Signals to what this returns reach `echelon` itself."""
        return self.cluster.popen("ctl", self.argv(*args), env={**self.env, **(env or {})}, cwd=self.folder, **options)
