"""Lists of hosts as people keep them: in a file, one a line with its slots, or in named groups."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from echelon import hostlist

# Neither an option of ssh nor a path: it is a word of ssh's command line, and names files.
HOST = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@:%+-]*")
_SLOTS = re.compile(r"slots=([1-9][0-9]{0,4})")


def parse_hostfile(text: str) -> dict[str, int | None]:
    """Each host with its slots, None where it does not say; raises ValueError that begins with the line's number."""
    found: dict[str, int | None] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        try:
            slots = _slots(words[1:])
            for host in checked(hostlist.expand(words[0])):
                if host in found:
                    raise ValueError(f"{host} is listed twice")
                found[host] = slots
        except ValueError as error:
            raise ValueError(f"{number}: {error}") from error
    return found


def _slots(words: list[str]) -> int | None:
    if not words:
        return None
    match = _SLOTS.fullmatch(words[0])
    if match is None or len(words) > 1:
        raise ValueError(f"{' '.join(words)!r} is not slots=N")
    return int(match.group(1))


def chosen(text: str, groups: Mapping[str, Iterable[str]]) -> list[str]:
    """The hosts that `gpu[1-4],lab` stands for, where lab may be a group; raises ValueError."""
    hosts: list[str] = []
    for word in hostlist.expand(text):
        hosts += expanded(groups[word]) if word in groups else [word]
    twice = sorted({host for host in hosts if hosts.count(host) > 1})
    if twice:
        raise ValueError(f"{twice[0]} is listed twice")
    return checked(hosts)


def expanded(words: Iterable[str]) -> list[str]:
    return [host for word in words for host in hostlist.expand(word)]


def checked(hosts: list[str]) -> list[str]:
    for host in hosts:
        if not HOST.fullmatch(host):
            raise ValueError(f"{host!r} is no name for a host")
    return hosts
