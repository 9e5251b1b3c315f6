"""What a Python function is given when it runs as an agent: its task, and ways to speak and to be spoken to.

The function is `async def work(context): ...` or a plain one, in a module that can be imported from the folder the
agent works in. It runs in a process of its own, so it outlives the engine; after a kill it is called again
with `resumed` set. Its result is the agent's result, an exception is its failure.
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections import deque
from collections.abc import AsyncIterator
from typing import IO, Any


class Channel:
    """The way to the engine: one JSON object a line, each written at once and whole."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lock = threading.Lock()

    def send(self, is_: str, **fields: str) -> None:
        """Tell the engine something; it is in the pipe when this returns."""
        message = {"is": is_} | {name: _storable(value) for name, value in fields.items()}
        data = memoryview(json.dumps(message, ensure_ascii=False).encode() + b"\n")
        with self._lock:
            while data:
                data = data[os.write(self._descriptor, data) :]


class FunctionInbox:
    """Messages to the function while it works, read by a thread of its own, for plain functions too."""

    def __init__(self, lines: IO[bytes]) -> None:
        self._lines = lines
        self._waiting: deque[str] = deque()
        self._lock = threading.Lock()
        self._ended = False
        self._sleepers: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    def open(self) -> None:
        """Begin to listen; the thread ends with the process."""
        threading.Thread(target=self._listen, name="messages", daemon=True).start()

    def take(self) -> list[str]:
        """Everything that has come and was not taken yet."""
        with self._lock:
            taken = list(self._waiting)
            self._waiting.clear()
        return taken

    async def next(self) -> str | None:
        """The next message; None when there will be no more."""
        while True:
            event = asyncio.Event()
            with self._lock:
                if self._waiting:
                    return self._waiting.popleft()
                if self._ended:
                    return None
                self._sleepers.append((asyncio.get_running_loop(), event))
            await event.wait()

    def _listen(self) -> None:
        for line in self._lines:
            if line.endswith(b"\n"):  # else the engine died while it wrote it
                self._wake(text=str(json.loads(line)["say"]))
        self._wake(ended=True)

    def _wake(self, *, text: str | None = None, ended: bool = False) -> None:
        with self._lock:
            if text is not None:
                self._waiting.append(text)
            self._ended = self._ended or ended
            sleepers, self._sleepers = self._sleepers, []
        for loop, event in sleepers:
            if not loop.is_closed():
                loop.call_soon_threadsafe(event.set)


class Context:
    """What the function knows, and how it speaks."""

    def __init__(self, order: dict[str, Any], channel: Channel, mailbox: FunctionInbox) -> None:
        self.task: str = order["task"]
        """What it is to do, in the words it was given."""
        self.session: str = order["session"]
        """A name that stays the same when it is called again."""
        self.attempt: str = order["attempt"]
        """A name that is new with each call."""
        self.resumed: bool = order["resumed"]
        """Whether an earlier call was interrupted: what that one did is done."""
        self._channel = channel
        self._mailbox = mailbox

    def report(self, text: str) -> None:
        """Say something, as a model would: it is recorded and shown as the agent's words."""
        self._channel.send("report", text=str(text))

    def discover(self, keyword: str, text: str) -> None:
        """Report a discovery for other agents."""
        self._channel.send("discovery", keyword=str(keyword), text=str(text))

    def said(self) -> list[str]:
        """The messages that have come since this was asked last; it does not wait."""
        return self._mailbox.take()

    async def messages(self) -> AsyncIterator[str]:
        """Each message as it comes, until no more can come."""
        while (text := await self._mailbox.next()) is not None:
            yield text


def _storable(text: str) -> str:
    """The text without halves of characters, which no journal can keep."""
    return text.encode("utf-8", "backslashreplace").decode()
