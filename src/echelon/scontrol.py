"""What `scontrol show -o` prints, read into plain fields; and the moments in them."""

from __future__ import annotations

import re
import time

_FIELD = re.compile(r"(?:^|\s)(\w+)=(\S*)")


def fields_of(line: str) -> dict[str, str]:
    """The first of each name: later ones may be what a user wrote, in a comment or a command."""
    fields: dict[str, str] = {}
    for name, value in _FIELD.findall(line):
        fields.setdefault(name, value)
    return fields


def moment(text: str) -> float | None:
    """A local time; None for Unknown and N/A."""
    try:
        return time.mktime(time.strptime(text, "%Y-%m-%dT%H:%M:%S"))
    except ValueError:
        return None
