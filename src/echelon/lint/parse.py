"""Parses bash with tree-sitter. The only module that imports it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache, reduce
from itertools import takewhile
from typing import Any

from echelon.errors import EnvironmentProblem
from echelon.lint.model import names
from echelon.lint.syntax import Assignment, Command, Comment, Scope, Shell, Statement, Word
from echelon.lint.words import WordReader, hide_placeholders, join_words

DECLARATIONS = names("export readonly declare typeset local")
LOOPS = frozenset({"for_statement", "c_style_for_statement", "while_statement", "select_statement"})
BRANCHES = frozenset({"elif_clause", "else_clause", "case_item", "case_statement", "if_statement"})


@cache
def bash_parser() -> Any:
    """Raises EnvironmentProblem if the parser is not installed."""
    try:
        import tree_sitter
        import tree_sitter_bash
    except ImportError as error:
        raise EnvironmentProblem(
            "echelon lint needs a parser for bash",
            why=f"{error.name or 'tree_sitter_bash'} is not installed",
            hint="pip install 'echelon[lint]'",
        ) from error
    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))


def parse_shell(text: str, first_line: int = 1) -> Shell:
    """The statements of a script, of which `first_line` is the number of its first line. Raises RecursionError."""
    source = hide_placeholders(text).encode()
    root = bash_parser().parse(source).root_node
    reader = _Reader(source, first_line)
    reader.walk_all(root.children, Scope())
    return Shell(
        statements=tuple(reader.statements),
        comments=tuple(reader.comments),
        functions=frozenset(reader.functions),
        exported=frozenset(reader.exported),
        broken=reader.broken_lines(root) if root.has_error else None,
    )


class _Reader:
    """Collects statements and comments from a syntax tree."""

    def __init__(self, source: bytes, first_line: int) -> None:
        self.words = WordReader(source, first_line, self.inner_statements)
        self.first_line = first_line
        self.statements: list[Statement] = []
        self.comments: list[Comment] = []
        self.functions: list[str] = []
        self.exported: list[str] = []

    def broken_lines(self, root: Any) -> tuple[int, int]:
        queue = [root]
        for node in queue:
            if node.is_error or node.is_missing:
                return self.words.line(node), self.words.last_line(node)
            queue += [child for child in node.children if child.has_error]
        return self.words.line(root), self.words.last_line(root)

    def inner_statements(self, nodes: Sequence[Any]) -> tuple[Statement, ...]:
        """The statements of a command substitution, which are not among those of the script."""
        inner = _Reader(self.words.source, self.first_line)
        inner.walk_all(nodes, Scope())
        return tuple(inner.statements)

    def walk_all(self, nodes: Sequence[Any], scope: Scope) -> None:
        behind = replace(scope, background=True)
        for index, node in enumerate(nodes):
            is_background = index + 1 < len(nodes) and nodes[index + 1].type == "&"
            self.walk(node, behind if is_background else scope)

    def walk(self, node: Any, scope: Scope) -> None:
        kind = node.type
        if kind == "comment":
            column = node.start_point[1]
            self.comments.append(Comment(line=self.words.line(node), column=column, text=self.words.source_of(node)))
        elif kind == "pipeline":
            self._pipeline(node, scope)
        elif kind == "list":
            self._list(node, scope)
        elif kind in ("command", "redirected_statement"):
            self._command(node, scope, ())
        elif kind in ("variable_assignment", "variable_assignments", "declaration_command", "unset_command"):
            self.statements += self._assignments(node, scope)
        elif kind == "function_definition":
            self._function(node, scope)
        elif kind in LOOPS:
            self._loop(node, scope)
        elif kind in BRANCHES:
            self._branch(node, scope)
        elif kind == "negated_command":
            self.walk_all(node.children, replace(scope, tested=True))
        elif node.is_named and kind != "test_command":
            self.walk_all(node.children, scope)

    def _list(self, node: Any, scope: Scope) -> None:
        left, *_, right = [child for child in node.children if child.type != "comment"]
        self.walk(left, replace(scope, tested=True))
        self.walk(right, replace(scope, conditional=True))

    def _pipeline(self, node: Any, scope: Scope) -> None:
        stages = [child for child in node.children if child.is_named and child.type != "comment"]
        after: tuple[Command, ...] = ()
        results: list[list[Statement]] = []
        for stage in reversed(stages):
            collected, self.statements = self.statements, []
            self._command(stage, scope, after)
            collected, self.statements = self.statements, collected
            results.insert(0, collected)
            after = (*(one for one in collected if isinstance(one, Command)), *after)
        for statements in results:
            self.statements += statements

    def _function(self, node: Any, scope: Scope) -> None:
        name = self.words.source_of(node.child_by_field_name("name"))
        self.functions.append(name)
        body = node.child_by_field_name("body")
        self.walk(body, replace(scope, function=name, conditional=True))

    def _loop(self, node: Any, scope: Scope) -> None:
        inside = replace(scope, conditional=True, loop=True)
        variable = node.child_by_field_name("variable")
        if variable is not None:
            name = self.words.source_of(variable)
            self.statements.append(Assignment(name=name, line=self.words.line(node), scope=inside))
        self._branches(node, inside)

    def _branch(self, node: Any, scope: Scope) -> None:
        self._branches(node, replace(scope, conditional=True))

    def _branches(self, node: Any, inside: Scope) -> None:
        for index, child in enumerate(node.children):
            is_condition = node.field_name_for_child(index) == "condition"
            self.walk(child, replace(inside, tested=True) if is_condition else inside)

    def _command(self, node: Any, scope: Scope, pipe_to: tuple[Command, ...]) -> None:
        """A command with its redirections, or a group of commands with redirections."""
        body, redirects = _without_redirects(node)
        if body is None or body.type != "command":
            if body is not None:
                self.walk(body, scope)
            return
        parts = [child for child in body.children if child.is_named and not child.type.endswith("_redirect")]
        assigned = [child for child in parts if child.type == "variable_assignment"]
        words = list(self._words([one for one in parts if one.type not in ("variable_assignment", "comment")]))
        words += [self._word(extra) for one in redirects for extra in _words_after_target(one)]
        self.statements.append(
            Command(
                words=tuple(words),
                line=self.words.line(node),
                end=self.words.last_line(node),
                scope=scope,
                prefix=tuple(self._assignment(child, scope) for child in assigned),
                pipe_to=pipe_to,
            )
        )

    def _words(self, nodes: Sequence[Any]) -> Iterator[Word]:
        """One word for nodes without a blank between them: the grammar cuts `--list=$a,$b` behind the second dollar."""
        for index, node in enumerate(nodes):
            if index == 0 or nodes[index - 1].end_byte != node.start_byte:
                following = takewhile(
                    lambda i: nodes[i - 1].end_byte == nodes[i].start_byte, range(index + 1, len(nodes))
                )
                yield reduce(join_words, (self._word(nodes[i]) for i in following), self._word(node))

    def _word(self, node: Any) -> Word:
        return self.words.word(node.children[0] if node.type == "command_name" else node)

    def _assignments(self, node: Any, scope: Scope) -> Iterator[Assignment]:
        if node.type == "variable_assignment":
            yield self._assignment(node, scope)
            return
        keyword = node.children[0].type
        for child in node.children:
            if child.type == "variable_assignment":
                yield replace(self._assignment(child, scope), exported=keyword == "export")
            elif child.type == "variable_name" and keyword == "export":
                self.exported.append(self.words.source_of(child))
            elif child.type == "variable_name" and keyword == "unset":
                yield Assignment(name=self.words.source_of(child), line=self.words.line(node), scope=scope)

    def _assignment(self, node: Any, scope: Scope) -> Assignment:
        name = re.match(r"\w*", self.words.source_of(node.child_by_field_name("name")))
        value = node.child_by_field_name("value")
        items = None
        if value is not None and value.type == "array":
            items = tuple(self.words.word(child) for child in value.children if child.is_named)
        word = self.words.word(value) if value is not None and items is None else None
        empty = Word(parts=(), line=self.words.line(node), raw="") if value is None else None
        operator = any(child.type == "+=" for child in node.children)
        return Assignment(
            name=name[0] if name else "",
            line=self.words.line(node),
            scope=scope,
            value=word or empty,
            items=items,
            append=operator,
        )


def _without_redirects(node: Any) -> tuple[Any, list[Any]]:
    """The command, or group of commands, and its redirections."""
    body = node.child_by_field_name("body") if node.type == "redirected_statement" else node
    parents = (node, body) if body is not None and body != node else (node,)
    return body, [child for parent in parents for child in parent.children if child.type.endswith("_redirect")]


def _words_after_target(redirect: Any) -> list[Any]:
    """The grammar takes words behind `> file` as further targets; for bash they are arguments."""
    return redirect.children_by_field_name("destination")[1:] if redirect.type == "file_redirect" else []
