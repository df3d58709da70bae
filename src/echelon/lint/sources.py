"""Finds and reads the scripts to check: files, folders, documents and standard input."""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from echelon.lint.documents import JOB_WORDS, shell_blocks
from echelon.lint.model import Skipped
from echelon.lint.script import Source
from echelon.text import format_size

MAX_BYTES = 1 << 20
"""Largest file. Job scripts have a few kilobytes; a larger file is data."""
STDIN = "<stdin>"
MARKDOWN = frozenset({".md", ".markdown", ".mdx"})
RST = frozenset({".rst", ".rest"})
IN_FOLDERS = frozenset({".sbatch", ".slurm", ".pbs", ".sh", ".md", ".qsub", ".slrm", ".job", ".rst"})
SKIPPED_FOLDERS = frozenset({"node_modules", "__pycache__", "site-packages", "venv", "build", "dist"})


def find_files(names: Sequence[str]) -> Iterator[tuple[str, bool]]:
    """The files of the command line, in folders those with the usual endings; and whether a folder was walked."""
    for name in names:
        if name != "-" and os.path.isdir(name):  # noqa: PTH112  Path.is_dir raises PermissionError before Python 3.14
            for path in _walk(name):
                yield path, True
        else:
            yield name, False


def _walk(folder: str) -> Iterator[str]:
    for root, folders, files in os.walk(folder):
        folders[:] = sorted(one for one in folders if not one.startswith(".") and one not in SKIPPED_FOLDERS)
        for file in sorted(files):
            if os.path.splitext(file)[1].lower() in IN_FOLDERS:  # noqa: PTH122  faster than Path for many files
                yield os.path.join(root, file)  # noqa: PTH118


def read_sources(name: str, *, from_folder: bool) -> list[Source] | Skipped:
    """The scripts of one file. Of a folder, files that do not look like job scripts give an empty list."""
    try:
        data = sys.stdin.buffer.read(MAX_BYTES + 1) if name == "-" else read_file(Path(name))
    except OSError as error:
        return Skipped(path=name, reason=error.strerror or str(error))
    path = STDIN if name == "-" else name
    if len(data) > MAX_BYTES:
        return Skipped(path=path, reason=f"larger than {format_size(MAX_BYTES)}")
    if b"\0" in data:
        return Skipped(path=path, reason="a binary file")
    text = data.decode(errors="replace").replace("\r\n", "\n")
    if from_folder and not JOB_WORDS.search(text):
        return []
    return sources_of(path, text)


def read_file(path: Path) -> bytes:
    """At most one byte more than the limit. Never blocks on a pipe. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with os.fdopen(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(0, "not a regular file")
        return file.read(MAX_BYTES + 1)


def sources_of(path: str, text: str) -> list[Source]:
    """The script, or the blocks of a document."""
    suffix = Path(path).suffix.lower()
    is_script = re.match(r"#!|\s*#(SBATCH|PBS)\b", text) is not None
    if suffix in MARKDOWN or (suffix == ".txt" and not is_script and "```" in text):
        return _document(path, text, is_rst=False)
    if suffix in RST or (suffix == ".txt" and not is_script and re.search(r"^\s*\.\. code", text, re.MULTILINE)):
        return _document(path, text, is_rst=True)
    return [Source(path=path, text=text, document=text)]


def _document(path: str, text: str, *, is_rst: bool) -> list[Source]:
    blocks = shell_blocks(text.split("\n"), is_rst=is_rst)
    return [
        Source(
            path=path,
            text=block.text,
            first_line=block.first_line,
            title=block.title,
            document=text,
            is_fragment=True,
        )
        for block in blocks
    ]


def find_companion(source: Source, name: str, others: Sequence[Source]) -> Source | None:
    """Another script that this one runs: in the same document, or a file in the same folder."""
    if source.is_fragment or source.path == STDIN:
        return next((one for one in others if one.title == name and one is not source), None)
    found = read_sources(str(Path(source.path).parent / name), from_folder=False)
    return found[0] if isinstance(found, list) and len(found) == 1 and not found[0].is_fragment else None
