"""Finds what `python -m NAME` would run, without importing it. The job's own Python runs this file's text."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import pkgutil
import sys
from collections.abc import Sequence
from pathlib import Path


def missing_part(name: str) -> tuple[str, list[str]] | None:
    """Why the module cannot be run, and the names of modules beside the missing part. None if it can be run or if that
    cannot be known without importing it."""
    parts = name.split(".")
    spec = importlib.util.find_spec(parts[0])
    known: list[str] | None = None
    for count in range(1, len(parts) + 1):
        here = ".".join(parts[:count])
        if spec is None:
            return f"No module named {here}", sibling_names(here, known)
        places = spec.submodule_search_locations
        if places is None:
            return None if count == len(parts) else (f"{here} is not a package", [])
        if changes_its_path(spec):
            return None
        following = parts[count] if count < len(parts) else "__main__"
        known = list(places)
        spec = importlib.machinery.PathFinder.find_spec(f"{here}.{following}", known)
    return None if spec is not None else (f"{name} is a package without __main__.py", sibling_names(f"{name}.x", known))


def sibling_names(name: str, places: Sequence[str] | None) -> list[str]:
    prefix = name.rpartition(".")[0]
    return [f"{prefix}.{found.name}".lstrip(".") for found in pkgutil.iter_modules(places or [""])]


def changes_its_path(spec: importlib.machinery.ModuleSpec) -> bool:
    try:
        return "__path__" in Path(spec.origin or "").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False


if __name__ == "__main__":
    print(json.dumps(missing_part(sys.argv[1])))
