"""Words of a shell script: from nodes of the syntax tree to literal text and expansions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from echelon.lint.syntax import Part, PartKind, Statement, Word

OPEN, CLOSE = "\ue000", "\ue001"
"""Enclose the name of a value that is not known. Private characters: scripts do not contain them."""
BLANK = "\ue002"
"""Begins the name of a value that the reader of a document fills in."""
_BLANK = re.compile(r"(?:(?<=\s-\w)|(?<![<\w&]))<([A-Za-z][\w ./|-]{0,60})>(?!>)")
_BRACED = re.compile(r"\$\{(\w+)(?:(:?[-=])(.*))?\}", re.DOTALL)
_ARRAY = re.compile(r"\$\{(\w+)\[[@*]\]\}")
_NAME = re.compile(r"\$\{[#!]?(\w+|[@*#?$!-])")
_EXPANSIONS = frozenset(
    {"simple_expansion", "expansion", "command_substitution", "arithmetic_expansion", "process_substitution"}
)


def marker(name: str) -> str:
    """Stands for an unknown value in an expanded word."""
    return f"{OPEN}{name}{CLOSE}"


def hide_placeholders(text: str) -> str:
    """Turns `<name>`, which documentation has for values to fill in, into unknown values: bash reads redirections."""
    return _BLANK.sub(lambda found: marker(BLANK + re.sub(r"[ |]", "_", found[1])), text)


def without_markers(text: str) -> str:
    return re.sub(f"[{OPEN}{CLOSE}{BLANK}]", "?", text)


class WordReader:
    def __init__(self, source: bytes, first_line: int, inner: Callable[[Sequence[Any]], tuple[Statement, ...]]) -> None:
        self.source = source
        self._first_line = first_line
        self._inner = inner

    def line(self, node: Any) -> int:
        return int(node.start_point[0]) + self._first_line

    def last_line(self, node: Any) -> int:
        return int(node.end_point[0]) + self._first_line

    def source_of(self, node: Any) -> str:
        return self.source[node.start_byte : node.end_byte].decode(errors="replace")

    def word(self, node: Any) -> Word:
        return Word(parts=tuple(self._parts(node)), line=self.line(node), raw=self.source_of(node))

    def _parts(self, node: Any) -> Iterator[Part]:
        kind = node.type
        if kind == "concatenation":
            for child in node.children:
                yield from self._parts(child)
        elif kind in ("string", "translated_string"):
            yield from self._string(node)
        elif kind == "raw_string":
            yield Part(kind=PartKind.TEXT, text=self.source_of(node)[1:-1], quoted=True)
        elif kind in _EXPANSIONS:
            yield self._expansion(node, quoted=False)
        else:
            yield Part(kind=PartKind.TEXT, text=_without_backslashes(self.source_of(node)))

    def _string(self, node: Any) -> Iterator[Part]:
        """Text between expansions is taken from the source: the tree leaves out blanks."""
        start = node.start_byte + (2 if node.type == "translated_string" else 1)
        end = max(start, node.end_byte - 1)
        yield Part(kind=PartKind.TEXT, text="", quoted=True)
        for child in node.children:
            if child.type in _EXPANSIONS:
                yield self._quoted_text(start, child.start_byte)
                yield self._expansion(child, quoted=True)
                start = child.end_byte
        yield self._quoted_text(start, end)

    def _quoted_text(self, start: int, end: int) -> Part:
        text = self.source[start:end].decode(errors="replace")
        return Part(kind=PartKind.TEXT, text=re.sub(r"\\([$`\"\\]|\n)", _unescape, text), quoted=True)

    def _expansion(self, node: Any, *, quoted: bool) -> Part:
        raw = self.source_of(node)
        if node.type == "arithmetic_expansion":
            return Part(kind=PartKind.ARITHMETIC, text=raw[3:-2] if raw.startswith("$((") else raw[2:-1], quoted=quoted)
        if node.type in ("command_substitution", "process_substitution"):
            text = raw[1:-1] if raw.startswith("`") else raw[2:-1]
            inner = self._inner([child for child in node.children if child.is_named])
            return Part(kind=PartKind.COMMAND, text=text.strip(), quoted=quoted, inner=inner)
        if node.type == "simple_expansion":
            return Part(kind=PartKind.VARIABLE, text=raw[1:], quoted=quoted)
        return _parse_braced(raw, quoted=quoted)


def join_words(left: Word, right: Word) -> Word:
    """The word of two halves between which a dollar was cut off its name."""
    last, first = left.parts[-1:], right.parts[:1]
    name = re.match(r"[A-Za-z_]\w*", first[0].text) if first and first[0].kind is PartKind.TEXT else None
    parts = (*left.parts, *right.parts)
    if last and last[0].text == "$" and not last[0].quoted and name is not None:
        variable = Part(kind=PartKind.VARIABLE, text=name[0])
        rest = replace(first[0], text=first[0].text[name.end() :])
        parts = (*left.parts[:-1], variable, rest, *right.parts[1:])
    return Word(parts=parts, line=left.line, raw=left.raw + right.raw)


def _parse_braced(raw: str, *, quoted: bool) -> Part:
    plain = _BRACED.fullmatch(raw)
    if plain is not None:
        return Part(kind=PartKind.VARIABLE, text=plain[1], quoted=quoted, default=plain[3])
    array = _ARRAY.fullmatch(raw)
    if array is not None:
        return Part(kind=PartKind.ARRAY, text=array[1], quoted=quoted)
    name = _NAME.match(raw)
    return Part(kind=PartKind.OTHER_EXPANSION, text=name[1] if name else raw[2:-1], quoted=quoted)


def _without_backslashes(text: str) -> str:
    return re.sub(r"\\(.|\n)", _unescape, text) if "\\" in text else text


def _unescape(found: re.Match[str]) -> str:
    return "" if found[1] == "\n" else found[1]
