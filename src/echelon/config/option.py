"""The class of one setting: flag, ECHELON_ variable, key in echelon.toml, type, default and help."""

from __future__ import annotations

import enum
from typing import Any

from echelon.record import record


class Type(enum.Enum):
    COUNT = "a whole number"
    DURATION = "a duration"
    TEXT = "text"
    SWITCH = "true or false"
    CHOICE = "one of a few words"
    VARIABLES = "a table of variables"
    MEMORY = "an amount of memory"
    NATIVE = "options of the scheduler, as it spells them"
    HOSTS = "names of hosts, or a table of groups of them"
    QUEUES = "a table of queues, each with what its nodes have"
    LIST = "a list of texts"
    WORDS = "the words of a command"

    @property
    def is_table(self) -> bool:
        """Whether the value is a table. A flag adds one pair, and the pairs of all layers are merged."""
        return self in (Type.VARIABLES, Type.NATIVE, Type.QUEUES)

    @property
    def is_repeatable(self) -> bool:
        return self.is_table or self is Type.LIST


@record
class Option:
    key: str
    type: Type
    help: str
    default: Any = None
    short: str | None = None
    least: int = 0
    """The smallest valid number, or number of seconds."""
    choices: tuple[str, ...] = ()
    can_be_off: bool = False
    """Whether the words off, none and never mean a duration of 0."""
    can_be_auto: bool = False
    """Whether the word auto means that the duration is found during the run."""
    metavar: str | None = None
    for_some: bool = False
    """Whether only some backends use it: those with its key in their list."""
    names: str = ""
    """Regular expression for the names in a table of native options."""
    names_hint: str = ""
    """Hint in the error for a name that does not match."""
    launchers: tuple[str, ...] = ()
    """The launchers that use it; empty for all."""
    has_flag: bool = True
    """If false, only files can set it."""

    @property
    def flag(self) -> str:
        return f"--{self.key.replace('_', '-')}"

    @property
    def variable(self) -> str:
        return f"ECHELON_{self.key.upper()}"
