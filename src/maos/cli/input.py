"""The input of a command: lines of a person or a pipe, with what each means, and signals."""

from __future__ import annotations

import asyncio
import codecs
import os
import signal
import stat
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from maos.tuples import NamedTuple

READ_BYTES_MAX = 65_536
WAITING_MAX = 1_000
"""Lines of a pipe that are read before the command wants them."""


class Prompt(NamedTuple):
    """What a line means that a person begins to type now: a request, an answer, a message to all."""

    kind: str
    label: str
    about: Sequence[str] = ()
    """Lines above the prompt, such as the question."""
    ref: str = ""
    """The question that the line answers."""


class InputLine(NamedTuple):
    """A line, and the prompt that was there when its first key was pressed; None from a pipe, which sees no prompt."""

    text: str
    prompt: Prompt | None = None


class PipedLines:
    """Lines of a pipe, of a file, or of a terminal that cannot be drawn on; `LiveTerminal` has the same methods."""

    def __init__(self) -> None:
        self.by_person = sys.stdin is not None and sys.stdin.isatty()
        """Whether a person types the lines, and can be asked."""
        self._queue: asyncio.Queue[InputLine | None] = asyncio.Queue()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""
        self._fd = -1
        self._paused = False

    def ask(self, prompt: Prompt | None) -> None:
        """Set what the next line means; with None, no line is read. A pipe sees no prompt."""

    def forget(self) -> None:
        """Drop lines that were typed before their prompt was visible; a pipe has none."""

    def drop(self) -> bool:
        """Drop the line that is being typed; False when it is empty."""
        return False

    def remember(self, lines: Sequence[str]) -> None:
        """Put lines into the history; a pipe has none."""

    def start(self) -> None:
        """Begin to read."""
        try:
            self._fd = sys.stdin.fileno()
            asyncio.get_running_loop().add_reader(self._fd, self._read)
        except PermissionError:  # a file, which is always readable
            while self._fd >= 0:
                self._read()
        except (AttributeError, ValueError, OSError):  # there is no standard input
            self._queue.put_nowait(None)

    async def stop(self) -> None:
        """Stop reading; what was not read stays in the pipe."""
        self._detach()

    @asynccontextmanager
    async def hidden(self) -> AsyncIterator[None]:
        """Hand the input over to another program."""
        self._detach()
        yield
        self.start()

    async def next(self) -> InputLine | None:
        """Return the next line; None at the end of the input."""
        line = await self._queue.get()
        if self._paused and self._queue.qsize() < WAITING_MAX // 2:
            self._paused = False
            asyncio.get_running_loop().add_reader(self._fd, self._read)
        return line

    def _detach(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            asyncio.get_running_loop().remove_reader(fd)

    def _read(self) -> None:
        data = os.read(self._fd, READ_BYTES_MAX)
        *lines, self._rest = (self._rest + self._decoder.decode(data, final=not data)).split("\n")
        lines += [self._rest] if self._rest and not data else []
        for line in lines:
            self._queue.put_nowait(InputLine(line.removesuffix("\r")))
        if not data:
            self._detach()
            self._queue.put_nowait(None)
        elif self._queue.qsize() > WAITING_MAX and not stat.S_ISREG(os.fstat(self._fd).st_mode):
            self._paused = True
            asyncio.get_running_loop().remove_reader(self._fd)


async def cancel(*tasks: asyncio.Task[Any]) -> None:
    """Cancel tasks until all have ended: before Python 3.12, `wait_for` can lose a cancellation."""
    while not all(task.done() for task in tasks):
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks, timeout=1.0)
    await asyncio.gather(*tasks, return_exceptions=True)


@contextmanager
def heard(*, interrupted: Callable[[], None], sent_away: Callable[[signal.Signals], None]) -> Iterator[None]:
    """Ctrl+C interrupts; SIGTERM and a closed terminal send away.

    One that is ignored stays so: `nohup`, and jobs in the background of a script.
    """
    loop = asyncio.get_running_loop()
    handlers: dict[signal.Signals, Callable[[], None]] = {
        signal.SIGINT: interrupted,
        signal.SIGTERM: lambda: sent_away(signal.SIGTERM),
        signal.SIGHUP: lambda: sent_away(signal.SIGHUP),
    }
    ours = [each for each in handlers if signal.getsignal(each) is not signal.SIG_IGN]
    for each in ours:
        loop.add_signal_handler(each, handlers[each])
    try:
        yield
    finally:
        for each in ours:
            loop.remove_signal_handler(each)
