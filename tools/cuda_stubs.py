"""Stand-ins for the CUDA libraries that a CUDA build of torch loads and a run on CPU never calls.

torch's own wheels for Linux need about 2 GB of NVIDIA's packages before `import torch` works. Two of these are small
and are installed as they are: the CUDA runtime, whose registration functions run at import, and CUPTI. All others are
only looked up. Each is replaced by a library of the same name whose functions stop the process if they are ever called.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

REAL = re.compile(r"lib(cudart|cupti)\.so")
DRIVER = "libcuda.so.1"  # must stay absent: if it is present, torch assumes a GPU driver
THEIRS = re.compile(r"lib(cu|nv|nccl)")
FUNCTION = re.compile(r"(cu|nv|nccl)")


def needed_packages(metadata: str) -> list[str]:
    """The pip requirements of the two real libraries, from torch's own metadata; none for a CPU build."""
    toolkit = re.search(r"^Requires-Dist: cuda-toolkit\[[^]]*\](==[\d.]+)", metadata, re.M)
    if toolkit:
        return [f"cuda-toolkit[cudart,cupti]{toolkit[1]}"]
    pairs = re.findall(r"^Requires-Dist: (nvidia-cuda-(?:runtime|cupti)-cu\d+) ?\(?(==[\d.]+)", metadata, re.M)
    return [name + version for name, version in pairs]


def make(folder: Path) -> None:
    """Puts a stand-in beside torch's libraries for each one that they need and that is missing."""
    libraries = [_read(path) for path in folder.glob("*.so*") if path.is_file()]
    present = {path.name for path in folder.iterdir()}
    needed = {name for library in libraries for name in library.needed}
    missing = {name for name in needed - present if THEIRS.match(name) and not REAL.match(name)} - {DRIVER}
    unversioned = {name for library in libraries for name in library.unversioned}
    for name in missing:
        versions: dict[str, set[str]] = {}
        for library in libraries:
            for version, functions in library.versioned.get(name, {}).items():
                versions.setdefault(version, set()).update(functions)
        _build(folder / name, versions or {"": unversioned})


@dataclass
class Library:
    """The symbols that one library needs from others."""

    needed: list[str]
    versioned: dict[str, dict[str, set[str]]] = field(default_factory=dict)
    """Functions by the library they come from and by their version there."""
    unversioned: set[str] = field(default_factory=set)


def _read(path: Path) -> Library:
    library = Library(needed=re.findall(r"\(NEEDED\).*\[(.*)\]", _output("readelf", "--dynamic", "--wide", path)))
    undefined = re.findall(r"^ +U ([^@\s]+)(?:@+(\S+))?$", _output("nm", "--dynamic", path), re.M)
    library.unversioned = {name for name, version in undefined if not version and FUNCTION.match(name)}
    source = ""
    for line in _output("readelf", "--version-info", "--wide", path).splitlines():
        if found := re.search(r"File: (\S+)\s+Cnt", line):
            source = found[1]
        elif source and (found := re.search(r"Name: (\S+)\s+Flags", line)):
            functions = {name for name, version in undefined if version == found[1]}
            library.versioned.setdefault(source, {})[found[1]] = functions
    return library


def _build(target: Path, versions: dict[str, set[str]]) -> None:
    """A library in which every function stops the process."""
    names = sorted(name for functions in versions.values() for name in functions)
    labels = "".join(f".globl {name}\n.type {name}, @function\n{name}:\n" for name in names)
    script = "".join(
        f"{version} {{ {' '.join(f'{n};' for n in sorted(names))} }};\n" for version, names in versions.items()
    )
    with tempfile.TemporaryDirectory() as folder:
        assembly, exports = Path(folder, "trap.s"), Path(folder, "exports")
        assembly.write_text(f'.text\n{labels}ud2\n.section .note.GNU-stack,"",@progbits\n')
        exports.write_text(script)
        version_script = [] if "" in versions else [f"-Wl,--version-script={exports}"]
        flags = ["-shared", "-nostdlib", f"-Wl,-soname,{target.name}", *version_script]
        _output("gcc", *flags, "-o", target, assembly)


def _output(*argv: str | Path) -> str:
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout
