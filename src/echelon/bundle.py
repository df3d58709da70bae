"""Packs the node side into one file, echelon.pyz, that any Python 3.10 can run."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import io
import marshal
import types
import zipfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
TOP_LEVEL = (
    *("__init__", "version", "errors", "exit_codes", "command", "codec", "job", "events", "states", "plan"),
    *("run_dir", "hostlist", "qstat", "scontrol", "batch_facts", "sealed"),
)
FOLDERS = ("node", "runtime", "launchers", "environments")
ENTRY = "from echelon.node.entry import main\n\nmain()\n"
UNCHECKED_HASH = (0b01).to_bytes(4, "little")


def node_side() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        _add(archive, "__main__.py", ENTRY.encode())
        for source in _sources():
            name = f"echelon/{source.relative_to(HERE).as_posix()}"
            _add(archive, name, source.read_bytes())
            _add(archive, f"{name}c", _compiled(source))
    return buffer.getvalue()


def _sources() -> list[Path]:
    folders = [path for folder in FOLDERS for path in sorted((HERE / folder).rglob("*.py"))]
    return [HERE / f"{name}.py" for name in TOP_LEVEL] + folders


def _add(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    archive.writestr(zipfile.ZipInfo(name), data)  # ZipInfo's fixed date keeps the file the same byte for byte


def _compiled(source: Path) -> bytes:
    """Saves this version of Python the compiling at every start; any other version falls back to the source."""
    loader = importlib.machinery.SourceFileLoader(source.stem, str(source))
    code = loader.get_code(source.stem)
    header = importlib.util.MAGIC_NUMBER + UNCHECKED_HASH + bytes(8)
    return header + marshal.dumps(_renamed(code, f"echelon/{source.relative_to(HERE).as_posix()}"))


def _renamed(code: Any, filename: str) -> Any:
    """Tracebacks on a node must not name files of the machine that packed them."""
    if not isinstance(code, types.CodeType):
        return code
    constants = tuple(_renamed(constant, filename) for constant in code.co_consts)
    return code.replace(co_filename=filename, co_consts=constants)
