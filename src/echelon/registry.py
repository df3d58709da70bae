"""Names that users type, and the module behind each, imported only when it is chosen."""

from __future__ import annotations

import importlib
from types import ModuleType

from echelon.errors import ConfigError

FAMILIES = {
    "scheduler": {
        "local": "echelon.schedulers.local",
        "allocation": "echelon.schedulers.allocation",
        "slurm": "echelon.schedulers.slurm",
        "pbs": "echelon.schedulers.pbs",
        "ssh": "echelon.schedulers.ssh",
    },
}


def member(family: str, name: str) -> ModuleType:
    """Raises ConfigError for a name from another version of echelon."""
    if name not in FAMILIES[family]:
        known = ", ".join(FAMILIES[family])
        raise ConfigError(
            f"no {family} is called {name!r}", why=f"this version knows {known}", hint="echelon --version"
        )
    return importlib.import_module(FAMILIES[family][name])
