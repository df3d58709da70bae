"""Host lists as Slurm writes them: `rack[1-2]n[03-05,07],login` is nine names."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Sequence

MAX_HOSTS = 1_000_000  # what is longer is no list of hosts, and would fill the memory

_WORD = re.compile(r"(?:[^\s,\[\]]|\[[^\[\]]*\])+")
_PIECE = re.compile(r"\[([^\[\]]*)\]|([^\[\]]+)")
_RANGE = re.compile(r"([0-9]+)(?:-([0-9]+))?")


def expand(text: str) -> list[str]:
    """Every host, in the list's own order; raises ValueError."""
    hosts: list[str] = []
    for word in _words(text):
        hosts += _hosts_of(word, room=MAX_HOSTS - len(hosts))
    return hosts


def _words(text: str) -> Iterator[str]:
    """Split at the commas that are outside of brackets."""
    position, end = 0, len(text)
    while position < end:
        word = _WORD.match(text, position)
        if word is None:
            raise ValueError(f"{text!r} is not a list of hosts: see {text[position : position + 20]!r}")
        yield word.group()
        position = word.end()
        if position < end and (text[position] != "," or position + 1 == end):
            raise ValueError(f"{text!r} is not a list of hosts: see {text[position : position + 20]!r}")
        position += 1


def _hosts_of(word: str, room: int) -> list[str]:
    pieces = [
        [literal] if literal else _numbers(ranges, room)
        for ranges, literal in (m.groups() for m in _PIECE.finditer(word))
    ]
    if math.prod(map(len, pieces)) > room:
        raise ValueError(f"{word!r} stands for more than {MAX_HOSTS:,} hosts")
    return ["".join(parts) for parts in itertools.product(*pieces)]


def _numbers(ranges: str, room: int) -> Sequence[str]:
    """`03-05,07` is 03 04 05 07: as wide as the range's first number is written."""
    numbers: list[str] = []
    for item in ranges.split(","):
        match = _RANGE.fullmatch(item)
        if match is None:
            raise ValueError(f"[{ranges}] is not a range of hosts: {item!r}")
        low, high = match.group(1), match.group(2) or match.group(1)
        if not 0 <= int(high) - int(low) < room:
            raise ValueError(f"[{ranges}] is not a range of hosts: {item!r} runs backwards, or too far")
        numbers += [str(number).zfill(len(low)) for number in range(int(low), int(high) + 1)]
    return numbers
