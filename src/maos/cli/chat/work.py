"""The run that a conversation is about: followed wherever it is executed, and executed here when wanted."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from maos.cli.runs import summary
from maos.cli.runs.live import Notices, cancel
from maos.cli.runs.screen import Screen
from maos.errors import InvalidInput
from maos.model.run import Run
from maos.runs.feed import RunFeed
from maos.runs.status import is_executing

if TYPE_CHECKING:
    from maos.app import Maos
    from maos.model.question import Open
    from maos.runs.plan_input import Addition


class Work:
    """One run at a time."""

    def __init__(self, m: Maos, screen: Screen, notify: Sequence[str]) -> None:
        self._m = m
        self._screen = screen
        self._notify = notify
        self._feed: RunFeed | None = None
        self._following: asyncio.Task[None] | None = None
        self._task: asyncio.Task[Run] | None = None
        self._answered: set[str] = set()
        """Questions that were answered here, as long as that is not recorded."""
        self._requested: set[str] = set()
        """Tasks that were requested while the run was executed."""
        self._told = 0
        """The version of the run at which its end was told."""
        self.over = asyncio.Event()
        """Set when the run is over, for now."""
        self.moved = asyncio.Event()
        """Set when anything has happened."""

    @property
    def run(self) -> Run | None:
        """The run as it is by now."""
        return None if self._feed is None else self._feed.run

    @property
    def is_ours(self) -> bool:
        """Whether it is executed by this process."""
        return self._task is not None and not self._task.done()

    @property
    def is_going(self) -> bool:
        """Whether an engine executes it."""
        return self.is_ours or (self.run is not None and is_executing(self.run))

    @property
    def is_untold(self) -> bool:
        """Whether it is over and the person was not told so."""
        return self.over.is_set() if self._task is None else self._task.done()

    @property
    def questions(self) -> list[Open]:
        """What the run and its agents ask, and was not answered here."""
        found = [] if self._feed is None else self._feed.questions
        return [each for each in found if each.ref not in self._answered]

    async def follow(self, id: str) -> Run:
        """Show what happens to a run from now on."""
        await self.unfollow()
        self._feed = await self._m.runs.follow(id).__aenter__()
        self._screen.changed(self._feed.run, ())
        for each in self._feed.attempts.values():
            self._screen.knows(each)
        self._following = asyncio.create_task(self._show(self._feed))
        return self._feed.run

    async def _show(self, feed: RunFeed) -> None:
        async for update in feed:
            self._screen.update(update)
            if self._task is None and not feed.run.is_going:
                self.over.set()  # what is executed here is over when its task is
            self.moved.set()

    async def unfollow(self) -> None:
        """Follow no run."""
        await self._stop_following()
        self._screen.changed(Run(id=""), ())

    async def _stop_following(self) -> None:
        if self._following is not None:
            await cancel(self._following)
        self._feed = self._following = None

    # --- steering --------------------------------------------------------------------------------------------

    async def answer(self, ref: str, text: str) -> None:
        """Answer a question."""
        question = next((each for each in self.questions if each.ref == ref), None)
        if question is None:
            raise InvalidInput("that was answered already", hint="/questions lists what waits for you")
        await self._m.questions.give_line(question, text)
        self._answered.add(ref)

    async def request(self, added: Addition) -> None:
        """Request more tasks of the engine that executes the run."""
        assert self.run is not None
        self._requested |= {each.name for each in added.plan.tasks}
        await self._m.runs.request_tasks(self.run.id, added.plan)

    async def execute(self, id: str) -> None:
        """Execute a run that this process has claimed, beside the conversation."""
        await self.follow(id)
        self.over.clear()
        work = self._m.runs.execute(id, Notices(self._screen), notify=self._notify)
        self._task = asyncio.create_task(work)
        self._task.add_done_callback(lambda _task: self.over.set())

    def set_concurrency(self, concurrency: int) -> None:
        """Have more or fewer agents work at once; those at work finish what they do."""
        if not self.is_ours or self.run is None:
            raise InvalidInput("it is not carried out here", hint=f"/resume {concurrency} goes on with so many")
        self._m.runs.set_concurrency(self.run.id, concurrency)

    async def pause(self, why: str) -> None:
        """Have all agents stopped, by the engine that executes the run."""
        assert self.run is not None
        if self.is_ours:
            self._m.runs.pause_here(self.run.id, why)
        elif self.is_going:
            await self._m.runs.pause(self.run.id, why)
        else:
            raise InvalidInput("nobody carries it out", hint="/resume goes on")

    # --- its end ---------------------------------------------------------------------------------------------

    async def conclude(self, *, as_json: bool) -> None:
        """The run is over, for now: show its summary, once."""
        self.over.clear()
        run = await self._ended()
        if run is None or run.version == self._told:
            return
        self._told = run.version
        self._answered.clear()
        late, self._requested = self._requested - set(run.tasks), set()
        if late and run.status != "paused":  # requested in the last moment: it lies in the run's inbox
            await self.execute(run.id)
            return
        found = await self._m.runs.summary(run)
        self._screen.document({**summary.whole(found), "kind": "summary"})
        if not as_json:
            await self._screen.write(lambda: summary.show(found))

    async def _ended(self) -> Run | None:
        """The run when no engine executes it any more; None as long as one does."""
        task, self._task = self._task, None
        assert self._feed is not None
        if task is not None:
            await self._feed.caught_up((await task).version)
        return None if self._feed.run.is_going else self._feed.run

    async def stop(self, detaching: asyncio.Event, why: str) -> bool:
        """Pause what is executed here, or detach from it; whether it was paused."""
        if self._task is None:
            return True
        waiting = asyncio.create_task(detaching.wait())
        if not detaching.is_set():
            await self.pause(why)
            await asyncio.wait([self._task, waiting], return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if self._task.done():
            return True
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        return False

    async def close(self) -> None:
        """Follow no more, and detach from what is executed here."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._stop_following()
