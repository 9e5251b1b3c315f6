"""Runs as they are now, or were: what the journal says of them, and whether the processes that it names are alive."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence

from maos.bus import history as message_history
from maos.bus.history import Filter, SentMessage
from maos.clock import MICROSECONDS, Clock
from maos.engine import ownership, questions
from maos.engine.streams import NEVER_US, RUN, AttemptReader, RunReader, permanent, statistics
from maos.errors import NotFound
from maos.journal.journal import Journal, Record
from maos.model.access import VisibleParts
from maos.model.attempt import Attempt
from maos.model.cleanup import Statistics
from maos.model.events.parts import Spent
from maos.model.events.run import RunRemoved
from maos.model.message import history
from maos.model.question import Open, grouped
from maos.model.run import Run, stream
from maos.model.run_status import PendingCommands, SupervisorStatus, spent_of, status_of
from maos.model.status import RunStatus, SupervisorState
from maos.runs.budgets import Allowance, is_at_limit, left_of, resume_command
from maos.runs.feed import RunFeed, at_work
from maos.store.contract import StreamEnding
from maos.tuples import NamedTuple

RESUMABLE = ("interrupted", "idle", "failed", "blocked", "cancelled")
"""States of runs that `maos resume` resumes."""
DAY_US = 86_400 * MICROSECONDS
RECENT_US = 7 * DAY_US
"""For how long a run that has ended is among those that a person may mean without naming it."""


def is_executing(run: Run) -> bool:
    """Whether an engine that is alive, as far as this machine can tell, executes a run."""
    return run.is_going and not run.is_handed_over and not ownership.liveness(run.owner).has_ended


def is_interrupted(run: Run) -> bool:
    """Whether the engine that executed a run has exited, and the run was neither paused nor has it ended."""
    return run.is_going and ownership.liveness(run.owner).has_ended


class RunView(NamedTuple):
    """A run as it is now, or was."""

    run: Run
    attempts: Mapping[str, Attempt]
    """The newest attempt of each agent that is at work."""
    commands: PendingCommands
    questions: list[Open]
    """What it and its agents ask a person."""
    now: SupervisorStatus
    messages: int
    at_us: int
    permanent: str | None = None
    """Why no cleanup ever removes anything of it; None when one may."""

    @property
    def status(self) -> str:
        """The recorded status; "interrupted" when it is recorded as running and its engine has exited."""
        is_interrupted = self.now.state is SupervisorState.INTERRUPTED
        return SupervisorState.INTERRUPTED if is_interrupted else self.run.status

    @property
    def spent(self) -> Spent:
        """What it has taken by now, agents at work included."""
        return spent_of(self.run, self.attempts)

    @property
    def left(self) -> Allowance:
        """What it may still take."""
        return left_of(self.run, self.spent, self.at_us)

    @property
    def resumable(self) -> str:
        """The command that resumes it; empty when it is completed, or is executed."""
        return resume_command(self.run) if self.now.state in RESUMABLE else ""

    @property
    def is_at_limit(self) -> bool:
        """Whether it is paused until a person gives it a larger budget, or more time."""
        return is_at_limit(self.run)

    @property
    def duration_us(self) -> int:
        """How long it took, or takes until now."""
        runs_on = self.run.is_going and self.now.state is not SupervisorState.INTERRUPTED
        until_us = self.run.ended_us or (self.at_us if runs_on else self.run.updated_us)
        return max(0, until_us - self.run.created_us)

    @property
    def lost(self) -> list[Attempt]:
        """Attempts whose engine and agent have exited: what they had begun may or may not have taken effect."""
        return [each for each in self.attempts.values() if not each.is_open or ownership.agent_liveness(each).has_ended]


class RunViews(RunReader):
    """Runs, for front ends that show them."""

    def __init__(
        self, journal: Journal, clock: Clock, attempts: AttemptReader, lookback_days: Callable[[], float]
    ) -> None:
        super().__init__(journal)
        self._clock = clock
        self._attempts = attempts
        self._lookback_days = lookback_days

    # --- finding ---------------------------------------------------------------------------------------------

    async def unfinished(self, *, since_us: int | None = None) -> list[Run]:
        """Runs with something left to do, those changed last first. With `since_us`, of those that ended only the ones
        that did since: the others are not read."""
        runs = self.views() if since_us is None else self.open(since_us=since_us)
        found = [run async for run in runs if run.status != RunStatus.COMPLETED]
        return sorted(found, key=lambda run: run.updated_us, reverse=True)

    async def latest(self) -> Run:
        """The run that a person most likely wants to resume: the one changed last that no engine executes."""
        found = await self.unfinished(since_us=self._clock.now_us() - RECENT_US)
        if not found:
            found = [run async for run in _first(self.newest_first(), lambda run: run.status != RunStatus.COMPLETED)]
        if not found:
            raise NotFound("there is no run to resume", hint="`maos status` shows what else is open")
        return next((run for run in found if not is_executing(run)), found[0])

    async def newest(self) -> Run:
        """The run that something happened to last."""
        found = [run async for run in self.open(since_us=self._clock.now_us() - RECENT_US)]
        found += [run async for run in _first(self.newest_first(), lambda _run: True)]
        if not found:
            raise NotFound("there are no runs", hint="`maos run` starts one")
        return max(found, key=lambda run: run.updated_us)

    async def interrupted(self) -> list[Run]:
        """Runs whose engine has exited, the newest first, as far back as `recovery.lookback_days` of the settings."""
        since_us = self.lookback_us()
        found = [run async for run in self.open() if is_interrupted(run) and run.updated_us >= since_us]
        return sorted(found, key=lambda run: run.updated_us, reverse=True)

    def now_us(self) -> int:
        """The time, by the clock that runs are recorded with."""
        return self._clock.now_us()

    def lookback_us(self) -> int:
        """Interrupted runs to which nothing has happened since then are not named (R-1009)."""
        days = self._lookback_days()
        return self._clock.now_us() - int(days * DAY_US) if days else 0

    # --- how they are ----------------------------------------------------------------------------------------

    async def status(self, id: str) -> RunView:
        """A run with its agents, questions and state.

        Example::

            print((await m.runs.status("r-1")).now.state)
        """
        return await self.status_of(await self.get(id))

    async def status_of(self, run: Run) -> RunView:
        """The status of a run that was read before."""
        attempts = await self.at_work(run)
        waiting = await questions.pending_of(self._journal, run)
        asked = questions.of_run(run, waiting)
        for each in attempts.values():
            asked += await questions.of_agent(self._journal, each)
        asked = grouped(asked)
        at_us = self._clock.now_us()
        lives = not (run.is_open and ownership.liveness(run.owner).has_ended)
        now = status_of(run, attempts, waiting, lives=lives, now_us=at_us)
        messages = await self._journal.version(history(run.id))
        pinned = (await permanent(self._journal)).get(run.id)
        return RunView(run, attempts, waiting, asked, now, messages, at_us, pinned)

    async def at_work(self, run: Run) -> dict[str, Attempt]:
        """The newest attempt of each agent that works on a run, or did when the run was paused."""
        return await at_work(self._attempts, run)

    async def messages(self, id: str, *, newest: int = 0) -> list[SentMessage]:
        """The messages between the agents of a run: all, or the newest so many."""
        if newest:
            return await message_history.newest(self._journal, id, newest)
        return [each async for each in message_history.read(self._journal, id, Filter())]

    async def versions(self, id: str) -> list[Record]:
        """Every event of a run, the oldest first: each is a version that the run can be rolled back to."""
        return [record async for record in self._journal.read(stream(id))]

    def follow(self, id: str, *, from_start: bool = False) -> RunFeed:
        """Everything that is recorded of a run, its agents and its messages from now on, by whichever engine.

        Example::

            async with m.runs.follow("r-1") as feed:
                print(feed.run.status, len(feed.attempts))
        """
        return RunFeed(self._journal, id, from_start=from_start)

    async def cleaned_up(self) -> Statistics:
        """What cleanups have removed so far."""
        return await statistics(self._journal)

    async def list(self, *, since_us: int | None = None, seen: VisibleParts | None = None) -> list[RunView]:
        """All runs, or those that a reader sees, those that have not ended first, and then the newest first. With
        `since_us`, of those that ended only the ones that did since: the others are not read.

        Example::

            print([each.run.id for each in await m.runs.list()])
        """
        runs = self.views() if since_us is None else self.open(since_us=since_us)
        shown = [run async for run in runs if seen is None or await seen.has_run(run.id)]
        found = [await self.status_of(run) for run in shown]
        return sorted(found, key=lambda each: (not each.run.is_open, -each.run.created_us))

    async def count(self) -> int:
        """How many runs there are, without those that were removed; none of them is read.

        Example::

            print(await m.runs.count())
        """
        return len([id async for id in RUN.ids(self._journal, unless=StreamEnding((RunRemoved.type,), NEVER_US))])

    async def page(
        self, *, status: str = "", after: str = "", limit: int = 50, seen: VisibleParts | None = None
    ) -> tuple[Sequence[RunView], int]:
        """The next runs after one, in the order of `list`, and how many there are in all; `status` may be a state.
        With `seen`, only of those that a reader sees.

        Example::

            found, total = await m.runs.page(limit=10)
        """
        if status or seen is not None:
            return await self._filtered_page(status, after, limit, seen)
        going = sorted([run async for run in self.open()], key=lambda run: -run.created_us)
        ids = [run.id for run in going]
        ids += [id async for id in RUN.ids(self._journal, newest=True) if id not in ids]
        found: list[RunView] = []
        for id in ids[ids.index(after) + 1 if after in ids else 0 :]:
            if len(found) == limit:
                break
            run = await RUN.view(self._journal, id)
            if run is not None and not run.removed_us:
                found.append(await self.status_of(run))
        return found, await self.count()

    async def _filtered_page(
        self, status: str, after: str, limit: int, seen: VisibleParts | None
    ) -> tuple[Sequence[RunView], int]:
        found = [run async for run in self.views() if seen is None or await seen.has_run(run.id)]
        known = sorted(found, key=lambda run: (not run.is_open, -run.created_us))
        by_state = status and status not in tuple(RunStatus)
        if status and not by_state:
            known = [run for run in known if run.status == status]
        views = {run.id: await self.status_of(run) for run in known} if by_state else {}
        if by_state:
            known = [run for run in known if views[run.id].now.state == status]
        ids = [run.id for run in known]
        first = ids.index(after) + 1 if after in ids else 0
        chosen = known[first : first + limit]
        return [views.get(run.id) or await self.status_of(run) for run in chosen], len(known)


async def _first(runs: AsyncIterator[Run], condition: Callable[[Run], bool]) -> AsyncIterator[Run]:
    """The first run that meets a condition; those after it are not read."""
    async for run in runs:
        if condition(run):
            yield run
            return
