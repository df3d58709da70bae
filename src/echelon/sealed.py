"""An environment on its way to a job that is not handed one: sealed on disk, and its key with the scheduler.

Either alone is worth nothing: the file is for its owner's eyes, the key is among the job's variables, which a scheduler
may show to anyone. A key is used once, so that a keyed stream and a keyed check are all it takes.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import secrets
from collections.abc import Mapping

KEY_VARIABLE = "ECHELON_SEAL"
CHECK_BYTES = 32

# What belongs to the machine or the job that it was set for, and what a shell does not let itself be told.
STAYS = frozenset({"TMPDIR", "HOSTNAME", "XDG_RUNTIME_DIR", "PWD", "OLDPWD", "SHLVL", "_", KEY_VARIABLE})
SHELLS_OWN = frozenset({"BASHOPTS", "BASH_VERSINFO", "EUID", "PPID", "SHELLOPTS", "UID"})


def travels(name: str) -> bool:
    """Whether a variable goes along from the login node; PBS sets its own there."""
    plain = re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) is not None
    return plain and name not in STAYS | SHELLS_OWN and not name.startswith("PBS_")


def seal(environ: Mapping[str, str]) -> tuple[bytes, str]:
    """What may lie on a disk, and the key that opens it."""
    key = secrets.token_bytes(32)
    text = json.dumps({name: value for name, value in environ.items() if travels(name)}).encode()
    hidden = _crossed(text, key)
    return _check(hidden, key) + hidden, key.hex()


def unseal(data: bytes, key_text: str) -> dict[str, str]:
    """Raises ValueError where the key does not fit."""
    key = bytes.fromhex(key_text)
    check, hidden = data[:CHECK_BYTES], data[CHECK_BYTES:]
    if not hmac.compare_digest(check, _check(hidden, key)):
        raise ValueError("the key does not fit")
    environ: dict[str, str] = json.loads(_crossed(hidden, key))
    return environ


def _crossed(data: bytes, key: bytes) -> bytes:
    stream = hashlib.shake_256(b"stream" + key).digest(len(data))
    return (int.from_bytes(data, "big") ^ int.from_bytes(stream, "big")).to_bytes(len(data), "big")


def _check(hidden: bytes, key: bytes) -> bytes:
    return hmac.digest(hashlib.sha256(b"check" + key).digest(), hidden, "sha256")
