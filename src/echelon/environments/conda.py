"""`--conda NAME|DIR`: activated by conda, mamba or micromamba, without a word from the user's own shell files."""

from __future__ import annotations

from echelon.command import variable, words
from echelon.environments.entry import Entry, refuse
from echelon.job import Job

FOLDERS = ("miniforge3", "mambaforge", "miniconda3", "anaconda3")
PROGRAMS = (
    *('"${CONDA_EXE-}"', '"${MAMBA_EXE-}"', '"$(type -P conda)"', '"$(type -P micromamba)"', '"$(type -P mamba)"'),
    *(f'"$HOME/{folder}/bin/conda"' for folder in FOLDERS),
    *('"$HOME/.local/bin/micromamba"', "/opt/conda/bin/conda"),
)


def entry(job: Job) -> Entry:
    name = job.enclosure.conda or ""
    absent = refuse(
        "this node has neither conda nor micromamba", "--modules NAME that brings one, or CONDA_EXE=PATH in --setup"
    )
    cannot = refuse(f"the conda environment {name} cannot be activated", f"{variable('conda')} env list, on a node")
    empty = refuse(f"the conda environment {name} has no Python", f"{variable('conda')} install -n {name} python")
    return Entry(
        place=f"the conda environment {name}",
        lines=(
            "",
            "# The conda environment",
            f"for conda in {' '.join(PROGRAMS)}; do",
            '  [ -x "$conda" ] && break',
            "  conda=",
            "done",
            f'[ -n "$conda" ] || {absent}',
            "case ${conda##*/} in",
            '  conda*) hook=$("$conda" shell.bash hook 2>"$words") ;;',
            '  *) hook=$("$conda" shell hook --shell bash 2>"$words") ;;',
            "esac",
            'eval "$hook"',
            "activate=${conda##*/}",
            f'heard "$activate" activate {words(name)} || {cannot}',
            f'[ -x "${{CONDA_PREFIX-}}/bin/python" ] || {empty}',
        ),
    )
