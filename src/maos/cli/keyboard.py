"""The keyboard of a terminal, heard by an event loop: key by key, and nothing is shown but what we draw."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import termios
from collections.abc import Callable
from typing import Any

READ_BYTES_MAX = 4096
_PASTE_MARKED, _PASTE_PLAIN = "\x1b[?2004h", "\x1b[?2004l"
_LOCAL_FLAGS = 3


class Keyboard:
    """Standard input as keys, from `start` to `stop`. Ctrl+C and Ctrl+Z mean what they always do."""

    def __init__(self, hear: Callable[[bytes], None]) -> None:
        self._hear = hear
        self._fd = sys.stdin.fileno()
        self._before: list[Any] | None = None

    def start(self) -> None:
        """Hear keys; what was typed before is forgotten, for it answers nothing that was asked."""
        if self._before is not None:
            return
        loop = asyncio.get_running_loop()
        self._before = termios.tcgetattr(self._fd)
        self._enter()
        termios.tcflush(self._fd, termios.TCIFLUSH)
        loop.add_reader(self._fd, self._read)
        loop.add_signal_handler(signal.SIGCONT, self._enter)  # the shell had the terminal meanwhile

    def stop(self) -> None:
        """Hear no more, and leave the terminal as it was."""
        if self._before is None:
            return
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._fd)
        loop.remove_signal_handler(signal.SIGCONT)
        try:
            termios.tcsetattr(self._fd, termios.TCSADRAIN, self._before)
            _write(_PASTE_PLAIN)
        except (termios.error, OSError):
            pass  # the terminal is gone, and with it what we would put back
        self._before = None

    def _enter(self) -> None:
        mode = termios.tcgetattr(self._fd)
        mode[_LOCAL_FLAGS] &= ~(termios.ICANON | termios.ECHO)
        termios.tcsetattr(self._fd, termios.TCSADRAIN, mode)
        _write(_PASTE_MARKED)

    def _read(self) -> None:
        try:
            typed = os.read(self._fd, READ_BYTES_MAX)
        except OSError:
            typed = b""
        if not typed:  # the terminal is gone; the signal that says so is on its way
            asyncio.get_running_loop().remove_reader(self._fd)
            return
        self._hear(typed)


def _write(sequence: str) -> None:
    os.write(sys.__stdout__.fileno() if sys.__stdout__ is not None else 1, sequence.encode())
