"""Names that users type, and the module behind each, imported only when it is chosen."""

from __future__ import annotations

import importlib
from types import ModuleType

FAMILIES = {
    "scheduler": {"local": "echelon.schedulers.local"},
    "launcher": {"ranks": "echelon.launchers.ranks"},
    "environment": {"bare": "echelon.environments.bare"},
}


def member(family: str, name: str) -> ModuleType:
    return importlib.import_module(FAMILIES[family][name])
