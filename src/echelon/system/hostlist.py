"""Host lists and task counts as Slurm writes them: `rack[1-2]n[03-05,07]`, `4(x2)`."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence

from echelon.errors import ConfigError

MAX_HOSTS = 1_000_000  # a longer list is an error and would fill the memory
_WORD = re.compile(r"(?:[^\s,\[\]]|\[[^\[\]]*\])+")
_PIECE = re.compile(r"\[([^\[\]]*)\]|([^\[\]]+)")
_RANGE = re.compile(r"([0-9]+)(?:-([0-9]+))?")
_NUMBERED = re.compile(r"(.*?)([0-9]+)", re.DOTALL)


def expand(text: str) -> list[str]:
    """Every host, in the order of the list. Raises ValueError."""
    hosts: list[str] = []
    for word in _split_words(text):
        hosts += _expand_word(word, room=MAX_HOSTS - len(hosts))
    return hosts


def compress(hosts: Sequence[str]) -> str:
    """A short list from which `expand` restores these names in this order."""
    words: list[str] = []
    for prefix, group in itertools.groupby(hosts, key=_prefix):
        names = list(group)
        ranges = _compress_numbers([name[len(prefix) :] for name in names]) if prefix is not None else names
        folded = prefix is not None and len(names) > 1
        words += [f"{prefix}[{','.join(ranges)}]"] if folded else names
    return ",".join(words)


def _prefix(host: str) -> str | None:
    """The name without the number at its end; None if it has no number."""
    match = _NUMBERED.fullmatch(host)
    return match.group(1) if match else None


def _compress_numbers(numbers: Sequence[str]) -> list[str]:
    """03 04 05 07 becomes 03-05 07. A range continues with the number that `expand` would write next."""
    found: list[tuple[str, str]] = []
    for number in numbers:
        if found and number == str(int(found[-1][1]) + 1).zfill(len(found[-1][0])):
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return [first if first == last else f"{first}-{last}" for first, last in found]


def _split_words(text: str) -> Iterator[str]:
    """Splits at commas outside of brackets. Raises ValueError."""
    position, end = 0, len(text)
    while position < end:
        word = _WORD.match(text, position)
        if word is None:
            raise ValueError(f"{text!r} is not a host list: see {text[position : position + 20]!r}")
        yield word.group()
        position = word.end()
        if position < end and (text[position] != "," or position + 1 == end):
            raise ValueError(f"{text!r} is not a host list: see {text[position : position + 20]!r}")
        position += 1


def _expand_word(word: str, room: int) -> list[str]:
    pieces = [
        [literal] if literal else _expand_ranges(ranges, room)
        for ranges, literal in (m.groups() for m in _PIECE.finditer(word))
    ]
    if math.prod(map(len, pieces)) > room:
        raise ValueError(f"{word!r} expands to more than {MAX_HOSTS:,} hosts")
    return ["".join(parts) for parts in itertools.product(*pieces)]


def _expand_ranges(ranges: str, room: int) -> Sequence[str]:
    """`03-05,07` becomes 03 04 05 07, padded to the width of the first number of each range. Raises ValueError."""
    numbers: list[str] = []
    for item in ranges.split(","):
        match = _RANGE.fullmatch(item)
        if match is None:
            raise ValueError(f"[{ranges}] is not a range of hosts: {item!r}")
        low, high = match.group(1), match.group(2) or match.group(1)
        if not 0 <= int(high) - int(low) < room:
            raise ValueError(f"[{ranges}] is not a range of hosts: {item!r} is reversed or too long")
        numbers += [str(number).zfill(len(low)) for number in range(int(low), int(high) + 1)]
    return numbers


HOST_LIST_VARIABLES = ("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST")
TASK_COUNT_VARIABLES = ("SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE")
FIRST_PORT = 12_000  # below Linux's ephemeral ports, which start at 32768
STEPS_PER_JOB = 8
PORT_COUNT = 2_000 * STEPS_PER_JOB
_COUNT = re.compile(r"([1-9][0-9]*)(?:\(x([1-9][0-9]*)\))?")


def step_port(job_id: int, step_id: int) -> int:
    """A port that differs between 2,000 consecutive jobs, and between eight consecutive steps of one job."""
    return FIRST_PORT + (job_id * STEPS_PER_JOB + step_id % STEPS_PER_JOB) % PORT_COUNT


def parse_tasks_per_node(text: str) -> list[int]:
    """`2(x3),1` becomes 2 2 2 1. Raises ValueError."""
    counts: list[int] = []
    for item in text.split(","):
        match = _COUNT.fullmatch(item)
        if match is None or int(match.group(2) or 1) > MAX_HOSTS:
            raise ValueError(f"{text!r} is not a count of tasks per node")
        counts += [int(match.group(1))] * int(match.group(2) or 1)
    return counts


def format_tasks_per_node(counts: Sequence[int]) -> str:
    """The inverse of `parse_tasks_per_node`."""
    runs = ((count, len(list(group))) for count, group in itertools.groupby(counts))
    return ",".join(f"{count}(x{times})" if times > 1 else str(count) for count, times in runs)


def local_task_count(environ: Mapping[str, str]) -> int:
    """Tasks of the current step on this node; 1 if unknown."""
    try:
        counts = tasks_per_node(environ)
        return counts[int(environ.get("SLURM_NODEID") or 0)]
    except (ConfigError, ValueError, IndexError):
        return 1


def tasks_per_node(environ: Mapping[str, str]) -> list[int]:
    """Tasks of the current step on each node. Empty if Slurm does not set them. Raises ConfigError."""
    name = next((name for name in TASK_COUNT_VARIABLES if environ.get(name)), None)
    if name is None:
        return []
    try:
        return parse_tasks_per_node(environ[name])
    except ValueError as error:
        raise ConfigError(str(error), origin=name) from error


def step_hosts(environ: Mapping[str, str], names: tuple[str, ...] = HOST_LIST_VARIABLES) -> list[str]:
    """Hosts from the first of these variables that is set. Empty if none is. Raises ConfigError."""
    name = next((name for name in names if environ.get(name)), None)
    if name is None:
        return []
    try:
        return expand(environ[name])
    except ValueError as error:
        raise ConfigError(str(error), origin=name) from error


def hosts_by_rank(environ: Mapping[str, str]) -> list[str]:
    """The host of every task by rank. Empty if the distribution of tasks is unknown. Raises ConfigError."""
    if not environ.get("SLURM_STEP_ID") or not environ.get("SLURM_DISTRIBUTION", "block").startswith("block"):
        return []
    nodes, counts = step_hosts(environ), tasks_per_node(environ)
    if len(nodes) != len(counts):
        return []
    return [node for node, count in zip(nodes, counts, strict=True) for _ in range(count)]
