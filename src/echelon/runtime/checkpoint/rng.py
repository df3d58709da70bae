"""Random number generators of a rank: Python's, NumPy's and torch's, on the CPU and on its GPU."""

from __future__ import annotations

import random
import sys
from array import array
from typing import Any


def captured() -> dict[str, Any]:
    import torch

    state: dict[str, Any] = {"python": _packed(random.getstate()), "torch": torch.get_rng_state()}
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        state["numpy"] = numpy_random.get_state()
    if _has_gpu():
        state["cuda"] = torch.cuda.get_rng_state()
    return state


def restore(state: dict[str, Any]) -> None:
    """A generator that was not saved stays as it is."""
    import torch

    random.setstate(_unpacked(state["python"]))
    torch.set_rng_state(state["torch"])
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None and "numpy" in state:
        numpy_random.set_state(state["numpy"])
    if _has_gpu() and "cuda" in state:
        torch.cuda.set_rng_state(state["cuda"])


def _packed(state: tuple[Any, ...]) -> tuple[Any, ...]:
    """Its 625 numbers as one piece: training waits while this is copied."""
    version, numbers, rest = state
    return version, array("I", numbers).tobytes(), rest


def _unpacked(state: tuple[Any, ...]) -> tuple[Any, ...]:
    version, data, rest = state
    return version, tuple(array("I", data)), rest


def _has_gpu() -> bool:
    import torch

    return bool(torch.cuda.is_available() and torch.cuda.is_initialized())
