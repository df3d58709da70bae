"""The options of sbatch and srun, to find misspelled ones and to know where the command of srun begins."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from echelon.lint.model import names
from echelon.lint.words import OPEN
from echelon.record import record

SHORT = {
    "A": "account",
    "a": "array",
    "B": "extra-node-info",
    "b": "begin",
    "C": "constraint",
    "c": "cpus-per-task",
    "D": "chdir",
    "d": "dependency",
    "e": "error",
    "F": "nodefile",
    "G": "gpus",
    "i": "input",
    "J": "job-name",
    "L": "licenses",
    "M": "clusters",
    "m": "distribution",
    "N": "nodes",
    "n": "ntasks",
    "o": "output",
    "p": "partition",
    "q": "qos",
    "S": "core-spec",
    "t": "time",
    "W": "wait",
    "w": "nodelist",
    "x": "exclude",
    "P": "dependency",
    "T": "threads",
    "r": "relative",
}
"""Short options with a value. -W of sbatch has none, which does not matter here."""
FLAGS = {
    "h": "help",
    "H": "hold",
    "I": "immediate",
    "k": "no-kill",
    "O": "overcommit",
    "Q": "quiet",
    "s": "oversubscribe",
    "V": "version",
    "v": "verbose",
    "K": "kill-on-bad-exit",
    "l": "label",
    "u": "unbuffered",
    "E": "preserve-env",
    "X": "disable-status",
    "Z": "no-allocate",
}
SHARED_VALUES = names(
    "account acctg-freq bb bbf begin chdir cluster-constraint clusters comment constraint container container-id "
    "core-spec cores-per-socket cpu-freq cpus-per-gpu cpus-per-task deadline delay-boot dependency distribution "
    "error exclude export extra extra-node-info gid gpu-bind gpu-freq gpus gpus-per-node gpus-per-socket "
    "gpus-per-task gres gres-flags hint input job-name licenses mail-type mail-user mcs-label mem mem-bind "
    "mem-per-cpu mem-per-gpu mincpus network nodefile nodelist nodes ntasks ntasks-per-core ntasks-per-gpu "
    "ntasks-per-node ntasks-per-socket open-mode output partition power prefer priority profile qos reservation "
    "segment signal sockets-per-node switches thread-spec threads-per-core time time-min tmp tres-bind "
    "tres-per-task uid wckey"
)
SHARED_FLAGS = names(
    "contiguous help hold no-kill overcommit oversubscribe parsable quiet reboot spread-job stepmgr test-only usage "
    "use-min-nodes verbose version exclusive nice propagate resv-ports"
)
SBATCH = (
    SHARED_VALUES
    | SHARED_FLAGS
    | names(
        "array batch cluster consolidate-segments container-type export-file get-user-env ignore-pbs "
        "kill-on-invalid-dep mem-update no-requeue oom-kill-step requeue resources share spread-segments "
        "tasks-per-node wait wait-all-nodes workdir wrap"
    )
)
RECENT = names(
    "resources resv-ports segment consolidate-segments spread-segments container-type oom-kill-step mem-update stepmgr "
    "tres-bind tres-per-task extra prefer"
)
"""Options that older versions lack, so that an abbreviation may be unambiguous there."""
SRUN_VALUES = SHARED_VALUES | names(
    "accel-bind bcast-exclude cpu-bind cpu_bind epilog het-group ignore-signals jobid mem_bind mpi msg-timeout "
    "multi-prog pack-group prolog relative slurmd-debug task-epilog task-prolog tasks-per-node threads treewidth "
    "wait"
)
ONLY_SRUN = SRUN_VALUES - SBATCH | names("kill-on-bad-exit label unbuffered overlap pty exact no-allocate")
"""Options that srun has and sbatch does not."""
PLUGIN_PREFIXES = ("container-", "no-container-")
"""Options of pyxis, which sites add to Slurm."""
PLUGIN_FLAGS = names(
    "container-remap-root container-writable container-readonly container-mount-home container-entrypoint"
)
UNKNOWN = "?"
SAME = {
    "cluster": "clusters",
    "tasks": "ntasks",
    "tasks-per-node": "ntasks-per-node",
    "workdir": "chdir",
    "share": "oversubscribe",
}
"""Other spellings."""


@record
class Given:
    """One option as it was written."""

    name: str
    """The long name; for an unknown option the word itself."""
    value: str
    """Empty if there is none."""
    word: str
    known: bool = True
    is_abbreviation: bool = False


def find_long_name(name: str, known: frozenset[str]) -> tuple[str, bool] | None:
    """The full name of an option, which getopt lets users abbreviate, and whether it was abbreviated."""
    if name in known:
        return SAME.get(name, name), False
    if name.startswith(PLUGIN_PREFIXES):
        return name, False
    matches = {SAME.get(one, one) for one in known if one.startswith(name)}
    return (matches.pop(), True) if len(matches) == 1 else None


def parse_options(words: Sequence[str]) -> Iterator[Given]:
    """The options of an `#SBATCH` line or of sbatch."""
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word.startswith("--") and len(word) > 2:
            name, equals, value = word[2:].partition("=")
            found = find_long_name(name, SBATCH)
            if found is None:
                yield Given(name=name, value=value, word=word, known=False)
                continue
            if not equals and found[0] in SHARED_VALUES | {"array", "wrap"} and rest and not rest[0].startswith("-"):
                value = rest.pop(0)
            yield Given(name=found[0], value=value, word=word, is_abbreviation=found[1])
        elif word.startswith("-") and len(word) > 1 and word[1] in SHORT:
            value = word[2:] or (rest.pop(0) if rest else "")
            yield Given(name=SHORT[word[1]], value=value, word=word)
        elif word.startswith("-") and len(word) > 1 and word[1] in FLAGS:
            yield Given(name=FLAGS[word[1]], value="", word=word)
        else:
            yield Given(name=word, value="", word=word, known=False)


def split_srun(words: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """The options of srun, and the command with its arguments. `words` begins after srun itself.

    The key UNKNOWN means that there may be options which the script does not show.
    """
    options: dict[str, str] = {}
    rest = list(words)
    while rest and (rest[0].startswith(("-", OPEN)) and rest[0] != "-"):
        word = rest.pop(0)
        if word == "--":
            break
        if word.startswith(OPEN):  # a variable with options, or the program itself
            options[UNKNOWN] = word
            continue
        name, value, takes_next = _srun_option(word)
        options[name] = rest.pop(0) if takes_next and rest else value
    return options, rest


def _srun_option(word: str) -> tuple[str, str, bool]:
    """Name, value, and whether the value is the next word."""
    if not word.startswith("--"):
        letter = word[1]
        if letter in SHORT and letter != "W":
            return SHORT[letter], word[2:], len(word) == 2
        return FLAGS.get(letter, letter), word[2:], False
    name, equals, value = word[2:].partition("=")
    found = find_long_name(name, SRUN_VALUES)
    full = found[0] if found is not None else name
    is_plugin = full.startswith("container-") and full not in PLUGIN_FLAGS
    return full, value, not equals and (full in SRUN_VALUES or is_plugin)
