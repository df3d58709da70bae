"""Compares the output of `why --json` with the table in docs/why.md."""

import re
from pathlib import Path
from typing import Any, NamedTuple

PAGE = Path(__file__).parents[1] / "docs" / "why.md"
ROW = re.compile(r"^\| (\*?)`([\w.\[\]]+)`\*? \| (\w+)(\??) \|", re.MULTILINE)
TYPES = {"string": str, "integer": int, "number": (int, float), "boolean": bool, "list": list, "object": dict}
SHARED = {
    "evidence.ranks[].children[].process": "evidence.ranks[].process",
    "evidence.ranks[].children[].threads[]": "evidence.stacks[].threads[]",
}
"""Fields that the table describes once."""


class Row(NamedTuple):
    kind: Any
    may_be_null: bool
    may_be_missing: bool


def table() -> dict[str, Row]:
    text = PAGE.read_text().partition("## Schema of")[2]
    return {name: Row(TYPES[kind], bool(null), bool(mark)) for mark, name, kind, null in ROW.findall(text)}


def problems(document: dict[str, Any]) -> list[str]:
    """What the document has that the table does not allow, and what it lacks."""
    rows = table()
    return list(_problems(rows, "", document))


def _problems(rows: dict[str, Row], path: str, value: Any):
    path = SHARED.get(path, path)
    row = rows.get(path)
    if row is not None:
        if value is None and row.may_be_null:
            return
        if not isinstance(value, row.kind) or (isinstance(value, bool) and row.kind is not bool):
            yield f"{path} is {value!r}"
    elif path and not (path.endswith("[]") and isinstance(value, dict)):
        yield f"{path} is not in the table"
    if isinstance(value, dict):
        yield from _missing(rows, path, value)
        for key, item in value.items():
            yield from _problems(rows, f"{path}.{key}".lstrip("."), item)
    if isinstance(value, list):
        for item in value:
            yield from _problems(rows, f"{path}[]", item)


def _missing(rows: dict[str, Row], path: str, value: dict[str, Any]):
    for name, row in rows.items():
        parent, _, key = name.rpartition(".")
        if parent == path and "[" not in key and not row.may_be_missing and key not in value:
            yield f"{name} is missing"
