"""Records the terminal output of a command and writes it as one animated SVG file. Lines appear with their real delays,
but pauses longer than a second are shortened to one second.

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
    lines = [(0.0, f"$ {shlex.join(argv)}"), *wrap_lines(record(argv))]
    Path(target).write_text(render_svg(shorten_pauses(lines)))


def record(argv: list[str]) -> list[tuple[float, str]]:
    """Runs the command. Returns each line with the seconds from the start to its end."""
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
        sys.exit(f"{shlex.join(argv)} failed with exit code {code}; no picture was written")
    return lines


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # the other end is closed
        return b""


def wrap_lines(lines: list[tuple[float, str]]) -> list[tuple[float, str]]:
    """Breaks long lines as a terminal does. Lines with colours are cut off later instead."""
    starts = [(moment, text, range(0, max(len(text), 1), COLUMNS)) for moment, text in lines]
    return [
        (moment, text if "\x1b" in text else text[start : start + COLUMNS])
        for moment, text, columns in starts
        for start in (columns[:1] if "\x1b" in text else columns)
    ]


def shorten_pauses(lines: list[tuple[float, str]]) -> list[tuple[float, str]]:
    shown, now, before = [], 0.0, 0.0
    for moment, text in lines:
        now, before = now + min(moment - before, LONGEST_PAUSE), moment
        shown.append((now, text))
    return shown


def render_svg(lines: list[tuple[float, str]]) -> str:
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
    return f'<text xml:space="preserve" x="{MARGIN}" y="{height:g}"{late}>{_spans(text)}</text>'


def _spans(text: str) -> str:
    """Converts colour codes to spans and drops all other escape sequences."""
    out, colour = "", ""
    for plain, codes in re.findall(r"([^\x1b]*)(?:\x1b\[([0-9;]*)m|\x1b\[[0-9;?]*[A-Za-ln-z]|$)", text):
        shown = escape(plain[:COLUMNS])
        out += f'<tspan fill="{colour}">{shown}</tspan>' if colour and shown else shown
        if codes != "":
            colour = next((COLOURS[code] for code in codes.split(";") if code in COLOURS), "")
    return out


if __name__ == "__main__":
    main()
