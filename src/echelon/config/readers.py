"""What each type of setting accepts, from whichever layer it came; the rest is refused with its origin."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from echelon.config.durations import parse_duration
from echelon.config.layers import CHOICE, Setting
from echelon.config.options import Option, Type
from echelon.config.suggest import closest
from echelon.errors import ConfigError

VARIABLE = r"[A-Za-z_][A-Za-z0-9_]*"
QUEUE_FACTS = ("cpus", "gpus", "mem_gb")
MEMORY = r"(\d+)([KMGT]?)B?"
OFF = ("off", "none", "never")


def decoded(option: Option, setting: Setting) -> Any:
    try:
        return _READERS[option.type](option, setting.value)
    except ValueError as error:
        raise ConfigError(
            f"{option.key} is {setting.value!r}",
            origin=setting.origin,
            why=str(error),
            hint=_hint(option, setting),
        ) from error


def _hint(option: Option, setting: Setting) -> str:
    guess = closest(str(setting.value), option.choices) if option.choices else None
    return guess or f"{option.flag}: {option.help}"


def _count(option: Option, value: Any) -> int:
    if isinstance(value, str) and re.fullmatch(r"[+-]?\d+", value.strip()):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError("it must be a whole number")
    if value < option.least:
        raise ValueError(f"it must be at least {option.least}")
    return value


def _duration(option: Option, value: Any) -> timedelta | None:
    if option.can_be_off and str(value).lower() in OFF:
        return None
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise ValueError("it must be a duration: 90s, 15m, 2h or 1:30:00")
    duration = parse_duration(str(value))
    if duration < timedelta(seconds=option.least):
        raise ValueError(f"it must be at least {option.least}s")
    return duration


def _text(_: Option, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("it must be text, and not empty")
    return _one_line(value)


def _one_line(text: str) -> str:
    """A line break in a job script's directive would begin a line of its own."""
    if any(ord(letter) < 32 or ord(letter) == 127 for letter in text):
        raise ValueError("it must be one line, without control characters")
    return text


def _memory(_: Option, value: Any) -> str:
    match = re.fullmatch(MEMORY, str(value).strip().upper()) if isinstance(value, (str, int)) else None
    if match is None or isinstance(value, bool):
        raise ValueError("it must be a size: 64G, 512M; 0 is all there is")
    number, unit = match.groups()
    return f"{int(number)}{unit}"


def _switch(_: Option, value: Any) -> bool:
    words = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False, "": False}
    if isinstance(value, bool):
        return value
    if str(value).lower() not in words:
        raise ValueError("it must be true or false")
    return words[str(value).lower()]


def _choice(option: Option, value: Any) -> str:
    if value not in option.choices:
        raise ValueError(f"it must be one of: {', '.join(option.choices)}")
    return str(value)


def _variables(_: Option, value: Any) -> dict[str, str]:
    if not isinstance(value, dict):
        raise ValueError("it must be a table of variables: [set]")
    for name, text in value.items():
        if not re.fullmatch(VARIABLE, name):
            raise ValueError(f"{name!r} is no name for a variable")
        if not isinstance(text, (str, int, float)) or "\0" in str(text):
            raise ValueError(f"the value of {name} must be text")
    return {name: str(text).lower() if isinstance(text, bool) else str(text) for name, text in value.items()}


def _native(option: Option, value: Any) -> dict[str, str]:
    """Options as the scheduler spells them; true, or nothing behind the name, is an option without a value."""
    if not isinstance(value, dict):
        raise ValueError("it must be a table of options")
    for name, text in value.items():
        if not re.fullmatch(option.names, name):
            raise ValueError(f"{name!r} is no option; write its long name without the dashes in front")
        if not isinstance(text, (str, int, float)):
            raise ValueError(f"the value of {name} must be text")
        _one_line(str(text))
    return {name: "" if text is True else str(text) for name, text in value.items() if text is not False}


@dataclass(frozen=True, kw_only=True)
class HostChoice:
    text: str | None = None
    """The hosts that were chosen, as they were written."""
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        """Whether any were chosen: groups alone ask for nothing."""
        return self.text is not None


def _hosts(_: Option, value: Any) -> HostChoice:
    """Text or a list chooses hosts; a table names groups to choose from, and has the choice under an empty name."""
    table = value if isinstance(value, dict) else {CHOICE: value}
    groups = {name: _host_words(words) for name, words in table.items() if name != CHOICE}
    text = ",".join(_host_words(table[CHOICE])) if CHOICE in table else None
    return HostChoice(text=text, groups=groups)


def _host_words(value: Any) -> tuple[str, ...]:
    words = [value] if isinstance(value, str) else value
    if not isinstance(words, list) or not words or not all(isinstance(word, str) and word for word in words):
        raise ValueError('it must be hosts: "gpu1,gpu2", or ["gpu1", "gpu2"]')
    return tuple(map(_one_line, words))


def _queues(_: Option, value: Any) -> dict[str, dict[str, int]]:
    if not isinstance(value, dict) or not all(isinstance(facts, dict) for facts in value.values()):
        raise ValueError("it must be a table of queues: gpuvolta = { cpus = 48, gpus = 4, mem_gb = 382 }")
    for queue, facts in value.items():
        for name, number in facts.items():
            if name not in QUEUE_FACTS:
                raise ValueError(f"{name!r} of {queue} is none of {', '.join(QUEUE_FACTS)}")
            if isinstance(number, bool) or not isinstance(number, int) or number < 1:
                raise ValueError(f"{name} of {queue} must be a whole number, at least 1")
    return value


def _list(_: Option, value: Any) -> tuple[str, ...]:
    """One text alone is a list of one."""
    words = [value] if isinstance(value, str) else value
    if not isinstance(words, (list, tuple)) or not all(isinstance(word, str) and word for word in words):
        raise ValueError('it must be a list of texts: ["a", "b"]')
    return tuple(map(_one_line, words))


def _words(option: Option, value: Any) -> tuple[str, ...]:
    """Text is taken apart as a shell would."""
    return _list(option, shlex.split(value) if isinstance(value, str) else value)


_READERS = {
    Type.COUNT: _count,
    Type.DURATION: _duration,
    Type.TEXT: _text,
    Type.SWITCH: _switch,
    Type.CHOICE: _choice,
    Type.VARIABLES: _variables,
    Type.MEMORY: _memory,
    Type.NATIVE: _native,
    Type.HOSTS: _hosts,
    Type.QUEUES: _queues,
    Type.LIST: _list,
    Type.WORDS: _words,
}
