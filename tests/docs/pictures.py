"""Pictures of terminals for the documentation: a command on a real terminal, its screen drawn as SVG."""

from __future__ import annotations

import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Mapping
from fcntl import ioctl
from html import escape
from pathlib import Path

import pyte

COLUMNS, ROWS = 110, 30
WAIT_S_MAX = 60.0
WIDTH, HEIGHT, MARGIN = 8.43, 18.0, 16.0
"""Of one character in a 14 px monospace font, and the space around the text."""

COLOURS = {
    "black": "#45475a", "red": "#f38ba8", "green": "#a6e3a1", "brown": "#f9e2af", "yellow": "#f9e2af",
    "blue": "#89b4fa", "magenta": "#cba6f7", "cyan": "#94e2d5", "white": "#cdd6f4", "default": "#cdd6f4",
    "brightblack": "#7f849c", "brightred": "#f38ba8", "brightgreen": "#a6e3a1", "brightyellow": "#f9e2af",
    "brightblue": "#89b4fa", "brightmagenta": "#cba6f7", "brightcyan": "#94e2d5", "brightwhite": "#ffffff",
}  # fmt: skip
BACKGROUND = "#1e1e2e"


class Screen:
    """A command on a terminal of 110 columns, and what a person would see of it."""

    def __init__(self, *args: str, cwd: Path, environment: Mapping[str, str]) -> None:
        self._home = environment["HOME"]
        self._screen = pyte.Screen(COLUMNS, ROWS)
        self._stream = pyte.ByteStream(self._screen)
        self._ours, theirs = pty.openpty()
        ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "maos", *args], stdin=theirs, stdout=theirs, stderr=theirs, cwd=cwd,
            start_new_session=True, env={**environment, "TERM": "xterm-256color"},
        )  # fmt: skip
        os.close(theirs)

    def wait_until(self, seen: Callable[[str], bool]) -> None:
        """Read until the text of the screen is as wanted, and the screen has rested for a moment."""
        end = time.monotonic() + WAIT_S_MAX
        while not seen(self.text):
            assert time.monotonic() < end, f"not seen after {WAIT_S_MAX:.0f} s:\n{self.text}"
            assert self._read(1.0) or self._process.poll() is None, f"ended without it:\n{self.text}"
        while self._read(0.05):
            pass

    def end(self) -> int:
        """Read until the command ends, and return its exit code."""
        while self._read(WAIT_S_MAX):
            pass
        return self._process.wait(WAIT_S_MAX)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._ours)

    @property
    def text(self) -> str:
        return "\n".join(line.rstrip() for line in self._screen.display).rstrip()

    def draw(self, command: str) -> str:
        """Return the screen as an SVG document, below the command that was typed."""
        rows = self.text.count("\n") + 3
        width, height = COLUMNS * WIDTH + 2 * MARGIN, rows * HEIGHT + 2 * MARGIN
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" role="img" '
            f'aria-label="{escape(command)}" font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, monospace" '
            f'font-size="14">',
            f'<rect width="100%" height="100%" rx="8" fill="{BACKGROUND}"/>',
            _span(0, 0, f"$ {command}", COLOURS["brightwhite"], bold=True),
        ]
        for row in range(rows - 2):
            parts += self._draw_row(row)
        return "\n".join([*parts, "</svg>", ""])

    def _draw_row(self, row: int) -> list[str]:
        """Return one text element for each stretch of equal style."""
        cells = self._screen.buffer[row]
        found: list[str] = []
        start = 0
        for column in range(1, COLUMNS + 1):
            if column == COLUMNS or _style(cells[column]) != _style(cells[start]):
                text = "".join(cells[each].data for each in range(start, column)).replace(self._home, "~")
                if text.strip():
                    found.append(_span(start, row + 2, text.rstrip(), *_style(cells[start])))
                start = column
        return found

    def _read(self, wait_s: float) -> bool:
        ready, _, _ = select.select([self._ours], [], [], wait_s)
        try:
            new = os.read(self._ours, 65536) if ready else b""
        except OSError:  # the command has closed the terminal
            new = b""
        self._stream.feed(new)
        return bool(new)


def _style(cell: pyte.screens.Char) -> tuple[str, bool]:
    colour = cell.bg if cell.reverse else cell.fg
    return COLOURS.get(colour, f"#{colour}"), cell.bold


def _span(column: int, row: int, text: str, colour: str, bold: bool = False) -> str:
    indent = len(text) - len(text.lstrip())
    text = text.lstrip()
    weight = ' font-weight="bold"' if bold else ""
    x, y = MARGIN + (column + indent) * WIDTH, MARGIN + (row + 0.8) * HEIGHT
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" textLength="{len(text) * WIDTH:.1f}" fill="{colour}"{weight} '
        f'xml:space="preserve">{escape(text)}</text>'
    )
