"""Packs the node side into one file, echelon.pyz, that any Python from 3.10 on can run."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import io
import marshal
import types
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from echelon.backends import REGISTRY

PACKAGE = Path(__file__).parents[1]
CONTROL_ONLY = ("cli", "config", "lint", "observe", "submission", "__main__.py")
"""Files and folders that the node side does not need."""
ENTRY = "from echelon.node_side import main\n\nmain()\n"
REGISTER = "from echelon.backends import REGISTRY\n\nREGISTRY.update({!r})\n"
UNCHECKED_HASH = (0b01).to_bytes(4, "little")


def node_side() -> bytes:
    buffer = io.BytesIO()
    outside = {name: module for name, module in REGISTRY.items() if not module.startswith("echelon.")}
    register = REGISTER.format(outside) if outside else ""
    with zipfile.ZipFile(buffer, "w") as archive:
        _add_file(archive, "__main__.py", f"{register}{ENTRY}".encode())
        for name, source in _source_files(outside.values()):
            _add_file(archive, name, source.read_bytes())
            _add_file(archive, f"{name}c", _compile(source, name))
    return buffer.getvalue()


def _source_files(outside: Iterable[str]) -> Iterator[tuple[str, Path]]:
    """Each file with its name in the archive. `outside` has the modules of backends outside this package."""
    for source in sorted(PACKAGE.rglob("*.py")):
        name = source.relative_to(PACKAGE)
        if name.parts[0] not in CONTROL_ONLY:
            yield f"echelon/{name.as_posix()}", source
    for module in outside:
        source = Path(str(getattr(importlib.import_module(module), "__file__", "")))
        is_package = source.name == "__init__.py"
        for file in sorted(source.parent.rglob("*.py")) if is_package else [source]:
            yield f"{module}/{file.relative_to(source.parent).as_posix()}" if is_package else f"{module}.py", file


def _add_file(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    archive.writestr(zipfile.ZipInfo(name), data)  # the fixed date of ZipInfo makes the archive reproducible


def _compile(source: Path, name: str) -> bytes:
    """The bytecode for this version of Python, which saves compiling at every start. Other versions use the source."""
    loader = importlib.machinery.SourceFileLoader(source.stem, str(source))
    code = loader.get_code(source.stem)
    header = importlib.util.MAGIC_NUMBER + UNCHECKED_HASH + bytes(8)
    return header + marshal.dumps(_replace_file_name(code, name))


def _replace_file_name(code: Any, filename: str) -> Any:
    """Replaces the file name in the code, so that tracebacks on a node do not name files of the submitting machine."""
    if not isinstance(code, types.CodeType):
        return code
    constants = tuple(_replace_file_name(constant, filename) for constant in code.co_consts)
    return code.replace(co_filename=filename, co_consts=constants)
