"""Environments without a container: `--modules`, `--venv DIR` and `--conda NAME|DIR`. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from echelon.environments import Entry, refuse_command
from echelon.job import Job
from echelon.shell import export_lines, quote_words, shell_variable

INIT_SCRIPTS = (
    '"${MODULESHOME-}/init/bash"',
    '"${LMOD_PKG-}/init/bash"',
    "/etc/profile.d/modules.sh",
    "/etc/profile.d/lmod.sh",
    "/usr/share/modules/init/bash",
    "/usr/share/lmod/lmod/init/bash",
)
INSTALL_FOLDERS = ("miniforge3", "mambaforge", "miniconda3", "anaconda3")
CONDA_CANDIDATES = (
    '"${CONDA_EXE-}"',
    '"${MAMBA_EXE-}"',
    '"$(type -P conda)"',
    '"$(type -P micromamba)"',
    '"$(type -P mamba)"',
    *(f'"$HOME/{folder}/bin/conda"' for folder in INSTALL_FOLDERS),
    '"$HOME/.local/bin/micromamba"',
    "/opt/conda/bin/conda",
)


def module_lines(names: Sequence[str]) -> Iterator[str]:
    """Loads the site's modules. A non-login shell has to define `module` first."""
    if not names:
        return
    name = shell_variable("name")
    yield from ("", "# The modules; a non-login shell has to define `module` first")
    yield f"for init in {' '.join(INIT_SCRIPTS)}; do"
    yield "  type module >/dev/null 2>&1 && break"
    yield "  # shellcheck disable=SC1090  # the path depends on the site"
    yield '  [ -r "$init" ] && . "$init"'
    yield "done"
    hint = "MODULESHOME=DIR, or a line of --setup that defines `module`"
    yield f"type module >/dev/null 2>&1 || {refuse_command('this node has no `module`', hint)}"
    cannot = refuse_command(f"the module {name} cannot be loaded", f"module avail {name}, on a node")
    yield "load() {"
    yield "  name=$1 before=${LOADEDMODULES-}"
    yield f'  run_logged module load "$name" || {cannot}'
    yield "  # old versions always return 0: after a failure stderr is not empty and the loaded modules are unchanged"
    yield '  case ":${LOADEDMODULES-}:" in'
    yield '    *":$name:"* | *":$name/"*) ;;'
    yield f'    ":$before:") [ ! -s "$error_file" ] || {cannot} ;;'
    yield "  esac"
    yield "}"
    yield from (quote_words("load", one) for one in names)


def venv_entry(job: Job) -> Entry:
    """Sets the variables that the `activate` script would set, without running it."""
    folder = job.enclosure.venv or ""
    place = f"the virtual environment {folder}"
    hint = quote_words("python3", "-m", "venv", folder) + ", in a folder visible to this node; or another --venv"
    return Entry(
        place=place,
        lines=(
            "",
            "# The virtual environment",
            f"[ -x {quote_words(f'{folder}/bin/python')} ] || "
            + refuse_command(f"no virtual environment at {folder}", hint),
            *export_lines({"VIRTUAL_ENV": folder}),
            f'export PATH={quote_words(f"{folder}/bin")}:"$PATH"',
            "unset PYTHONHOME",
        ),
    )


def conda_entry(job: Job) -> Entry:
    """Activates with conda, mamba or micromamba. Reads no shell startup files."""
    name = job.enclosure.conda or ""
    absent = refuse_command(
        "this node has neither conda nor micromamba", "--modules NAME that provides one, or CONDA_EXE=PATH in --setup"
    )
    cannot = refuse_command(
        f"the conda environment {name} cannot be activated", f"{shell_variable('conda')} env list, on a node"
    )
    empty = refuse_command(
        f"the conda environment {name} has no Python", f"{shell_variable('conda')} install -n {name} python"
    )
    return Entry(
        place=f"the conda environment {name}",
        lines=(
            "",
            "# The conda environment",
            f"for conda in {' '.join(CONDA_CANDIDATES)}; do",
            '  [ -x "$conda" ] && break',
            "  conda=",
            "done",
            f'[ -n "$conda" ] || {absent}',
            "case ${conda##*/} in",
            '  conda*) hook=$("$conda" shell.bash hook 2>"$error_file") ;;',
            '  *) hook=$("$conda" shell hook --shell bash 2>"$error_file") ;;',
            "esac",
            'eval "$hook"',
            "activate=${conda##*/}",
            f'run_logged "$activate" activate {quote_words(name)} || {cannot}',
            f'[ -x "${{CONDA_PREFIX-}}/bin/python" ] || {empty}',
        ),
    )
