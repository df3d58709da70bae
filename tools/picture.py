"""A picture of a real run: what a command prints on a terminal, line by line, as one SVG file. Lines come in their own
time, but nobody wants to watch torch being imported: longer pauses are shown as a second.

python tools/picture.py docs/run.svg -- echelon run -N 2 -g 2 --restarts 1 train.py
"""

import os
import pty
import re
import shlex
import struct
import sys
import time
from fcntl import ioctl
from html import escape
from pathlib import Path
from termios import TIOCSWINSZ

COLUMNS, ROW_HEIGHT, COLUMN_WIDTH, MARGIN = 100, 18, 8.4, 16
COLOURS = {"31": "#e06c75", "32": "#98c379", "33": "#e5c07b", "34": "#61afef", "35": "#c678dd", "36": "#56b6c2"}
LONGEST_PAUSE = 1.0
STYLE = """\
text { font: 14px ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace; fill: #d7dae0; white-space: pre; }
.late { opacity: 0; animation: come 0.1s forwards; }
@keyframes come { to { opacity: 1; } }"""


def main() -> None:
    target, _, *argv = sys.argv[1:]
    lines = [(0.0, f"$ {shlex.join(argv)}"), *recorded(argv)]
    Path(target).write_text(picture(shortened(lines)))


def recorded(argv: list[str]) -> list[tuple[float, str]]:
    """Each line with the seconds that had passed when it was complete."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvp(argv[0], argv)
    ioctl(terminal, TIOCSWINSZ, struct.pack("HHHH", 40, COLUMNS, 0, 0))
    began, pending, lines = time.monotonic(), b"", []
    while piece := _read(terminal):
        sys.stdout.buffer.write(piece)
        *whole, pending = (pending + piece).split(b"\n")
        lines += [(time.monotonic() - began, line.decode(errors="replace").rstrip("\r")) for line in whole]
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code != 0:
        sys.exit(f"{shlex.join(argv)} left with {code}: no picture of that")
    return lines


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # the other end is closed
        return b""


def shortened(lines: list[tuple[float, str]]) -> list[tuple[float, str]]:
    shown, now, before = [], 0.0, 0.0
    for moment, text in lines:
        now, before = now + min(moment - before, LONGEST_PAUSE), moment
        shown.append((now, text))
    return shown


def picture(lines: list[tuple[float, str]]) -> str:
    width, height = COLUMNS * COLUMN_WIDTH + 2 * MARGIN, len(lines) * ROW_HEIGHT + 2 * MARGIN
    rows = "\n".join(_row(number, moment, text) for number, (moment, text) in enumerate(lines))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height}" role="img">\n'
        f"<title>{escape(lines[0][1])}</title>\n"
        f"<desc>Pauses longer than {LONGEST_PAUSE:g} s are shortened.</desc>\n<style>\n{STYLE}\n</style>\n"
        f'<rect width="100%" height="100%" rx="8" fill="#1e2127"/>\n{rows}\n</svg>\n'
    )


def _row(number: int, moment: float, text: str) -> str:
    late = f' class="late" style="animation-delay:{moment:.2f}s"' if moment else ""
    height = MARGIN + (number + 0.75) * ROW_HEIGHT
    return f'<text xml:space="preserve" x="{MARGIN}" y="{height:g}"{late}>{_coloured(text)}</text>'


def _coloured(text: str) -> str:
    """Colours as the terminal was told; whatever else it was told has no place in a picture."""
    out, colour = "", ""
    for plain, codes in re.findall(r"([^\x1b]*)(?:\x1b\[([0-9;]*)m|\x1b\[[0-9;?]*[A-Za-ln-z]|$)", text):
        shown = escape(plain[:COLUMNS])
        out += f'<tspan fill="{colour}">{shown}</tspan>' if colour and shown else shown
        if codes != "":
            colour = next((COLOURS[code] for code in codes.split(";") if code in COLOURS), "")
    return out


if __name__ == "__main__":
    main()
