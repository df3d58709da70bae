"""Export of a checkpoint to one file that is readable without echelon: `python -m ...export FOLDER FILE [--all]`."""

from __future__ import annotations

import json
import os
import struct
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from echelon.errors import ConfigError, EchelonError, EnvironmentProblem
from echelon.train.checkpoint.layout import as_byte_tensor, byte_view
from echelon.train.checkpoint.reader import CheckpointReader
from echelon.train.checkpoint.state import RESERVED_NAME
from echelon.train.checkpoint.verify import DamagedCheckpoint, verify_manifest_and_sizes

SAFETENSORS_TYPES = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "int64": "I64",
    "int32": "I32",
    "int16": "I16",
    "int8": "I8",
    "uint8": "U8",
    "bool": "BOOL",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "uint16": "U16",
    "uint32": "U32",
    "uint64": "U64",
}


def main(argv: list[str]) -> int:
    try:
        export(Path(argv[0]), Path(argv[1]), everything="--all" in argv[2:])
    except EchelonError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


def export(folder: Path, file: Path, *, everything: bool) -> None:
    """Writes the file completely or not at all. Raises EchelonError."""
    part = file.with_name(f".{file.name}.{os.urandom(4).hex()}")
    try:
        state = read_export_state(folder, everything=everything)
        _write_state(state, part, safetensors=file.suffix == ".safetensors")
        part.replace(file)
    except DamagedCheckpoint as damage:
        raise EnvironmentProblem(f"{folder.name} is damaged", origin=str(folder), why=str(damage)) from damage
    except OSError as error:
        raise EnvironmentProblem(f"cannot write {file}", why=error.strerror or str(error)) from error
    finally:
        part.unlink(missing_ok=True)


def read_export_state(folder: Path, *, everything: bool) -> dict[str, Any]:
    """The state dict of the part named `model`. With `everything`, all parts by name, and the step."""
    with CheckpointReader.open(folder, verify_manifest_and_sizes(folder)) as reader:
        state: dict[str, Any] = reader.common()
    step = state.pop(RESERVED_NAME)["step"]
    if everything:
        return {**state, "step": step}
    if "model" in state:
        model: dict[str, Any] = state["model"]
        return model
    raise ConfigError(
        "the checkpoint has no part named 'model'",
        origin=str(folder),
        why=f"it has {', '.join(state)}",
        hint="echelon export --all writes everything",
    )


def _write_state(state: dict[str, Any], path: Path, *, safetensors: bool) -> None:
    import torch

    with path.open("wb") as file:
        if safetensors:
            for data in safetensors_chunks(dict(named_tensors(state))):
                file.write(data)
        else:
            torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())


def named_tensors(state: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Every tensor with its dotted name. Other values are left out: safetensors holds only tensors."""
    import torch

    if isinstance(state, torch.Tensor):
        yield name, state
    elif isinstance(state, (Mapping, list, tuple)):
        pairs = state.items() if isinstance(state, Mapping) else enumerate(state)
        for key, value in pairs:
            yield from named_tensors(value, f"{name}.{key}" if name else str(key))


def safetensors_chunks(tensors: Mapping[str, Any]) -> Iterator[bytes | memoryview]:
    """The contents of the file in order: the length of the header, the header, and the bytes of each tensor."""
    header: dict[str, Any] = {}
    place = 0
    for name, tensor in tensors.items():
        size = tensor.numel() * tensor.element_size()
        header[name] = {
            "dtype": _safetensors_type(name, tensor),
            "shape": list(tensor.shape),
            "data_offsets": [place, place + size],
        }
        place += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    yield struct.pack("<Q", len(text))
    yield text
    for tensor in tensors.values():
        flat = as_byte_tensor(tensor)
        yield bytes(byte_view(flat)) if flat.numel() else b""


def _safetensors_type(name: str, tensor: Any) -> str:
    kind = str(tensor.dtype).removeprefix("torch.")
    if kind not in SAFETENSORS_TYPES:
        raise ConfigError(f"{name} has dtype {kind}, which safetensors does not support", hint="export to .pt instead")
    return SAFETENSORS_TYPES[kind]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
