"""The values of variables as far as the script itself sets them. Everything else stays unknown, and is marked so."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from echelon.lint.syntax import Assignment, Command, Part, PartKind, Statement, Word
from echelon.lint.words import BLANK, CLOSE, OPEN, marker

MAX_DEPTH = 8
MAX_LENGTH = 20_000
"""Characters of one expanded word, so that a script that doubles a variable a hundred times costs nothing."""
OUTER = "outer:"
"""Begins the name of an unknown value that was expanded before srun started the tasks."""
DEFAULT = ":-"
"""Follows the name of an unknown value that has a default: `${NAME:-4}`."""
MARKER = re.compile(f"{OPEN}([^{CLOSE}]*){CLOSE}")
_FIELD = re.compile(f"(?:{OPEN}[^{CLOSE}]*{CLOSE}|\\S)+")
_SHIELD = {ord(sign): 0xE100 + ord(sign) for sign in " $()[]{}'\"`;&|<>\\*?#~!=\t\n"}
_UNSHIELD = {private: sign for sign, private in _SHIELD.items()}
_OPERATORS: dict[type, Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


class Values:
    """Looks up variables at a place in the script. Pure."""

    def __init__(self, statements: Iterable[Statement], outer: Values | None = None) -> None:
        self._outer = outer
        self._by_name: dict[str, list[tuple[int, Assignment]]] = {}
        for index, statement in enumerate(statements):
            for one in _assignments_of(statement):
                self._by_name.setdefault(one.name, []).append((index, one))

    def assigns(self, name: str) -> bool:
        return name in self._by_name

    def computes(self, name: str) -> bool:
        """Whether the script assigns anything else than a default, as in `NAME=${NAME:-4}`."""
        return any(not _is_own_default(one) for _, one in self._by_name.get(name, ()))

    def is_never_option(self, word: str) -> bool:
        """Whether the word is a variable to which the script assigns only texts that are not options."""
        values = [one.value for name in unknown_names(word) for _, one in self._by_name.get(name, ())]
        if not values or word != marker(unknown_names(word)[0]):
            return False
        return all(value is not None and not _begins_option(value) for value in values)

    def find(self, name: str, before: int) -> tuple[int, Assignment] | None:
        """The assignment that certainly gives the value at this place, with its index."""
        earlier = [(index, one) for index, one in self._by_name.get(name, ()) if index < before]
        if not earlier or earlier[-1][1].scope.conditional or earlier[-1][1].append:
            return None
        return earlier[-1]

    def fields(self, word: Word, before: int, depth: int = 0) -> list[str]:
        """The words that bash makes of one word."""
        done, current = [], None
        for part in word.parts:
            pieces = self._pieces(part, before, depth)
            if pieces and current is not None:
                pieces[0] = current + pieces[0]
            if pieces:
                done += pieces[:-1]
                current = pieces[-1][:MAX_LENGTH]
        return done if current is None else [*done, current]

    def text(self, word: Word, before: int, depth: int = 0) -> str:
        """The word as one text, as in an assignment."""
        return " ".join(self.fields(word, before, depth))[:MAX_LENGTH]

    def _pieces(self, part: Part, before: int, depth: int) -> list[str]:
        match part.kind:
            case PartKind.TEXT:
                return [part.text]
            case PartKind.VARIABLE:
                value = self.variable(part, before, depth)
                return [value] if part.quoted else _FIELD.findall(value)
            case PartKind.ARRAY:
                return self._array(part.text, before, depth)
            case PartKind.ARITHMETIC:
                return [self._arithmetic(part.text, before, depth)]
            case PartKind.COMMAND:
                return [marker(f"$({_without_markers(part.text)})")]
            case PartKind.OTHER_EXPANSION:
                return [marker(f"${{{part.text}}}")]

    def variable(self, part: Part, before: int, depth: int) -> str:
        found = self.find(part.text, before) if depth < MAX_DEPTH else None
        if found is not None and found[1].value is not None:
            return self.text(found[1].value, found[0], depth + 1)
        if found is not None and found[1].items:
            return self.text(found[1].items[0], found[0], depth + 1)
        if not self.assigns(part.text) and self._outer is not None and self._outer.assigns(part.text):
            return outer_markers(self._outer.variable(part, MAX_LENGTH, depth + 1))
        is_plain = part.default is not None and re.search(f"[$`\"'\\\\{{}}{OPEN}]", part.default) is None
        return marker(f"{part.text}{DEFAULT}{part.default}" if is_plain else part.text)

    def _array(self, name: str, before: int, depth: int) -> list[str]:
        found = self.find(name, before) if depth < MAX_DEPTH else None
        if found is None or found[1].items is None:
            return [marker(f"{name}[@]")]
        return [field for word in found[1].items for field in self.fields(word, found[0], depth + 1)]

    def _arithmetic(self, text: str, before: int, depth: int) -> str:
        def value(found: re.Match[str]) -> str:
            part = Part(kind=PartKind.VARIABLE, text=found[1])
            return self.variable(part, before, depth + 1)

        plain = re.sub(r"\$\{(\w+)\}|\$(\w+)", lambda found: found[1] or found[2], text)
        known = re.sub(r"\b([A-Za-z_]\w*)\b(?!\()", value, plain)
        known = MARKER.sub(lambda found: _without_default(found[1]), known)
        number = calculate(known)
        return marker(f"$(({_without_markers(known)}))") if number is None else str(number)


def _assignments_of(statement: Statement) -> Iterable[Assignment]:
    if isinstance(statement, Assignment):
        return (statement,)
    if statement.name == ":":  # : "${NAME:=value}"
        parts = [part for word in statement.words for part in word.parts if part.default is not None]
        return [_default_assignment(statement, part) for part in parts]
    if statement.name == "let":
        texts = [re.match(r"[A-Za-z_]\w*(?==)", word.raw.strip("\"'")) for word in statement.words[1:]]
        return [Assignment(name=one[0], line=statement.line, scope=statement.scope) for one in texts if one]
    if statement.name in ("read", "mapfile", "readarray", "getopts", "printf"):
        names = [word.literal for word in statement.words[1:]]
        return [
            Assignment(name=name, line=statement.line, scope=statement.scope)
            for name in names
            if name and name.isidentifier()
        ]
    return ()


def _is_own_default(one: Assignment) -> bool:
    parts = [part for part in one.value.parts if part.text] if one.value is not None else []
    return len(parts) == 1 and parts[0].text == one.name and parts[0].default is not None


def _default_assignment(statement: Command, part: Part) -> Assignment:
    value = Word(parts=(part,), line=statement.line, raw="")
    return Assignment(name=part.text, line=statement.line, scope=statement.scope, value=value)


def _begins_option(word: Word) -> bool:
    first = word.parts[0] if word.parts else None
    texts = [part.text for part in word.parts if part.text]
    return first is not None and bool(texts) and (first.kind is not PartKind.TEXT or texts[0].lstrip().startswith("-"))


def _without_markers(text: str) -> str:
    return " ".join(text.replace(OPEN, "").replace(CLOSE, "").split())[:200]


def outer_markers(text: str) -> str:
    """Marks unknown values as expanded outside."""
    return MARKER.sub(lambda found: marker(OUTER + found[1].removeprefix(OUTER)), text)


def shielded(text: str) -> str:
    """With names of unknown values, such as `$(hostname)`, in characters that a second parser takes as letters."""
    return MARKER.sub(lambda found: found[0].translate(_SHIELD), text)


def unshielded(text: str) -> str:
    return text.translate(_UNSHIELD)


def unknown_names(text: str) -> list[str]:
    """The names of the unknown values in an expanded word, without their defaults."""
    return [_without_default(name) for name in MARKER.findall(text)]


def _without_default(name: str) -> str:
    return re.sub(rf"^((?:{OUTER})?\w+){DEFAULT}.*", r"\1", name, flags=re.DOTALL)


def is_known(text: str) -> bool:
    return OPEN not in text


def readable(text: str) -> str:
    """An expanded word as a person would write it: `$NAME` for what is unknown."""
    return MARKER.sub(lambda found: _readable_name(found[1].removeprefix(OUTER)), unshielded(text))


def _readable_name(name: str) -> str:
    if name.startswith(BLANK):
        return f"<{name[1:]}>"
    return f"${name}" if re.fullmatch(r"\w+|[@*#?$!-]", name) else name if name.startswith("$") else f"${{{name}}}"


def number_of(text: str, known: Mapping[str, int]) -> int | None:
    """The number, with known values for variables of the scheduler. None if it is not known."""
    plain = MARKER.sub(lambda found: _number(_without_default(found[1].removeprefix(OUTER)), known), text)
    return int(plain) if re.fullmatch(r"\d{1,9}", plain) else None


def _number(name: str, known: Mapping[str, int]) -> str:
    if name.startswith("$(("):
        inner = re.sub(r"[A-Za-z_]\w*", lambda found: str(known.get(found[0], "?")), name[3:-2])
        result = calculate(inner)
        return "?" if result is None else str(result)
    return str(known.get(name, "?"))


def calculate(text: str) -> int | None:
    """The value of an expression of whole numbers, as bash's arithmetic; None for anything else."""
    if len(text) > 200 or not re.fullmatch(r"[\d\s+*/%()-]+", text):
        return None
    try:
        return _evaluate(ast.parse(text.replace("/", "//").strip(), mode="eval").body)
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError):
        return None


def _evaluate(node: Any) -> int:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        return _OPERATORS[type(node.op)](_evaluate(node.left), _evaluate(node.right))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_evaluate(node.operand)
    raise ValueError(node)
