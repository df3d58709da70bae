"""Adds up the ranks, in the image, and says where: put your training in its place.

echelon run train.py
"""

import platform
import socket

import torch

import echelon

world = echelon.join()
total = world.reduce_mean({"rank": float(world.rank)})["rank"] * world.size
system = platform.freedesktop_os_release()["PRETTY_NAME"]
print(
    f"rank {world.rank} of {world.size} on {socket.gethostname()}, {world.device}: the ranks add up to {total:.0f}; "
    f"{system}, Python {platform.python_version()}, torch {torch.__version__}",
    flush=True,
)
