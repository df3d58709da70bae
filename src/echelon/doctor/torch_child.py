"""A program of its own: reports torch and the GPUs, then takes part in an all_reduce if it gets an order on stdin.

Runs by `python -c`, with the Python of the ranks, which may not have echelon. So it imports nothing of it.
"""

import importlib
import json
import os
import platform
import socket
import sys
import time
from datetime import timedelta
from typing import Any

MATRIX = 1024
REPEATS = 3


def main() -> None:
    say(describe())
    order = sys.stdin.readline()
    if order.strip():
        say(attempt(lambda: all_reduce(json.loads(order))))
    sys.stdout.flush()
    os._exit(0)  # the process group may hang at exit


def say(value: dict[str, Any]) -> None:
    print(json.dumps(value), flush=True)


def attempt(function: Any) -> dict[str, Any]:
    try:
        result: dict[str, Any] = function()
    except Exception as error:  # noqa: BLE001  any failure is a result
        lines = str(error).strip().splitlines()
        return {"problem": f"{type(error).__name__}: {lines[0] if lines else ''}"[:500]}
    return result


def describe() -> dict[str, Any]:
    facts: dict[str, Any] = {"python": platform.python_version(), "executable": sys.executable}
    began = time.monotonic()
    try:
        torch = importlib.import_module("torch")
    except Exception as error:  # noqa: BLE001  a broken torch raises anything
        return {**facts, "torch_problem": f"{type(error).__name__}: {error}"[:500]}
    facts |= {"torch": torch.__version__, "cuda": torch.version.cuda, "hip": torch.version.hip}
    facts |= {"import_seconds": round(time.monotonic() - began, 2)}
    return {**facts, **attempt(lambda: describe_gpus(torch))}


def describe_gpus(torch: Any) -> dict[str, Any]:
    count = torch.cuda.device_count()
    if not count:
        return {"gpus": []}
    nccl = ".".join(map(str, torch.cuda.nccl.version())) if torch.distributed.is_nccl_available() else None
    return {"nccl": nccl, "gpus": [use_gpu(torch, index) for index in range(count)]}


def use_gpu(torch: Any, index: int) -> dict[str, Any]:
    """Allocates, multiplies and checks that the result is finite."""

    def multiply() -> dict[str, Any]:
        matrix = torch.ones(MATRIX, MATRIX, device=f"cuda:{index}")
        product = matrix @ matrix
        torch.cuda.synchronize(index)
        exact = bool((product == MATRIX).all()) and bool(torch.isfinite(product).all())
        free, total = torch.cuda.mem_get_info(index)
        return {"exact": exact, "free": free, "total": total, "name": torch.cuda.get_device_name(index)}

    return {"index": index, **attempt(multiply)}


def all_reduce(order: dict[str, Any]) -> dict[str, Any]:
    torch = importlib.import_module("torch")
    distributed = importlib.import_module("torch.distributed")
    timeout = timedelta(seconds=order["seconds"])
    distributed.init_process_group(
        order["backend"],
        store=open_store(distributed, order, timeout),
        rank=order["rank"],
        world_size=order["size"],
        timeout=timeout,
    )
    device = "cuda:0" if order["backend"] == "nccl" else "cpu"
    return {"sizes": {str(size): measure(torch, distributed, order, size, device) for size in order["bytes"]}}


def open_store(distributed: Any, order: dict[str, Any], timeout: timedelta) -> Any:
    """The first rank's store listens on one address only, not on all as it does by default."""
    address, port = order["address"], order["port"]
    if order["rank"] != 0:
        return distributed.TCPStore(address, port, is_master=False, timeout=timeout)
    listener = socket.socket(fileno=order["listener"])
    return distributed.TCPStore(
        address,
        port,
        is_master=True,
        wait_for_workers=False,
        timeout=timeout,
        master_listen_fd=listener.detach(),
        **store_options(importlib.import_module("torch").__version__),
    )


def store_options(version: str) -> dict[str, bool]:
    """Before torch 2.8 the libuv backend cannot use an open socket."""
    major, minor = version.split(".")[:2]
    return {} if (int(major), int(minor)) >= (2, 8) else {"use_libuv": False}


def measure(torch: Any, distributed: Any, order: dict[str, Any], size: int, device: str) -> dict[str, Any]:
    count, rank, ranks = size // 4, order["rank"], order["size"]
    seconds = []
    correct = True
    for _ in range(REPEATS):
        tensor = torch.full((count,), float(rank + 1), device=device)
        distributed.barrier()
        began = time.monotonic()
        distributed.all_reduce(tensor)
        total = float(tensor[0]) + float(tensor[-1])  # waits for the GPU
        seconds.append(time.monotonic() - began)
        correct = correct and total == ranks * (ranks + 1) and bool((tensor == tensor[0]).all())
    return {"seconds": min(seconds), "correct": correct}


if __name__ == "__main__":
    main()
