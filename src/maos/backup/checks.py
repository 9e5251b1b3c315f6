"""Long checks of a backup that a server was asked for: how far each is, and how it ended."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec

from maos.clock import Clock
from maos.errors import Conflict, MaosError

TEST, VERIFY = "test", "verify"

Report = Callable[[int, int], None]


class BackupCheckProgress(msgspec.Struct):
    """A check of a backup: how far it is, or how it ended."""

    kind: str
    """test: restored to a temporary database; verify: read and compared."""
    started_us: int
    ended_us: int = 0
    """0 while it is in progress."""
    position: int = 0
    """How far it is."""
    of: int = 0
    problem: str = ""
    """What is wrong with the backup; empty when nothing was found."""


class BackupChecks:
    """The newest check of each kind; at most one of a kind is in progress at a time."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._found: dict[str, BackupCheckProgress] = {}

    def all(self) -> list[BackupCheckProgress]:
        """The checks that were started here, the newest first."""
        return sorted(self._found.values(), key=lambda each: -each.started_us)

    def start(self, kind: str, work: Callable[[Report], Awaitable[str]]) -> BackupCheckProgress:
        """Start a check, which returns what is wrong; Conflict while one of its kind is in progress."""
        going = self._found.get(kind)
        if going is not None and not going.ended_us:
            what = f"a {kind} of the backup is in progress: position {going.position} of {going.of}"
            raise Conflict("backup", what=what, hint="wait until it has ended")
        progress = self._found[kind] = BackupCheckProgress(kind=kind, started_us=self._clock.now_us())
        self._tasks[kind] = asyncio.create_task(self._check(progress, work))
        return progress

    async def close(self) -> None:
        """Cancel the checks in progress."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _check(self, progress: BackupCheckProgress, work: Callable[[Report], Awaitable[str]]) -> None:
        def report(position: int, of: int) -> None:
            progress.position, progress.of = position, of

        try:
            progress.problem = await work(report)
        except MaosError as error:
            progress.problem = error.what
        finally:
            progress.ended_us = self._clock.now_us()
