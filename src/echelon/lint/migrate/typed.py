"""Words of a command line as a person types them, and what had to be left out."""

from __future__ import annotations

import re

from echelon.lint.model import names
from echelon.lint.script import JobScript
from echelon.lint.values import DEFAULT, MARKER, OUTER, is_known, readable
from echelon.lint.words import marker, without_markers
from echelon.shell import quote_word

OF_THE_JOB = re.compile(
    r"SLURM|PBS|SRUN|PMI|OMPI|COBALT|LSB_|JOB_?ID|TMPDIR|HOST|RANDOM|RANK|LOCAL_RANK|WORLD_SIZE|MASTER_|CUDA_VISIBLE|"
    r"BASH|SECONDS|\d|@|\*|#|\?|\$"
)
EVERYWHERE = names("HOME USER LOGNAME PWD SHELL SCRATCH WORK PROJECT PSCRATCH GSCRATCH")
"""Variables that the login shell has as well."""
WORKING_FOLDERS = {"SLURM_SUBMIT_DIR": "PWD", "PBS_O_WORKDIR": "PWD"}
SETTERS = names("module ml source . conda mamba micromamba eval spack")
"""Commands after which a variable may have a value that the login shell does not know."""


class UnclearError(Exception):
    """A command would be a guess. The text is the reason, with its line."""


class Words:
    """Collects the words of the command while the parts of a script are read one after the other."""

    def __init__(self, script: JobScript, *others: JobScript) -> None:
        self.words: list[str] = []
        self.missing: list[str] = []
        self._scripts = (script, *others)
        self._outside: list[str] = []

    def flag(self, name: str, value: str | int | None = None) -> None:
        self.words.append(name)
        if value is not None:
            self.words.append(quote_word(str(value)))

    @property
    def gpus(self) -> int | None:
        """GPUs per node, if they are among the words."""
        return int(self.words[self.words.index("-g") + 1]) if "-g" in self.words else None

    def leave_out(self, what: str, line: int | None = None) -> None:
        text = plain_text(what)
        note = f"line {line}: {text}" if line is not None else text
        if note not in self.missing:
            self.missing.append(note)

    def typed(self, text: str) -> str | None:
        """An expanded word for the shell that the user types in. None if its value is not known there."""
        known = MARKER.sub(self._with_number, text)
        if is_known(known):
            return f"~/{quote_word(known[2:])}" if known.startswith("~/") and known != "~/" else quote_word(known)
        found = [name.removeprefix(OUTER) for name in MARKER.findall(known)]
        if not all(self.is_from_login(name) for name in found):
            return None
        self._outside += [
            name for name in found if name not in EVERYWHERE | WORKING_FOLDERS.keys() | set(self._outside)
        ]
        moved = MARKER.sub(lambda one: marker(WORKING_FOLDERS.get(one[1].removeprefix(OUTER), one[1])), known)
        return '"' + re.sub(r'(["`\\])', r"\\\1", readable(moved)) + '"'

    def _with_number(self, found: re.Match[str]) -> str:
        number = self._scripts[0].number(found[0])
        return found[0] if number is None else str(number)

    def is_from_login(self, name: str) -> bool:
        """Whether a variable has the same value in the shell from which jobs are submitted."""
        bare, is_default, _ = name.partition(DEFAULT)
        if bare in EVERYWHERE or bare in WORKING_FOLDERS:
            return True
        if re.fullmatch(r"[A-Za-z_]\w*", bare) is None or OF_THE_JOB.match(bare) or self.assigns(bare):
            return False
        return bool(is_default) or not self._sets_variables

    def assigns(self, name: str) -> bool:
        return any(script.values.computes(name) for script in self._scripts)

    @property
    def _sets_variables(self) -> bool:
        return any(command.name in SETTERS for script in self._scripts for _, command, _ in script.commands)

    def note_outside(self) -> None:
        """Names the variables that the command needs."""
        plain = sorted({f"${name}" for name in self._outside if DEFAULT not in name})
        if plain:
            self.leave_out(f"the value of {' and '.join(plain)}: set it in the shell that you submit from")


def plain_text(text: str) -> str:
    """Without the private characters that mark unknown values, on one line."""
    return " ".join(without_markers(readable(text)).split())
