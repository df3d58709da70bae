"""The options of mpirun and mpiexec, to know how many processes they start and where their command begins."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from echelon.lint.model import names
from echelon.lint.words import OPEN

MPI = names("mpirun mpiexec mpiexec.hydra orterun prterun aprun")
TOTAL = names("n np")
PER_NODE = names("ppn npernode perhost N")
ONE_VALUE = names(
    "n np ppn npernode perhost N f hostfile machinefile host hosts H x map-by bind-to rank-by depth d cpu-bind "
    "mem-bind gpu-bind envlist genvlist env-list wdir wd launcher iface rmk cpus-per-proc j cc S "
    "cpus-per-rank cpu-set output-filename configfile prefix report-uri"
)
VARIABLES = names("x env genv")
TWO_VALUES = names("mca genv env gmca prtemca pmixmca")


def count_mpi_options(words: Sequence[str]) -> int:
    """The number of words before the command. `words` begins after mpirun itself."""
    index = 0
    while index < len(words) and words[index].startswith(("-", OPEN)):
        has_value = words[index].lstrip("-") in ONE_VALUE | TWO_VALUES
        index += 3 if _has_two_values(words, index) else 2 if has_value else 1
    return min(index, len(words))


def _has_two_values(words: Sequence[str], index: int) -> bool:
    """`-env NAME VALUE` has two. `--env NAME=VALUE`, of other versions, has one."""
    name = words[index].lstrip("-")
    return name in TWO_VALUES and index + 1 < len(words) and "=" not in words[index + 1]


def mpi_variables(options: Sequence[str]) -> Iterator[str]:
    """The variables that they set for the processes, each as NAME=VALUE."""
    for index, word in enumerate(options[:-1]):
        name, following = word.lstrip("-"), options[index + 1]
        if name in VARIABLES and "=" in following:
            yield following
        elif name in VARIABLES and _has_two_values(options, index) and index + 2 < len(options):
            yield f"{following}={options[index + 2]}"


def mpi_counts(options: Sequence[str]) -> dict[str, str]:
    """The total number of processes and that of one node, under the names that srun has for them."""
    found: dict[str, str] = {}
    for word, following in zip(options, (*options[1:], ""), strict=False):
        name, equals, value = word.lstrip("-").partition("=")
        if word.startswith("-") and name in TOTAL | PER_NODE:
            found["ntasks" if name in TOTAL else "ntasks-per-node"] = value if equals else following
    return found
