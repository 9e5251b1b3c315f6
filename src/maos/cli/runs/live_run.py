"""A run in the live view: followed wherever it is executed, and executed by this process on request."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from maos.cli.runs import summary
from maos.cli.runs.live import LiveView
from maos.errors import InvalidInput
from maos.model.run import Run
from maos.runs.feed import RunFeed
from maos.runs.status import is_executing

if TYPE_CHECKING:
    from maos.app import Maos
    from maos.model.question import Open
    from maos.runs.additions import Addition


class LiveRun:
    """One run at a time."""

    def __init__(self, m: Maos, view: LiveView, notify: Sequence[str]) -> None:
        self._m = m
        self._view = view
        self._notify = notify
        self._feed: RunFeed | None = None
        self._following: asyncio.Task[None] | None = None
        self._task: asyncio.Task[Run] | None = None
        self._has_ended = False
        """Whether a run that another process executes has ended."""
        self._answered: set[str] = set()
        """Questions that were answered here, until the engine has recorded the answer."""
        self._requested: set[str] = set()
        """Tasks that were requested while the run was executed."""
        self._concluded = 0
        """The version of the run whose summary was printed."""
        self.changed = asyncio.Event()
        """Set when anything has happened."""

    @property
    def run(self) -> Run | None:
        """The run as of now."""
        return None if self._feed is None else self._feed.run

    @property
    def is_ours(self) -> bool:
        """Whether this process executes the run."""
        return self._task is not None and not self._task.done()

    @property
    def is_executing(self) -> bool:
        """Whether any engine executes the run."""
        return self.is_ours or (self.run is not None and is_executing(self.run))

    @property
    def is_over(self) -> bool:
        """Whether the run is over for now, and `conclude` is due."""
        return self._has_ended if self._task is None else self._task.done()

    @property
    def questions(self) -> list[Open]:
        """What the run and its agents ask, and was not answered here."""
        found = [] if self._feed is None else self._feed.questions
        return [each for each in found if each.ref not in self._answered]

    async def wait(self) -> None:
        """Wait until something has happened."""
        await self.changed.wait()
        self.changed.clear()
        if self._following is not None and self._following.done():
            self._following.result()

    async def follow(self, id: str) -> Run:
        """Render what happens to a run from now on."""
        await self.unfollow()
        self._feed = await self._m.runs.follow(id).__aenter__()
        self._view.switch(self._feed.run)
        self._following = asyncio.create_task(self._follow(self._feed))
        self._following.add_done_callback(lambda _task: self.changed.set())
        return self._feed.run

    async def _follow(self, feed: RunFeed) -> None:
        async for _update in self._view.follow(feed):
            if self._task is None and not feed.run.is_going:
                self._has_ended = True  # what is executed here is over when its task is
            self.changed.set()

    async def unfollow(self) -> None:
        """Follow no run."""
        if self._following is not None:
            await cancel(self._following)
        self._feed = self._following = None
        self._view.switch(Run(id=""))

    # --- steering --------------------------------------------------------------------------------------------

    async def answer(self, ref: str, text: str) -> None:
        """Answer a question."""
        question = next((each for each in self.questions if each.ref == ref), None)
        if question is None:
            raise InvalidInput("that was answered already", hint="another answer came first")
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
        self._has_ended = False
        self._task = asyncio.create_task(self._m.runs.execute(id, self._view, notify=self._notify))
        self._task.add_done_callback(lambda _task: self.changed.set())

    def set_concurrency(self, concurrency: int) -> None:
        """Have more or fewer agents work at once; those at work finish their tasks."""
        if not self.is_ours or self.run is None:
            raise InvalidInput(
                "this process does not execute it", hint=f"/resume {concurrency} resumes it with so many"
            )
        self._m.runs.set_concurrency(self.run.id, concurrency)

    async def pause(self, why: str) -> None:
        """Have all agents stopped, by the engine that executes the run."""
        assert self.run is not None
        if self.is_ours:
            self._m.runs.pause_here(self.run.id, why)
        elif self.is_executing:
            await self._m.runs.pause(self.run.id, why)
        else:
            raise InvalidInput("no engine executes it", hint="/resume resumes it")

    # --- its end ---------------------------------------------------------------------------------------------

    async def conclude(self) -> None:
        """Print the summary of a run that is over for now, once."""
        run = await self.ended()
        if run is None or run.version == self._concluded:
            return
        self._concluded = run.version
        self._answered.clear()
        late, self._requested = self._requested - set(run.tasks), set()
        if late and run.status != "paused":  # requested while the run ended: it is in the run's inbox
            await self.execute(run.id)
            return
        found = await self._m.runs.summary(run)
        self._view.emit({**summary.whole(found), "kind": "summary"})
        if not self._view.as_json:
            await self._view.write(lambda: summary.show(found))

    async def ended(self) -> Run | None:
        """Return the run when no engine executes it any more and everything of it is rendered; None while one does."""
        task, self._task, self._has_ended = self._task, None, False
        assert self._feed is not None
        if task is None:
            return None if self._feed.run.is_going else self._feed.run
        run = await task
        await self._feed.caught_up(run.version)
        return run

    async def detach(self) -> None:
        """Stop executing and following the run here; its agents keep running."""
        if self._task is not None:
            await cancel(self._task)
        await self.unfollow()


async def cancel(*tasks: asyncio.Task[Any]) -> None:
    """Cancel tasks until all have ended: before Python 3.12, `wait_for` can lose a cancellation."""
    while not all(task.done() for task in tasks):
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks, timeout=1.0)
    await asyncio.gather(*tasks, return_exceptions=True)
