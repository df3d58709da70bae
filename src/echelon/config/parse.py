"""Decodes the value of a setting by its type: durations, sizes, counts, lists. Suggests what was meant."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import field
from datetime import timedelta
from typing import Any

from echelon.config.option import Option, Type
from echelon.config.sources import CHOSEN_HOSTS, Setting
from echelon.errors import ConfigError
from echelon.placement import RANK_VARIABLES
from echelon.record import record
from echelon.text import suggest_closest

UNITS = {"d": "days", "h": "hours", "m": "minutes", "s": "seconds"}
NUMBER = re.compile(r"\d+(?:\.\d+)?")
UNIT_PARTS = re.compile(r"(\d+(?:\.\d+)?)([dhms])")
CLOCK = re.compile(r"(?:(\d+)-)?(\d+):(\d{2}):(\d{2})")


class MissingUnitError(ValueError):
    """A number without a unit. It is ambiguous: sbatch reads minutes and megabytes, and many people mean others."""


def parse_duration(text: str) -> timedelta:
    """Raises MissingUnitError for a number without a unit, ValueError for other text and for zero or less."""
    if NUMBER.fullmatch(text.strip()) and float(text) > 0:
        raise MissingUnitError(f"it needs a unit: {text.strip()} seconds, minutes or hours?")
    try:
        duration = _parse_units(text.strip().lower())
    except OverflowError:
        duration = None
    if duration is None or duration <= timedelta(0):
        raise ValueError(f"{text!r} is not a duration; write 90s, 15m, 2h or 1:30:00")
    return duration


def _parse_units(text: str) -> timedelta | None:
    clock = CLOCK.fullmatch(text)
    if clock:
        days, hours, minutes, seconds = (int(part or 0) for part in clock.groups())
        return timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
    if not re.fullmatch(f"({UNIT_PARTS.pattern})+", text):
        return None
    return sum((timedelta(**{UNITS[unit]: float(n)}) for n, unit in UNIT_PARTS.findall(text)), timedelta(0))


def format_duration(duration: timedelta) -> str:
    seconds = duration.total_seconds()
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:.0f}{unit}"
    return f"{seconds:.6f}".rstrip("0").rstrip(".") + "s"


VARIABLE = r"[A-Za-z_][A-Za-z0-9_]*"
QUEUE_FACTS = ("cpus", "gpus", "mem_gb")
MEMORY = r"(\d+)([KMGT]?)B?"
OFF_WORDS = ("off", "none", "never")
AUTO_WORD = "auto"
TASK_VARIABLES = frozenset(
    {
        "SLURM_PROCID",
        "SLURM_LOCALID",
        "SLURM_NODEID",
        "SLURM_NTASKS",
        "SLURM_NPROCS",
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "PMI_RANK",
        "PMI_SIZE",
    }
)
"""Scripts also read their rank from these."""
REPLACEMENT_HINTS = {
    "MASTER_ADDR": "remove it; --interface NAME chooses the network",
    "MASTER_PORT": "remove it; --ports A-B chooses the port",
}


class ValueRefusedError(ValueError):
    """A wrong value, with a more specific message than the one for its type."""

    def __init__(self, why: str, *, hint: str, what: str | None = None) -> None:
        super().__init__(why)
        self.hint = hint
        self.what = what


def decode_setting(option: Option, setting: Setting) -> Any:
    try:
        return _READERS[option.type](option, setting.value)
    except ValueError as error:
        raise ConfigError(
            getattr(error, "what", None) or f"{option.key} is {setting.value!r}",
            origin=setting.origin,
            why=str(error),
            hint=_hint_for(option, setting, error),
        ) from error


def _hint_for(option: Option, setting: Setting, error: ValueError) -> str:
    if isinstance(error, ValueRefusedError):
        return error.hint
    if isinstance(error, MissingUnitError):
        number = str(setting.value).strip()
        if option.type is Type.MEMORY:
            return f"{option.flag} {number}G"
        likely = ("m", "h") if option.key == "time" and float(number) < 60 else ("s", "m")
        return " or ".join(f"{option.flag} {number}{unit}" for unit in likely)
    guess = suggest_closest(str(setting.value), option.choices) if option.choices else None
    examples = {
        Type.COUNT: str(max(option.least, 2)),
        Type.DURATION: "90s, 15m, 2h or 1:30:00",
        Type.MEMORY: "64G",
        Type.CHOICE: " or ".join(option.choices),
    }
    return guess or (
        f"{option.flag} {examples[option.type]}"
        if option.type in examples
        else f"see {option.flag} in echelon run --help"
    )


def _read_count(option: Option, value: Any) -> int:
    if isinstance(value, str) and re.fullmatch(r"[+-]?\d+", value.strip()):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError("it must be a whole number")
    if value < option.least:
        raise ValueError(f"it must be at least {option.least}")
    return value


def _read_duration(option: Option, value: Any) -> timedelta | None:
    if option.can_be_auto and str(value).lower() == AUTO_WORD:
        return None
    if option.can_be_off and str(value).lower() in OFF_WORDS:
        return timedelta(0)
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise ValueError("it must be a duration: 90s, 15m, 2h or 1:30:00")
    duration = parse_duration(str(value))
    if duration < timedelta(seconds=option.least):
        raise ValueError(f"it must be at least {option.least}s")
    return duration


def _read_text(_: Option, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("it must be text that is not empty")
    return _check_one_line(value)


def _check_one_line(text: str) -> str:
    """Refuses line breaks: in a directive of a job script one would start a new line."""
    if any(ord(letter) < 32 or ord(letter) == 127 for letter in text):
        raise ValueError("it must be one line, without control characters")
    return text


def _read_memory(_: Option, value: Any) -> str:
    match = re.fullmatch(MEMORY, str(value).strip().upper()) if isinstance(value, (str, int)) else None
    if match is None or isinstance(value, bool):
        raise ValueError("it must be a size: 64G or 512M; 0 means all memory")
    number, unit = match.groups()
    if not unit and int(number):
        raise MissingUnitError(f"it needs a unit: {int(number)} megabytes or gigabytes?")
    return f"{int(number)}{unit}"


def _read_switch(_: Option, value: Any) -> bool:
    words = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False, "": False}
    if isinstance(value, bool):
        return value
    if str(value).lower() not in words:
        raise ValueError("it must be true or false")
    return words[str(value).lower()]


def _read_choice(option: Option, value: Any) -> str:
    if value not in option.choices:
        raise ValueError(f"it must be one of: {', '.join(option.choices)}")
    return str(value)


def _read_variables(_: Option, value: Any) -> dict[str, str]:
    if not isinstance(value, dict):
        raise ValueError("it must be a table of variables: [set]")
    for name, text in value.items():
        if not re.fullmatch(VARIABLE, name):
            raise ValueError(f"{name!r} is not a valid name of a variable")
        if name in RANK_VARIABLES or name in TASK_VARIABLES:
            hint = REPLACEMENT_HINTS.get(name, "remove it; -N and -g choose how many ranks there are")
            raise ValueRefusedError(
                f"Echelon sets {name} itself, for every rank", hint=hint, what=f"cannot set {name}={text}"
            )
        if not isinstance(text, (str, int, float)) or "\0" in str(text):
            raise ValueError(f"the value of {name} must be text")
    return {name: str(text).lower() if isinstance(text, bool) else str(text) for name, text in value.items()}


def _read_native(option: Option, value: Any) -> dict[str, str]:
    """Options spelled as the scheduler spells them. true or an empty text is an option without a value."""
    if not isinstance(value, dict):
        raise ValueError("it must be a table of options")
    for name, text in value.items():
        if not re.fullmatch(option.names, name):
            given = f"{option.flag} {name}={text}" if text not in ("", True) else f"{option.flag} {name}"
            raise ValueRefusedError(
                f"{name!r} is not an option name", hint=option.names_hint, what=f"cannot use {given}"
            )
        if not isinstance(text, (str, int, float)):
            raise ValueError(f"the value of {name} must be text")
        _check_one_line(str(text))
    return {name: "" if text is True else str(text) for name, text in value.items() if text is not False}


@record
class HostChoice:
    text: str | None = None
    """The chosen hosts as the user wrote them."""
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        """Whether hosts were chosen. Groups alone choose none."""
        return self.text is not None


def _read_hosts(_: Option, value: Any) -> HostChoice:
    """Text or a list chooses hosts. A table defines groups; its entry with an empty name is the choice."""
    table = value if isinstance(value, dict) else {CHOSEN_HOSTS: value}
    groups = {name: _host_words(words) for name, words in table.items() if name != CHOSEN_HOSTS}
    text = ",".join(_host_words(table[CHOSEN_HOSTS])) if CHOSEN_HOSTS in table else None
    return HostChoice(text=text, groups=groups)


def _host_words(value: Any) -> tuple[str, ...]:
    words = [value] if isinstance(value, str) else value
    if not isinstance(words, list) or not words or not all(isinstance(word, str) and word for word in words):
        raise ValueError('it must be hosts: "gpu1,gpu2", or ["gpu1", "gpu2"]')
    return tuple(map(_check_one_line, words))


def _read_queues(_: Option, value: Any) -> dict[str, dict[str, int]]:
    if not isinstance(value, dict) or not all(isinstance(facts, dict) for facts in value.values()):
        raise ValueError("it must be a table of queues: gpuvolta = { cpus = 48, gpus = 4, mem_gb = 382 }")
    for queue, facts in value.items():
        for name, number in facts.items():
            if name not in QUEUE_FACTS:
                raise ValueError(f"{name!r} of {queue} is not one of {', '.join(QUEUE_FACTS)}")
            if isinstance(number, bool) or not isinstance(number, int) or number < 1:
                raise ValueError(f"{name} of {queue} must be a whole number, at least 1")
    return value


def _read_list(_: Option, value: Any) -> tuple[str, ...]:
    """A single text is a list with one element."""
    words = [value] if isinstance(value, str) else value
    if not isinstance(words, (list, tuple)) or not all(isinstance(word, str) and word for word in words):
        raise ValueError('it must be a list of texts: ["a", "b"]')
    return tuple(map(_check_one_line, words))


def _read_words(option: Option, value: Any) -> tuple[str, ...]:
    """Text is split as a shell would split it."""
    return _read_list(option, shlex.split(value) if isinstance(value, str) else value)


_READERS = {
    Type.COUNT: _read_count,
    Type.DURATION: _read_duration,
    Type.TEXT: _read_text,
    Type.SWITCH: _read_switch,
    Type.CHOICE: _read_choice,
    Type.VARIABLES: _read_variables,
    Type.MEMORY: _read_memory,
    Type.NATIVE: _read_native,
    Type.HOSTS: _read_hosts,
    Type.QUEUES: _read_queues,
    Type.LIST: _read_list,
    Type.WORDS: _read_words,
}
