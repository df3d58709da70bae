"""Adds up the ranks inside the image and prints where each one runs. Replace it with your training.

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
