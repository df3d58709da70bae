"""Variables that describe a host, or a shell on it, and would mislead a program in a container there."""

from __future__ import annotations

NAMES = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "PWD", "OLDPWD", "SHLVL", "_", "MAIL", "HOSTNAME", "TERM", "TMPDIR"),
    *("TMP", "TEMP", "DISPLAY", "PYTHONHOME", "VIRTUAL_ENV", "MANPATH", "INFOPATH", "BASH_ENV", "ENV", "LS_COLORS"),
    *("LOADEDMODULES", "_LMFILES_", "CPATH", "LIBRARY_PATH", "PKG_CONFIG_PATH", "CMAKE_PREFIX_PATH"),
)
BEGINNINGS = (
    *("LD_", "XDG_", "DBUS_", "SSH_", "CONDA_", "MAMBA_", "MODULE", "LMOD_", "__LMOD", "__MODULES", "BASH_FUNC_"),
    *("ENROOT_", "APPTAINER_", "SINGULARITY_"),
)


ENCODED = "ECHELON_ENCODED"
"""Holds all variables, in base64, that a runtime would change on their way."""


def describes_host(name: str) -> bool:
    return name in NAMES or name.startswith(BEGINNINGS)


def pattern() -> str:
    """The same for a `case` of a shell."""
    return " | ".join((*NAMES, *(f"{beginning}*" for beginning in BEGINNINGS)))
