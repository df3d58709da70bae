"""10,000 log lines a second from eight ranks: how many arrive, tagged and in order, and how late the last one is."""

import subprocess
import time

from harness import Trial, ours

trial = Trial()
with subprocess.Popen(
    ours(8, "lines.py", "--cold"), env=trial.env, cwd=trial.folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
) as process:
    seen: dict[str, list[int]] = {}
    delays = []
    for line in process.stdout:
        tag, rank, number, sent = line.decode().split()
        delays.append(time.time() - float(sent))
        if tag == f"[{rank}]":
            seen.setdefault(rank, []).append(int(number))
in_order = sum(numbers == list(range(6250)) for numbers in seen.values())
delays.sort()
print("\n10,000 log lines a second from 8 ranks, for 5 s")
print(f"  lines that arrived tagged  {sum(map(len, seen.values()))} of 50000")
print(f"  ranks complete, in order   {in_order} of 8")
print(f"  delay of a line, median    {delays[len(delays) // 2]:.3f} s, maximum {delays[-1]:.3f} s")
