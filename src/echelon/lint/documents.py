"""The shell blocks of Markdown and reStructuredText documents, with the lines they are on. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from echelon.lint.directives import Dialect, first_command_line
from echelon.lint.model import names
from echelon.record import record

SHELL_LANGUAGES = names(
    "sh bash shell zsh ksh slurm sbatch pbs console shell-session shellsession sh-session terminal text txt none "
    "default batch job"
) | {""}
FENCE = re.compile(r"(?P<indent>[ \t>]*)(?P<fence>`{3,}|~{3,})\s*(?P<info>[^`]*)$")
RST_BLOCK = re.compile(r"(?P<indent>\s*)\.\. (?:code-block|code|sourcecode|highlight-block)::\s*(?P<language>\S*)\s*$")
RST_LITERAL = re.compile(r"(?P<indent>\s*)(?!\.\. )\S.*::\s*$|(?P<alone>\s*)::\s*$")
JOB_WORDS = re.compile(
    r"#SBATCH\b|#PBS\b|\b(?:srun|sbatch|qsub|torchrun|mpirun|mpiexec|deepspeed)\b|torch\.distributed\.(?:run|launch)\b"
    r"|accelerate launch\b|\bSLURM\w*_\w+|\bPBS_\w+"
)
SET_UP = re.compile(r"\s*(?:#.*|export\b.*|\w+=.*|(?:module|ml|echo|source|\.|cd|conda|set|mkdir|unset)\b.*)?$")
"""A line that prepares a job and launches nothing."""
SCRIPT_NAME = re.compile(r"[\w.-]+\.(?:sh|bash|slurm|sbatch|pbs)\b")
TYPED = re.compile(
    r"^(?:sbatch|qsub|salloc|squeue|qstat|scancel|qdel|scontrol (?:requeue|hold|release))\b", re.MULTILINE
)
TITLE_LINES = 10
PROMPT = re.compile(r"(?:\[[^\]]*\]|\w+@[\w.-]+[^$]*)?\$ ")


@record
class Block:
    text: str
    first_line: int
    title: str = ""
    """The name of a script in the text before the block."""


def shell_blocks(lines: Sequence[str], *, is_rst: bool) -> list[Block]:
    """The blocks that concern jobs. A script that launches nothing is joined with the blocks that complete it."""
    found = list(_rst_blocks(lines) if is_rst else _fenced_blocks(lines))
    titled = [_with_title(block, lines, after) for block, after in zip(found, [None, *found], strict=False)]
    return [block for block in _join_split_scripts(titled) if JOB_WORDS.search(block.text)]


def _with_title(block: Block, lines: Sequence[str], after: Block | None) -> Block:
    start = after.first_line + after.text.count("\n") if after is not None else 0
    names = SCRIPT_NAME.findall("\n".join(lines[max(start, block.first_line - TITLE_LINES) : block.first_line - 1]))
    return replace(block, title=names[-1] if names else "")


def _fenced_blocks(lines: Sequence[str]) -> Iterator[Block]:
    index = 0
    while index < len(lines):
        opening = FENCE.match(lines[index])
        index += 1
        if opening is None:
            continue
        first, closing = index, re.compile(rf"[ \t>]*{opening['fence'][0]}{{{len(opening['fence'])},}}\s*$")
        while index < len(lines) and not closing.match(lines[index]):
            index += 1
        if _language(opening["info"]) in SHELL_LANGUAGES:
            yield _block(_dedent(lines[first:index], len(opening["indent"])), first)
        index += 1


def _language(info: str) -> str:
    """The language of a fence: `bash`, `{.bash .numberLines}`, `bash title="x"`, `{code-block} bash`."""
    words = re.sub(r"[{}.,=]", " ", info).split()
    names = [word.lower() for word in words if word not in ("code-block", "code")]
    return names[0] if names else ""


def _rst_blocks(lines: Sequence[str]) -> Iterator[Block]:
    index = 0
    while index < len(lines):
        opening = RST_BLOCK.match(lines[index]) or RST_LITERAL.match(lines[index])
        index += 1
        if opening is None:
            continue
        parts = opening.groupdict()
        indent = len((parts.get("indent") or parts.get("alone") or "").expandtabs())
        while index < len(lines) and re.match(r"\s+:\w[\w-]*:", lines[index]):
            index += 1
        first = index
        while index < len(lines) and (not lines[index].strip() or _indent(lines[index]) > indent):
            index += 1
        if (parts.get("language") or "").lower() in SHELL_LANGUAGES:
            body = lines[first:index]
            yield _block(_dedent(body, min((_indent(line) for line in body if line.strip()), default=0)), first)


def _indent(line: str) -> int:
    return len(line.expandtabs()) - len(line.expandtabs().lstrip())


def _dedent(lines: Sequence[str], width: int) -> list[str]:
    return [line[width:] if not line[:width].strip(" \t>") else line.lstrip() for line in lines]


def _block(lines: list[str], first_index: int) -> Block:
    blank = next((index for index, line in enumerate(lines) if line.strip()), 0)
    text = "\n".join(_without_prompts(lines[blank:])).rstrip()
    return Block(text=text, first_line=first_index + blank + 1)


def _without_prompts(lines: list[str]) -> list[str]:
    """A terminal session keeps only what is typed after `$ `."""
    if not any(PROMPT.match(line) for line in lines):
        return lines
    kept, continues = [], False
    for line in lines:
        typed = PROMPT.match(line)
        keep = typed is not None or continues
        kept.append((line[typed.end() :] if typed else line) if keep else "")
        continues = keep and line.endswith("\\")
    return kept


def _join_split_scripts(blocks: list[Block]) -> Iterator[Block]:
    """A block with a first line #! that launches nothing is the beginning of a script."""
    while blocks:
        block = blocks.pop(0)
        while blocks and _is_unfinished(block) and not _starts_script(blocks[0]) and not _is_typed(blocks[0]):
            block = _join_blocks(block, blocks.pop(0))
        yield block


def _is_unfinished(block: Block) -> bool:
    return block.text.startswith("#!") and all(SET_UP.match(line) for line in block.text.split("\n"))


def _is_typed(block: Block) -> bool:
    """Whether the block shows what to type on the login node, and not lines of a script."""
    return TYPED.search(block.text) is not None


def _starts_script(block: Block) -> bool:
    lines = block.text.split("\n")
    head = lines[: first_command_line(lines)]
    return any(line.startswith(("#!", *(dialect.value for dialect in Dialect))) for line in head)


def _join_blocks(block: Block, following: Block) -> Block:
    """The text keeps its lines: what is between the blocks becomes blank lines."""
    missing = following.first_line - block.first_line - block.text.count("\n")
    return replace(block, text=block.text + "\n" * missing + following.text)
