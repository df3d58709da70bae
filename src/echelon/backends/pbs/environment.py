"""Encrypts the submit-time environment for PBS, which does not propagate it."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import secrets
import sys
from collections.abc import Mapping
from pathlib import Path

from echelon.run_dir import RunDir
from echelon.shell import export_lines

KEY_VARIABLE = "ECHELON_SEAL"
CHECKSUM_BYTES = 32
# Variables of one machine or one job, and variables that a shell refuses to set.
NOT_PROPAGATED = frozenset({"TMPDIR", "HOSTNAME", "XDG_RUNTIME_DIR", "PWD", "OLDPWD", "SHLVL", "_", KEY_VARIABLE})
SHELL_VARIABLES = frozenset({"BASHOPTS", "BASH_VERSINFO", "EUID", "PPID", "SHELLOPTS", "UID"})


def is_propagated(name: str) -> bool:
    """Whether a variable is copied from the login node to the job. PBS_ variables are not: PBS sets them in the job."""
    plain = re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) is not None
    return plain and name not in NOT_PROPAGATED | SHELL_VARIABLES and not name.startswith("PBS_")


def encrypt_environ(environ: Mapping[str, str]) -> tuple[bytes, str]:
    """The encrypted variables, and the key as text."""
    key = secrets.token_bytes(32)
    text = json.dumps({name: value for name, value in environ.items() if is_propagated(name)}).encode()
    hidden = _apply_stream(text, key)
    return _checksum(hidden, key) + hidden, key.hex()


def decrypt_environ(data: bytes, key_text: str) -> dict[str, str]:
    """Raises ValueError if the key does not match."""
    key = bytes.fromhex(key_text)
    check, hidden = data[:CHECKSUM_BYTES], data[CHECKSUM_BYTES:]
    if not hmac.compare_digest(check, _checksum(hidden, key)):
        raise ValueError("the key does not match")
    environ: dict[str, str] = json.loads(_apply_stream(hidden, key))
    return environ


def _apply_stream(data: bytes, key: bytes) -> bytes:
    stream = hashlib.shake_256(b"stream" + key).digest(len(data))
    return (int.from_bytes(data, "big") ^ int.from_bytes(stream, "big")).to_bytes(len(data), "big")


def _checksum(hidden: bytes, key: bytes) -> bytes:
    return hmac.digest(hashlib.sha256(b"check" + key).digest(), hidden, "sha256")


HOST_VARIABLES = frozenset({"CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "TMPDIR", "HOSTNAME"})
"""Variables that differ between hosts. An agent keeps its own value, or has none."""
ARRAY_VARIABLES = frozenset({"PBS_ARRAY_INDEX", "PBS_ARRAY_ID"})
"""The job script sets the index if the job is no longer an element of an array. Tasks of PBS do not get it from PBS."""


def main(run_path: Path) -> int:
    """Prints the submit-time environment as export lines for the job script. Prints nothing without a key.

    Returns the exit code: 3 if the environment cannot be read.
    """
    key = os.environ.get(KEY_VARIABLE)
    if not key:
        return 0
    file = RunDir(run_path).sealed
    try:
        environ = decrypt_environ(file.read_bytes(), key)
    except (OSError, ValueError) as error:
        print(f"cannot read the environment of this run: {file}: {error}", file=sys.stderr)
        return 3
    sys.stdout.buffer.write("\n".join(export_lines(environ)).encode(errors="surrogateescape"))
    return 0


def agent_environ(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables of the supervisor that are valid on every host."""
    return {
        name: value
        for name, value in environ.items()
        if name not in HOST_VARIABLES
        and name != KEY_VARIABLE
        and (name in ARRAY_VARIABLES or not name.startswith("PBS_"))
    }
