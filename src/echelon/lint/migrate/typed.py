"""Words of a command line as a person types them, and what had to be left out."""

from __future__ import annotations

import re

from echelon.lint.values import is_known, readable, unknown_names
from echelon.shell import quote_word

OF_THE_JOB = re.compile(r"(outer:)?(SLURM|PBS|SRUN|TMPDIR|HOSTNAME|RANDOM|\d|@|\*|#|\?|\$)")


class Words:
    """Collects the words of the command while the parts of a script are read one after the other."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self.missing: list[str] = []

    def flag(self, name: str, value: str | int | None = None) -> None:
        self.words.append(name)
        if value is not None:
            self.words.append(quote_word(str(value)))

    @property
    def gpus(self) -> int | None:
        """GPUs per node, if they are among the words."""
        return int(self.words[self.words.index("-g") + 1]) if "-g" in self.words else None

    def leave_out(self, what: str, line: int | None = None) -> None:
        note = f"line {line}: {what}" if line is not None else what
        if note not in self.missing:
            self.missing.append(note)


def as_typed(text: str) -> str | None:
    """An expanded word for the shell that the user types in. None if its value exists only inside of the job."""
    if is_known(text):
        return quote_word(text)
    if not all(is_from_login(name) for name in unknown_names(text)):
        return None
    inner = re.sub(r'(["`\\])', r"\\\1", readable(text))
    return f'"{inner}"'


def is_from_login(name: str) -> bool:
    """Whether a variable has its value already in the shell from which jobs are submitted."""
    return re.fullmatch(r"[A-Za-z_]\w*", name) is not None and not OF_THE_JOB.match(name)
