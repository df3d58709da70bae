"""Rules about `#SBATCH` and `#PBS` lines that do nothing, or not what they seem to."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator

from echelon.lint.directives import Dialect, Directive, first_command_line
from echelon.lint.model import Hit, Rule, Severity
from echelon.lint.rules._common import SRUN
from echelon.lint.script import JobScript
from echelon.lint.slurm_options import ONLY_SRUN, RECENT, SBATCH, find_long_name
from echelon.lint.syntax import Comment
from echelon.lint.values import is_known

NEARLY = re.compile(r"(?:#\s*(SBATCH|PBS)|#(sbatch|pbs|Sbatch|SBTACH|SBACTH|SBATH|SBATC|BATCH|SABTCH))\s+(-{1,2}\w.*)")
"""Comments that were meant as directives. `# sbatch job.sh` is not one: it says how to submit the script."""
TWO = re.compile(r"(#SBATCH[^#\"']*)(#SBATCH\s+-.*)")
DASHES = re.compile(r"(?:^|\s)([\u2010-\u2015\u2212]+)\w")
VARIABLE = re.compile(r"\$[A-Za-z_]\w*|\$\{\w+\}|\$\(|`")
SILENT = frozenset({"output", "error", "input", "chdir", "export", "account", "partition", "qos"})
"""Options for which sbatch accepts a dollar as it is."""
MOST_VARIABLES = 3
MEMORY = re.compile(r"\d+([KMGT][Bb]?)?", re.IGNORECASE)
TIME = re.compile(r"\d+(:\d+){0,2}|\d+-\d+(:\d+){0,2}|infinite|unlimited", re.IGNORECASE)
MEMORY_OPTIONS = frozenset({"mem", "mem-per-cpu", "mem-per-gpu", "tmp"})


def find_late_directives(script: JobScript) -> Iterator[Hit]:
    if script.shebang is None and (script.source.is_fragment or script.dialect is Dialect.SBATCH):
        return  # a part of a document; sbatch refuses a script without #!
    if script.is_template or any(line.startswith("#!") for line in script.lines[1:]):
        return  # several scripts in one file
    end = first_command_line(script.lines) + script.source.first_line
    late = [one for one in script.shell.comments if _is_directive(script, one) and one.line > end and one.column == 0]
    if late:
        what = "this directive: it is" if len(late) == 1 else f"{len(late)} directives: they are"
        yield Hit(
            line=late[0].line,
            sentence=f"the scheduler ignores {what} after the first command (line {end})",
            fix=f"# above line {end}\n{late[0].text.strip()}",
        )


def _is_directive(script: JobScript, comment: Comment) -> bool:
    return script.dialect is not None and re.match(rf"{script.dialect.value}\s*-", comment.text) is not None


def find_dead_directives(script: JobScript) -> Iterator[Hit]:
    """Misspelled directives. `##SBATCH` and `# SBATCH` are usual ways to switch one off, unless all are written so."""
    if script.dialect is None or script.is_template:
        return
    active = {one.name for directive in script.directives for one in directive.options}
    for index, line in enumerate(script.lines[: first_command_line(script.lines)]):
        found = NEARLY.match(line.strip())
        if found is None or line.startswith(script.dialect.value) or not _is_meant_for(script.dialect, found):
            continue
        is_switched_off = re.match(r"#\s", line) is not None and bool(script.directives)
        if not is_switched_off and _option_name(found[3]) not in active:
            yield Hit(
                line=index + script.source.first_line,
                sentence=f"this is a comment, not a directive: a directive begins with {script.dialect.value}",
                fix=f"{script.dialect.value} {_current_spelling(script.dialect, found[3])}",
            )


def _current_spelling(dialect: Dialect, text: str) -> str:
    """-P is an old name of --dependency, whose values have a colon. Without one, -p was meant."""
    return re.sub(r"^-P(?=\s+[\w-]+$)", "-p", text) if dialect is Dialect.SBATCH else text


def _is_meant_for(dialect: Dialect, found: re.Match[str]) -> bool:
    word = (found[1] or found[2]).upper()
    if (found[2] or "").islower() and re.search(r"\.(sh|sbatch|slurm|job|pbs)\b", found[3]):
        return False  # how to submit the script
    return (word == "PBS") == (dialect is Dialect.QSUB)


def _option_name(text: str) -> str:
    found = re.match(r"--?([\w-]+)", text)
    full = find_long_name(found[1], SBATCH) if found is not None else None
    return full[0] if full is not None else text


def find_variables(script: JobScript) -> Iterator[Hit]:
    """Only of options that sbatch takes as text, without single quotes. With many variables the file is a template."""
    found = [
        (directive, one)
        for directive in _slurm_directives(script)
        for one in directive.options
        if one.known and VARIABLE.search(one.value) and is_known(one.value) and "'" not in directive.text
    ]
    for directive, one in found if len(found) <= MOST_VARIABLES else ():
        name = VARIABLE.search(one.value)
        if name is not None and one.name in SILENT:
            yield Hit(
                line=directive.line,
                sentence=f"sbatch does not expand {name[0]} in a directive",
                fix=f'# on the command line, where a shell expands it\nsbatch --{one.name}="{one.value}" job.sh',
            )


def _slurm_directives(script: JobScript) -> tuple[Directive, ...]:
    return script.directives if script.dialect is Dialect.SBATCH and not script.is_template else ()


def find_two_on_a_line(script: JobScript) -> Iterator[Hit]:
    for directive in _slurm_directives(script):
        found = TWO.fullmatch(directive.text)
        if found is not None:
            yield Hit(
                line=directive.line,
                sentence="the second #SBATCH on this line is a comment",
                fix=f"{found[1].rstrip()}\n{found[2]}",
            )


def find_dashes(script: JobScript) -> Iterator[Hit]:
    for directive in script.directives:
        text = re.sub(r"\s#.*", "", directive.text)
        found = DASHES.search(text)
        if found is not None:
            plain = re.sub(r"[\u2010-\u2015\u2212]+(?=\w)", "--", text)
            yield Hit(
                line=directive.line,
                sentence=f"{found[1]} is not a minus sign but a typographic dash",
                fix=plain,
            )


def find_unknown_options(script: JobScript) -> Iterator[Hit]:
    for directive in _slurm_directives(script):
        for one in directive.options:
            written = one.word.partition("=")[0]
            if not one.known and written.removeprefix("--") in ONLY_SRUN:
                yield Hit(
                    line=directive.line,
                    sentence=f"sbatch has no option {written}: it is an option of srun",
                    fix=f"srun {one.word} ...",
                )
                continue
            guess = _similar_option(one.word) if not one.known else _single_dash(one.word)
            if guess is not None:
                short = f"sbatch reads it as {written[:2]} {one.word[2:]}." if one.known else None
                yield Hit(
                    line=directive.line,
                    sentence=f"sbatch has no option {written}",
                    fix=directive.text.replace(written, f"--{guess}"),
                    practice=short,
                )


def _similar_option(word: str) -> str | None:
    """The option that was meant. None if the word may be an option of a plugin of the site."""
    name = word.partition("=")[0].lstrip("-")
    longer = {one for one in SBATCH - RECENT if one.startswith(name)}
    if not word.startswith("--") or len(longer) == 1:
        return None
    return next(iter(difflib.get_close_matches(name, SBATCH, n=1, cutoff=0.82)), None)


def _single_dash(word: str) -> str | None:
    """`-nodes=2`, which sbatch reads as `-n odes=2`."""
    found = re.fullmatch(r"-([a-z][a-z-]{3,})(=.*)?", word)
    return found[1] if found is not None and found[1] in SBATCH else None


def find_invalid_values(script: JobScript) -> Iterator[Hit]:
    """Only of values that begin with a digit: a word is likely to be replaced before the script is submitted."""
    for directive in _slurm_directives(script):
        for one in directive.options:
            is_number = one.known and re.fullmatch(r"\d[\w.:+-]*", one.value) is not None
            if one.known and one.value == "=":
                yield Hit(
                    line=directive.line,
                    sentence=f"sbatch takes = as the value of --{one.name}: there is a blank before it",
                    fix=re.sub(r"\s+=\s*", "=", directive.text, count=1),
                )
            elif is_number and one.name in MEMORY_OPTIONS and not MEMORY.fullmatch(one.value):
                yield _invalid_value_hit(directive, f"--{one.name}", one.value, _memory_fix(directive.text, one.value))
            elif is_number and one.name in ("time", "time-min") and not TIME.fullmatch(one.value):
                fix = re.sub(re.escape(one.value) + ".*", "12:00:00", directive.text)
                yield _invalid_value_hit(directive, f"--{one.name}", one.value, fix)


def _invalid_value_hit(directive: Directive, option: str, value: str, fix: str) -> Hit:
    return Hit(line=directive.line, sentence=f"sbatch refuses {option}={value}", fix=fix)


def _memory_fix(text: str, value: str) -> str:
    found = re.match(r"(\d+)(?:\.\d+)?\s*([KMGTkmgt]?)", value)
    return text.replace(value, f"{found[1]}{found[2].upper()}") if found is not None else "#SBATCH --mem=64G"


LAUNCH = f"{SRUN} python train.py\n"
RULES = (
    Rule(
        id="directive-after-command",
        severity=Severity.ERROR,
        check=find_late_directives,
        reason="The scheduler stops reading directives at the first command.",
        practice="The job runs with the default: one node, no GPU, a short time limit.",
        bad=f"#!/bin/bash\n#SBATCH --nodes=2\nmodule load cuda || exit 1\n#SBATCH --gpus-per-node=4\n{LAUNCH}",
        good=f"#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --gpus-per-node=4\nmodule load cuda || exit 1\n{LAUNCH}",
    ),
    Rule(
        id="directive-is-a-comment",
        severity=Severity.WARNING,
        check=find_dead_directives,
        reason="A directive begins with #SBATCH or #PBS, exactly so, in the first column.",
        practice="The option has no effect, without a message.",
        bad=f"#!/bin/bash\n#SBATCH --nodes=2\n#SBTACH --time=12:00:00\n{LAUNCH}",
        good=f"#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --time=12:00:00\n{LAUNCH}",
    ),
    Rule(
        id="directive-variable",
        severity=Severity.ERROR,
        check=find_variables,
        reason="sbatch reads directives before any shell, and expands no variables.",
        practice="The log is in a folder named $HOME, or the job fails because it cannot open its log.",
        bad=f"#!/bin/bash\n#SBATCH --output=$HOME/logs/%j.out\n{LAUNCH}",
        good=f"#!/bin/bash\n#SBATCH --output=logs/%j.out\n{LAUNCH}",
    ),
    Rule(
        id="directive-two-on-a-line",
        severity=Severity.ERROR,
        check=find_two_on_a_line,
        reason="Everything behind a second # on a line is a comment.",
        practice="The second option has no effect, without a message.",
        bad=f"#!/bin/bash\n#SBATCH --nodes=2 #SBATCH --ntasks-per-node=4\n{LAUNCH}",
        good=f"#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=4\n{LAUNCH}",
    ),
    Rule(
        id="directive-dash",
        severity=Severity.ERROR,
        check=find_dashes,
        reason="Word processors and web pages turn -- into a dash, which does not start an option.",
        practice="sbatch refuses the script: Invalid directive found in batch script.",
        bad=f"#!/bin/bash\n#SBATCH \u2013nodes=2\n{LAUNCH}",
        good=f"#!/bin/bash\n#SBATCH --nodes=2\n{LAUNCH}",
    ),
    Rule(
        id="unknown-option",
        severity=Severity.ERROR,
        check=find_unknown_options,
        reason="sbatch does not have this option, but one with a similar name.",
        practice="Nothing is submitted.",
        bad=f"#!/bin/bash\n#SBATCH --gpu-per-node=4\n{LAUNCH}",
        good=f"#!/bin/bash\n#SBATCH --gpus-per-node=4\n{LAUNCH}",
    ),
    Rule(
        id="invalid-value",
        severity=Severity.ERROR,
        check=find_invalid_values,
        reason="Memory is a whole number with K, M, G or T; time is minutes, or hours:minutes:seconds.",
        practice="Nothing is submitted.",
        bad=f"#!/bin/bash\n#SBATCH --mem=16Go\n#SBATCH --time=12:00:00\n{LAUNCH}",
        good=f"#!/bin/bash\n#SBATCH --mem=16G\n#SBATCH --time=12:00:00\n{LAUNCH}",
    ),
)
