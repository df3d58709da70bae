"""One rank imports a file with a syntax error."""

import importlib
import sys
import tempfile
from pathlib import Path

from common import others_wait

others_wait()
with tempfile.TemporaryDirectory() as folder:
    (Path(folder) / "my_model.py").write_text("def forward(self, x:\n    return x\n")
    sys.path.insert(0, folder)
    importlib.import_module("my_model")
