"""Plots the losses of two runs: a line for the uninterrupted run, dots for the run that was stopped.

python plot.py undisturbed/loss.csv stopped/loss.csv curve.svg
"""

import csv
import sys
from pathlib import Path

WIDTH, HEIGHT, MARGIN = 720, 360, 50


def losses(path: str) -> dict[int, float]:
    """The loss of each step. For a step that was done twice, the later loss."""
    with Path(path).open() as file:
        return {int(step): float(loss) for step, loss in csv.reader(file)}


undisturbed, stopped = losses(sys.argv[1]), losses(sys.argv[2])
last, most = max(undisturbed), max(undisturbed.values())


def place(step: int, loss: float) -> str:
    x = MARGIN + step / last * (WIDTH - 2 * MARGIN)
    return f"{x:.1f},{HEIGHT - MARGIN - loss / most * (HEIGHT - 2 * MARGIN):.1f}"


line = " ".join(place(step, loss) for step, loss in sorted(undisturbed.items()))
dots = "".join(
    '<circle cx="{}" cy="{}" r="2.2"/>'.format(*place(step, loss).split(","))
    for step, loss in sorted(stopped.items())
    if step % 5 == 0
)
Path(sys.argv[3]).write_text(
    f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="13">\n'
    f'<rect width="100%" height="100%" fill="white"/>\n'
    f'<polyline points="{line}" fill="none" stroke="#4078c0" stroke-width="1.5"/>\n'
    f'<g fill="#d73a49">{dots}</g>\n'
    f'<text x="{MARGIN}" y="24">loss: undisturbed (line), stopped and requeued (dots)</text>\n'
    f'<text x="{WIDTH // 2}" y="{HEIGHT - 14}" text-anchor="middle">step 0 to {last}</text>\n'
    f'<text x="10" y="{MARGIN}">{most:.2f}</text><text x="10" y="{HEIGHT - MARGIN}">0</text>\n</svg>\n'
)
