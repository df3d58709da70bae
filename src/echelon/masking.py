"""Hides secrets in text that other programs wrote."""

from __future__ import annotations

import re
from typing import Any

NAME = r"(?:token|secret|passw(?:or)?d|passphrase|credential|api[-_]?key|access[-_]?key|private[-_]?key)"
VARIABLE = re.compile(rf"\b([A-Z0-9_]*{NAME.upper()}[A-Z0-9_]*=)(?!\*\*\*)\S+")
"""HF_TOKEN=abc. Small letters are left alone: `max_tokens=2048` is an ordinary argument of a function."""
OPTION = re.compile(rf"(?i)(--?[a-z0-9_-]*{NAME}[a-z0-9_-]*[= ])(?!-|\*\*\*)\S+")
"""--api-key abc."""
URL = re.compile(r"(\b[a-z][a-z0-9+.-]*://[^\s/:@]*:)[^\s/@]+(?=@)")
"""https://user:abc@host."""
BEARER = re.compile(r"(?i)(\bbearer )[\w.~+/-]{8,}=*")
KNOWN = re.compile(
    r"\b(hf_|gh[pousr]_|github_pat_|glpat-|sk-|xox[abprs]-|AKIA|ASIA)[A-Za-z0-9_-]{12,}|(eyJ[\w-]{8,}\.)[\w-]+\.[\w-]+"
)
"""Secrets that services give out with a fixed beginning."""


def mask_secrets(text: str) -> str:
    for pattern in (VARIABLE, OPTION, URL, BEARER):
        text = pattern.sub(r"\1***", text)
    return KNOWN.sub(lambda found: f"{found[1] or found[2]}***", text)


def mask_values(value: Any) -> Any:
    """A copy of a JSON value with masked strings."""
    if isinstance(value, dict):
        return {key: mask_values(item) for key, item in value.items()}
    if isinstance(value, list):
        return [mask_values(item) for item in value]
    return mask_secrets(value) if isinstance(value, str) else value
