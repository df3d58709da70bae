"""Checks a text as `echelon lint` checks a file, and calls `echelon lint` itself."""

import os
import subprocess
import sys

from echelon.lint.check import check_script, read_ignored, without_ignored
from echelon.lint.rules import BY_ID, RULES
from echelon.lint.script import JobScript, Source
from echelon.lint.sources import sources_of

HEAD = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=1\n#SBATCH --gpus-per-node=4\n"
PBS = "#!/bin/bash\n#PBS -l select=2:ncpus=8:ngpus=4\n#PBS -l place=scatter\ncd $PBS_O_WORKDIR || exit 1\n"


def script(text, path="job.sbatch"):
    return JobScript(Source(path=path, text=text, document=text))


def findings(text, path="job.sbatch"):
    """(line, rule) of each finding, in order."""
    found = [one for source in sources_of(path, text) for one in check_script(JobScript(source), RULES)]
    return [(one.line, one.rule) for one in without_ignored(found, read_ignored(text))]


def rules(text, path="job.sbatch"):
    return {rule for _, rule in findings(text, path)}


ERROR = BY_ID["launcher-on-first-node"].bad
WARNING = "#!/bin/bash\n#SBATCH -N 1\nmodule load cuda\npython train.py\n"
CLEAN = "#!/bin/bash\n#SBATCH -N 1\nmodule load cuda || exit 1\npython train.py\n"


class Lint:
    def __init__(self, folder):
        self.folder = folder
        kept = {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
        self.env = {"PATH": "/usr/bin:/bin", "HOME": str(folder), **kept}

    def write(self, name, text):
        path = self.folder / name
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(text)

    def __call__(self, *argv, text=None, **env):
        return subprocess.run(
            [sys.executable, "-m", "echelon", "lint", *argv],
            cwd=self.folder,
            env={**self.env, **env},
            input=text,
            capture_output=True,
            text=True,
            check=False,
        )
