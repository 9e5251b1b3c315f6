"""The run that a conversation is about: followed wherever it is carried out, and carried out here when wanted."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from maos.cli.chat.following import ChatFollower
from maos.cli.orchestrate import asking, ending
from maos.cli.orchestrate.interrupted import is_carried_out
from maos.cli.orchestrate.screen import RunScreen
from maos.engine import orchestration
from maos.engine.notify import Address, Notifier
from maos.engine.questions import Open, with_reason
from maos.errors import InvalidInput
from maos.journal.codec import Event
from maos.model.attempt import inbox
from maos.model.message import PERSON
from maos.model.run import Run

if TYPE_CHECKING:
    from maos.app import Maos
    from maos.clock import Clock
    from maos.model.plan import Plan

GOING = ("planning", "running")


class Carrying:
    """One run at a time."""

    def __init__(self, m: Maos, screen: RunScreen, clock: Clock, notify: Sequence[Address]) -> None:
        self._m = m
        self._screen = screen
        self._clock = clock
        self._to = notify
        self._follower: ChatFollower | None = None
        self._task: asyncio.Task[Run] | None = None
        self._notifier: Notifier | None = None
        self._answered: set[str] = set()
        """Questions that were answered here, as long as nobody has recorded it."""
        self._wanted: set[str] = set()
        """Tasks that were asked for while the run went on."""
        self._told = 0
        """The version of the run at which its end was told."""
        self.over = asyncio.Event()
        """Set when the run is over, for now."""
        self.moved = asyncio.Event()
        """Set when anything has happened."""

    @property
    def run(self) -> Run | None:
        """The run as it is by now."""
        return None if self._follower is None else self._follower.run

    @property
    def is_ours(self) -> bool:
        """Whether it is carried out by this process."""
        return self._task is not None and not self._task.done()

    @property
    def is_going(self) -> bool:
        """Whether somebody carries it out."""
        return self.is_ours or (self.run is not None and is_carried_out(self.run))

    @property
    def is_untold(self) -> bool:
        """Whether it is over and nobody has said so."""
        return self.over.is_set() if self._task is None else self._task.done()

    @property
    def questions(self) -> list[Open]:
        """What the run and its agents ask, and was not answered here."""
        found = [] if self.run is None else asking.open_in(self.run, self._screen.attempts)
        return [each for each in found if each.ref not in self._answered]

    async def follow(self, id: str) -> Run:
        """Know and show what happens to a run from now on."""
        await self.let_be()
        self._follower = ChatFollower(self._m, self._screen, changed=self._changed)
        return await self._follower.start(id)

    async def let_be(self) -> None:
        """Follow no run."""
        if self._follower is not None:
            await self._follower.close()
        self._follower = None
        self._screen.changed(Run(id=""), ())

    def _changed(self) -> None:
        if self._task is None and self.run is not None and self.run.status not in GOING:
            self.over.set()  # what is carried out here is over when its task is
        self.moved.set()

    # --- steering --------------------------------------------------------------------------------------------

    async def answer(self, ref: str, text: str) -> None:
        """Answer a question."""
        from maos.cli.questions import give

        question = next((each for each in self.questions if each.ref == ref), None)
        if question is None:
            raise InvalidInput("that was answered already", hint="/questions lists what waits for you")
        await give(self._m, question, *with_reason(question, text))
        self._answered.add(ref)

    async def want(self, plan: Plan) -> None:
        """Ask whoever carries the run out for more tasks."""
        import msgspec

        assert self.run is not None
        wish = {"tasks": msgspec.to_builtins(plan.tasks), "asked_by": PERSON, "at_us": self._clock.now_us()}
        self._wanted |= {each.name for each in plan.tasks}
        await self._m.journal.append(inbox(self.run.id), Event("tasks_requested", wish))

    async def execute(self, id: str, *, late: bool = False, options: Mapping[str, Any] | None = None) -> None:
        """Carry a run out, beside the conversation; one that is completed only if something came in late."""
        from maos.engine.agent_worker import AgentWorker
        from maos.engine.upkeep import Upkeep

        run = await self.follow(id)
        self.over.clear()
        if not late:
            orchestration.check_resumable(run)
        notifier = self._notifier = Notifier(self._m.journal, run.id, self._to, tell=self._screen.warn)
        await notifier.open(run, self._screen.attempts)
        upkeep = Upkeep(
            self._m.journal,
            self._clock,
            self._m.runs,
            self._m.attempts,
            run.id,
            tell=self._keeps_up,
            concurrency={**run.options, **(options or {})}.get("concurrency"),
            notifier=notifier,
        )
        work = self._m.runs.execute(
            run.id,
            worker=AgentWorker(self._m.attempts, listener=notifier.heard),
            concurrency=upkeep.concurrency,
            options=options,
            listener=notifier.changed,
        )
        self._task = asyncio.create_task(upkeep.beside(work))
        self._task.add_done_callback(lambda _task: self.over.set())

    def _keeps_up(self, text: str, document: dict[str, Any]) -> None:
        self._screen.tell(text)
        self._screen.document(document)

    async def set_concurrency(self, concurrency: int) -> None:
        """Have more or fewer agents work at once; those at work finish what they do."""
        if not self.is_ours or self.run is None:
            raise InvalidInput("it is not carried out here", hint=f"/resume {concurrency} goes on with so many")
        self._m.runs.set_concurrency(self.run.id, concurrency)

    async def pause(self, why: str) -> None:
        """Have all agents stopped, by whoever carries the run out."""
        assert self.run is not None
        if self.is_ours:
            self._m.runs.pause_here(self.run.id, why)
        elif self.is_going:
            await self._m.runs.pause(self.run.id, why)
        else:
            raise InvalidInput("nobody carries it out", hint="/resume goes on")

    # --- its end ---------------------------------------------------------------------------------------------

    async def conclude(self, *, as_json: bool) -> None:
        """The run is over, for now: say what became of it, once."""
        self.over.clear()
        run = await self._carried_out()
        if run is None or run.version == self._told:
            return
        self._told = run.version
        self._answered.clear()
        late, self._wanted = self._wanted - set(run.tasks), set()
        if late and run.status != "paused":  # asked for in the last moment: it lies in the run's inbox
            await self.execute(run.id, late=True)
            return
        found = await ending.look(self._m, run)
        self._screen.document({**ending.whole(found), "kind": "summary"})
        if not as_json:
            await self._screen.write(lambda: ending.show(found))

    async def _carried_out(self) -> Run | None:
        """The run when nobody carries it out any more; None as long as somebody does."""
        task, self._task = self._task, None
        assert self._follower is not None
        if task is not None:
            try:
                run = await task
            finally:
                await self._close_notifier()
            await self._follower.caught_up(run.version)
        return None if self._follower.run.status in GOING else self._follower.run

    async def stop(self, letting_go: asyncio.Event, why: str) -> bool:
        """Pause what is carried out here, or let go of it; whether it was paused."""
        if self._task is None:
            return True
        waiting = asyncio.create_task(letting_go.wait())
        if not letting_go.is_set():
            await self.pause(why)
            await asyncio.wait([self._task, waiting], return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if self._task.done():
            return True
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self._close_notifier()
        return False

    async def close(self) -> None:
        """Follow no more; what is carried out here is let go of."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._close_notifier()
        if self._follower is not None:
            await self._follower.close()

    async def _close_notifier(self) -> None:
        if self._notifier is not None:
            await self._notifier.close()
            self._to = self._notifier.to  # the settings may have others by now
            self._notifier = None
