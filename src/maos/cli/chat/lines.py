"""Where the lines of a conversation come from: a person who types below the live view, or a pipe."""

from __future__ import annotations

import asyncio
import codecs
import os
import sys
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from maos.cli.keyboard import Keyboard
from maos.cli.line import Complete, InputLine
from maos.cli.runs.screen import Prompt, Screen

READ_BYTES_MAX = 65_536
WAITING_MAX = 1_000
"""Lines of a pipe that are read before they are wanted."""


class Sense(NamedTuple):
    """What a line would mean: a request, an answer, something for everybody."""

    kind: str
    label: str
    about: Sequence[str] = ()
    ref: str = ""
    """The question that it would answer."""


class ChatLine(NamedTuple):
    """A line, and what it meant to whoever began to type it; None from a pipe, which sees no prompt."""

    text: str
    sense: Sense | None = None


class Lines(Protocol):
    """Lines, as they come."""

    by_person: bool
    """Whether somebody types them, and is there to be asked."""

    def start(self) -> None:
        """Begin to read."""

    def stop(self) -> None:
        """Read no more; what was typed and not wanted stays with the terminal."""

    def prompt(self, sense: Sense) -> None:
        """Say what a line means now."""

    def forget(self) -> None:
        """Drop what was typed before anybody could have seen what it would answer."""

    def drop(self) -> bool:
        """Drop what is being typed; whether there was anything."""

    async def next(self) -> ChatLine | None:
        """The next line; None when there are no more."""


class Typed:
    """Lines that a person types below the live view, with a cursor and a history."""

    by_person = True

    def __init__(self, screen: Screen, *, complete: Complete) -> None:
        self._screen = screen
        self._line = InputLine(complete=complete)
        self._keyboard = Keyboard(self._typed)
        self._queue: asyncio.Queue[ChatLine | None] = asyncio.Queue()
        self._next = self._sense = Sense("", "› ")

    def start(self) -> None:
        self._keyboard.start()
        self._show()

    def stop(self) -> None:
        self._keyboard.stop()
        self._screen.ask(None)

    def remember(self, lines: Sequence[str]) -> None:
        """What was typed on earlier days."""
        self._line.history = [*lines, *self._line.history]

    def prompt(self, sense: Sense) -> None:
        self._next = sense
        self._show()

    def forget(self) -> None:
        while not self._queue.empty():
            self._queue.get_nowait()

    def drop(self) -> bool:
        if not self._line.text:
            return False
        self._line.feed(b"\x05\x15")
        self._show()
        return True

    async def next(self) -> ChatLine | None:
        return await self._queue.get()

    def _show(self) -> None:
        if not self._line.text:  # what somebody has begun to type keeps the meaning it had
            self._sense = self._next
        self._screen.ask(Prompt(self._line, self._sense.label, self._sense.about))

    def _typed(self, keys: bytes) -> None:
        for text in self._line.feed(keys):
            self._queue.put_nowait(ChatLine(text, self._sense))
        if self._line.ended:
            self._line.ended = False
            self._queue.put_nowait(None)
        self._show()


class Piped:
    """Lines of a pipe, a file, or a terminal that cannot be drawn on."""

    def __init__(self) -> None:
        self.by_person = sys.stdin is not None and sys.stdin.isatty()
        self._queue: asyncio.Queue[ChatLine | None] = asyncio.Queue()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""
        self._fd = -1
        self._paused = False

    def start(self) -> None:
        try:
            self._fd = sys.stdin.fileno()
            asyncio.get_running_loop().add_reader(self._fd, self._read)
        except PermissionError:  # a file: it never makes anybody wait
            while self._fd >= 0:
                self._read()
        except (AttributeError, ValueError, OSError):  # there is no standard input
            self._queue.put_nowait(None)

    def stop(self) -> None:
        if self._fd >= 0:
            asyncio.get_running_loop().remove_reader(self._fd)
            self._fd = -1

    def prompt(self, sense: Sense) -> None:
        """Nobody would see it."""

    def forget(self) -> None:
        """A script is written before anything is seen."""

    def drop(self) -> bool:
        return False

    async def next(self) -> ChatLine | None:
        said = await self._queue.get()
        if self._paused and self._queue.qsize() < WAITING_MAX // 2:
            self._paused = False
            asyncio.get_running_loop().add_reader(self._fd, self._read)
        return said

    def _read(self) -> None:
        data = os.read(self._fd, READ_BYTES_MAX)
        *lines, self._rest = (self._rest + self._decoder.decode(data, final=not data)).split("\n")
        if not data:
            lines += [self._rest] if self._rest else []
            self._close_file()
        for line in lines:
            self._queue.put_nowait(ChatLine(line.removesuffix("\r")))
        if not data:
            self._queue.put_nowait(None)
        elif self._queue.qsize() > WAITING_MAX and not self._is_file():
            self._paused = True
            asyncio.get_running_loop().remove_reader(self._fd)

    def _close_file(self) -> None:
        fd, self._fd = self._fd, -1
        asyncio.get_running_loop().remove_reader(fd)

    def _is_file(self) -> bool:
        import stat

        return stat.S_ISREG(os.fstat(self._fd).st_mode)
