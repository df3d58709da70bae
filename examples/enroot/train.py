"""Adds up a tensor over all ranks, in the image, and says where: replace it with your training.

echelon run train.py
"""

import platform
import socket

import torch

import echelon

world = echelon.join()
total = world.reduce_mean({"rank": float(world.rank)})["rank"] * world.size
with open("/etc/os-release") as file:
    system = dict(line.strip().split("=", 1) for line in file if "=" in line).get("PRETTY_NAME", "something").strip('"')
print(
    f"rank {world.rank} of {world.size} on {socket.gethostname()}: the ranks add up to {total:.0f}; "
    f"{system}, Python {platform.python_version()}, torch {torch.__version__}, {world.device}",
    flush=True,
)
