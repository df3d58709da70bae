"""Rules about variables that jobs are given: secrets, and values with commas."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

from echelon.job import looks_secret
from echelon.lint.directives import Option
from echelon.lint.model import Hit, Rule, Severity
from echelon.lint.rules._common import SRUN
from echelon.lint.script import JobScript

TOKEN = re.compile(r"(?=.*\d)(?=.*[A-Za-z])[A-Za-z0-9_\-+/=.]{16,}")
PREFIXES = re.compile(r"(hf_|sk-|ghp_|github_pat_|glpat-|xox[bp]-|AKIA|wandb_)[A-Za-z0-9_-]{12,}")
NO_SECRET = re.compile(
    r"(?i)your|xxx|example|placeholder|changeme|secret|token|dummy|\.\.\.|^[/~.]|/.*/|\.(json|txt|pem|key)$"
)
NO_SECRET_NAME = re.compile(r"TOKENIZER|TOKENS|PATH|FILE|DIR|KEYWORD|_ID$", re.IGNORECASE)
NAME = re.compile(r"[A-Za-z_]\w*")
EXPORT_WORDS = frozenset({"ALL", "NONE", "NIL"})


def find_secrets(script: JobScript) -> Iterator[Hit]:
    for one in script.shell.assignments:
        literal = one.value.literal if one.value is not None else None
        if literal and _can_be_secret(one.name) and is_secret(literal):
            yield _secret_hit(one.line, one.name)
    for _, command, words in script.commands:
        literals = [word.literal or "" for word in command.words[1:]]
        if words[:2] == ("wandb", "login") and any(is_secret(word) for word in literals[1:]):
            yield _secret_hit(command.line, "the key of wandb")
        elif words[0] in ("huggingface-cli", "hf") and any(PREFIXES.fullmatch(word) for word in literals):
            yield _secret_hit(command.line, "the token of Hugging Face")
    for line, value in _export_values(script):
        for item in value.split(","):
            name, _, text = item.partition("=")
            if _can_be_secret(name) and is_secret(text):
                yield _secret_hit(line, name)


def _can_be_secret(name: str) -> bool:
    return looks_secret(name) and not NO_SECRET_NAME.search(name)


def is_secret(text: str) -> bool:
    """Whether it looks like a real key, and not like a word for the reader to replace."""
    if PREFIXES.fullmatch(text):
        return len(set(text)) > 10
    return TOKEN.fullmatch(text) is not None and NO_SECRET.search(text) is None and len(set(text)) > 8


def _secret_hit(line: int, name: str) -> Hit:
    return Hit(
        line=line,
        sentence=f"{name} is written into the script",
        fix='# a file with mode 600\nsource "$HOME/.secrets"',
    )


def _export_values(script: JobScript) -> Iterator[tuple[int, str]]:
    """The values of --export, in directives and in commands."""
    option: Option | None = script.request.option("export")
    if option is not None:
        yield option.line, option.value
    for launch in script.launches:
        if "export" in launch.starter_options:
            yield launch.command.line, launch.starter_options["export"]
    for _, command, words in script.commands:
        if words[0] in ("sbatch", "salloc"):
            yield from (
                (command.line, word.removeprefix("--export=")) for word in words if word.startswith("--export=")
            )


def find_commas(script: JobScript) -> Iterator[Hit]:
    for line, value in _export_values(script):
        items = value.split(",")
        for before, item in pairwise(items):
            is_rest = "=" not in item and item and item not in EXPORT_WORDS and not NAME.fullmatch(item)
            if is_rest and "=" in before and not re.search(r"[^\w./:@+ -]", item):
                name = before.partition("=")[0]
                yield Hit(
                    line=line,
                    sentence=f"--export ends the value of {name} at the comma",
                    fix=f"# and --export=ALL\nexport {name}={before.partition('=')[2]},{item}",
                )
                return


FAKE = "0123456789abcdef" + "0123456789abcdef01234567"
RULES = (
    Rule(
        id="secret-in-script",
        severity=Severity.ERROR,
        check=find_secrets,
        reason="A key in a script is copied to the scheduler, to its accounting, and often to a repository.",
        practice="Slurm keeps the script in its accounting, and everyone who can read the folder has the key.",
        bad=f"#!/bin/bash\n#SBATCH --nodes=1\nexport WANDB_API_KEY={FAKE}\n{SRUN} python train.py\n",
        good=f'#!/bin/bash\n#SBATCH --nodes=1\nsource "$HOME/.secrets" || exit 1\n{SRUN} python train.py\n',
    ),
    Rule(
        id="export-comma",
        severity=Severity.ERROR,
        check=find_commas,
        reason="A comma separates the variables of --export, also inside of quotes.",
        practice="The variable gets the part before the comma, without a message.",
        bad=f"#!/bin/bash\n#SBATCH --export=ALL,LAYERS=0,1,2\n{SRUN} python train.py\n",
        good=f"#!/bin/bash\n#SBATCH --export=ALL\nexport LAYERS=0,1,2\n{SRUN} python train.py\n",
    ),
)
