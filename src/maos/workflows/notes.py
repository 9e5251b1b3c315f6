"""What a running workflow writes down: noted at once, written in order by one writer, as many at a time as there are.

That only one task ever writes is what makes it safe to cancel a branch at any moment: a write that was begun is ended.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

from maos.clock import Clock
from maos.engine.recorder import Recorder
from maos.journal.codec import Event
from maos.model.workflow import WorkflowRun

CLOSE_S_MAX = 5.0
"""How long the last notes may take when the store is away: what is lost is only that a step has ended."""


class RecordWriter:
    """The events of one workflow on their way to the journal."""

    def __init__(self, recorder: Recorder[WorkflowRun], clock: Clock, in_trouble: Callable[[], None]) -> None:
        self._recorder = recorder
        self._clock = clock
        self._in_trouble = in_trouble
        self._pending: list[Event] = []
        self._waiters: list[asyncio.Future[None]] = []
        self._written: list[asyncio.Future[None]] | None = None
        """Who waits for what is being written; None when nothing is."""
        self._wake = asyncio.Event()
        self._writer: asyncio.Task[None] | None = None
        self.trouble: BaseException | None = None
        """Why nothing can be written any more."""
        self.version = recorder.fold.version
        """Up to which everything is on disk; the fold is ahead of it while something is being written."""

    def begin(self) -> None:
        """Have somebody who writes."""
        self._writer = asyncio.create_task(self._write())

    def note(self, type_: str, /, **data: Any) -> None:
        """Have an event written with the next flush."""
        data["at_us"] = self._clock.now_us()
        self._pending.append(Event(type_, data))

    def flush_soon(self) -> None:
        """Have what is noted written, together with whatever else is noted until the writer's turn comes."""
        self._wake.set()

    async def flush(self) -> None:
        """Everything noted so far is on disk when this returns; several branches share one commit."""
        if self.trouble is not None:
            raise self.trouble
        if not self._pending and self._written is None:
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._pending or self._written is None:
            self._waiters.append(waiter)
            self._wake.set()
        else:
            self._written.append(waiter)
        await waiter

    async def close(self) -> None:
        """Write what is left, if that can be, and write no more."""
        if self.trouble is None:
            with contextlib.suppress(Exception):  # it is in `trouble`, or the store is away for long
                async with asyncio.timeout(CLOSE_S_MAX):
                    await self.flush()
        if self._writer is not None:
            self._writer.cancel()
            await asyncio.gather(self._writer, return_exceptions=True)
        for each in self._waiters:
            each.cancel()

    async def _write(self) -> None:
        while self.trouble is None:
            await self._wake.wait()
            self._wake.clear()
            while self._pending and self.trouble is None:
                await self._write_pending()

    async def _write_pending(self) -> None:
        events, self._pending = self._pending, []
        self._written, self._waiters = self._waiters, []
        try:
            await self._recorder.append(*events)
        except Exception as error:  # noqa: BLE001 - told to everybody who waits, now or later
            self.trouble = error
            for each in (*self._written, *self._waiters):
                if not each.done():
                    each.set_exception(error)
            self._in_trouble()
        else:
            self.version = self._recorder.fold.version
            for each in self._written:
                if not each.done():
                    each.set_result(None)
        finally:
            for each in self._written:  # nobody will know whether it was written
                each.cancel()
            self._written = None
