"""Parses host files (one host per line, with slots) and host lists with named groups."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from echelon.system import hostlist

# A host is an argument of ssh and part of file names, so it must not look like an option or a path.
HOST_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@:%+-]*")
_SLOTS = re.compile(r"slots=([1-9][0-9]{0,4})")


def parse_hostfile(text: str) -> dict[str, int | None]:
    """Each host with its slots, None if not given. Raises ValueError, whose text starts with the line number."""
    found: dict[str, int | None] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        try:
            slots = _parse_slots(words[1:])
            for host in validate_hosts(hostlist.expand(words[0])):
                if host in found:
                    raise ValueError(f"{host} is listed twice")
                found[host] = slots
        except ValueError as error:
            raise ValueError(f"{number}: {error}") from error
    return found


def _parse_slots(words: list[str]) -> int | None:
    if not words:
        return None
    match = _SLOTS.fullmatch(words[0])
    if match is None or len(words) > 1:
        raise ValueError(f"{' '.join(words)!r} is not slots=N")
    return int(match.group(1))


def resolve_hosts(text: str, groups: Mapping[str, Iterable[str]]) -> list[str]:
    """Expands `gpu[1-4],lab`, in which lab may be a group, to host names. Raises ValueError."""
    hosts: list[str] = []
    for word in hostlist.expand(text):
        hosts += expand_words(groups[word]) if word in groups else [word]
    twice = sorted({host for host in hosts if hosts.count(host) > 1})
    if twice:
        raise ValueError(f"{twice[0]} is listed twice")
    return validate_hosts(hosts)


def expand_words(words: Iterable[str]) -> list[str]:
    return [host for word in words for host in hostlist.expand(word)]


def validate_hosts(hosts: list[str]) -> list[str]:
    """Raises ValueError for an invalid host name."""
    for host in hosts:
        if not HOST_NAME.fullmatch(host):
            raise ValueError(f"{host!r} is not a valid host name")
    return hosts
