"""Runs at other moments, for programs: shown as they were, compared, taken back, forked, joined."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from maos.clock import Clock
from maos.engine import checkpoints
from maos.engine.streams import RunReader
from maos.journal.journal import Journal
from maos.model.run import Run
from maos.travel import comparison, points_in_time
from maos.travel.comparison import Difference, Side
from maos.travel.join import Join, Union
from maos.travel.points_in_time import PointInTime, When
from maos.travel.rollback import Travel, TravelPlan

if TYPE_CHECKING:
    from maos.engine.attempts import Attempts


class Comparison(NamedTuple):
    """Two moments, and how they differ."""

    before: Side
    after: Side
    difference: Difference


class TimeTravel:
    """Runs at other moments: shown as they were, compared, taken back, forked and joined.

    A moment is a version (12, or -1 for the one before the newest), the name of a checkpoint, "@POSITION" of the
    journal, a `datetime`, or a `Moment` that a call gave back. Nothing is ever rewritten: a way back is one more event,
    and can be undone.
    """

    def __init__(self, journal: Journal, clock: Clock, runs: RunReader, attempts: Attempts) -> None:
        self._journal = journal
        self._clock = clock
        self._runs = runs
        self._travel = Travel(journal, clock, runs, attempts)
        self._joining = Join(journal, clock, runs, attempts)

    async def moment(self, id: str, when: When = None) -> PointInTime:
        """Which moment is meant: its version, position and time; now, if nothing is said.

        Example::

            moment = await m.travel.moment("r-1", -1)
            print(moment.version, moment.position)
        """
        return await points_in_time.find(self._journal, await self._runs.get(id), when)

    async def checkpoint(self, id: str, name: str) -> PointInTime:
        """Give the present state of a run a name; the files of agents that work are saved under it.

        Example::

            await m.travel.checkpoint("r-1", "before-refactoring")
        """
        run = await checkpoints.make_and_wait(self._journal, self._clock, await self._runs.get(id), name)
        return await points_in_time.named(self._journal, run, name)

    async def checkpoints(self, id: str) -> list[PointInTime]:
        """The checkpoints of a run, the oldest first; those of branches that were given up are among them.

        Example::

            for each in await m.travel.checkpoints("r-1"):
                print(each.name, each.version)
        """
        run = await self._runs.get(id)
        return [await points_in_time.at_version(self._journal, run, each["version"]) for each in run.checkpoints]

    async def at(self, id: str, when: When) -> Run:
        """A run as it was at a moment.

        Example::

            then = await m.travel.at("r-1", 2)
            print(then.done, "of", len(then.tasks))
        """
        return await points_in_time.run_at(self._journal, await self.moment(id, when))

    async def diff(
        self, id: str, before: When = None, after: When = None, *, other: str = "", patch: bool = False
    ) -> Comparison:
        """How two moments of a run differ, or with `other` this run and another one: tasks, questions, what was said
        and found, merged files, and with `patch` their lines.

        Example::

            found = await m.travel.diff("r-1", 2)
            print([each.name for each in found.difference.tasks])
        """
        sides = (
            await comparison.side(self._journal, await self.moment(id, before)),
            await comparison.side(self._journal, await self.moment(other or id, after)),
        )
        return Comparison(*sides, await comparison.compare(*sides, patch=patch))

    async def rollback(
        self, id: str, to: When = None, *, without_files: bool = False, dry_run: bool = False
    ) -> TravelPlan:
        """Make a run what it was at a moment, by default its newest checkpoint: tasks, questions, conversations, mail
        and files. Nobody may be carrying it out. With `dry_run` nothing is changed.

        Example::

            journey = await m.travel.rollback("r-1", 2)
            await m.travel.rollback("r-1", journey.undo)
        """
        run = await self._runs.get(id)
        moment = await (points_in_time.last_checkpoint(self._journal, run) if to is None else self.moment(run.id, to))
        if dry_run:
            return await self._travel.foresee(run, moment)
        return await self._travel.rollback(run.id, moment, without_files=without_files)

    async def fork(
        self, id: str, at: When = None, *, into: str = "", without_files: bool = False, dry_run: bool = False
    ) -> TravelPlan:
        """A second run that begins at a moment of another one, by default now; the first is not touched, and may be
        going on. `into` is its id: with the same it is made once.

        Example::

            journey = await m.travel.fork("r-1", 2, into="r-2")
            print((await m.runs.get("r-2")).origin)
        """
        run = await self._runs.get(id)
        moment = await self.moment(run.id, at)
        if dry_run:
            return await self._travel.foresee(run, moment, into=into or "NEW")
        return await self._travel.fork(run.id, moment, into=into, without_files=without_files)

    async def join(self, id: str, other: str, *, policy: str = "", dry_run: bool = False) -> Union:
        """Bring what another run of the same origin has done into a run. Where both changed the same, `policy` (ours,
        theirs or newest) decides; what it leaves `open` is asked of a person, and nothing is joined before that.

        Example::

            await m.travel.fork("r-1", into="r-2")
            print((await m.travel.join("r-1", "r-2", policy="ours")).added)
        """
        if dry_run:
            return await self._joining.foresee(id, other, policy=policy)
        done = await self._joining.join(id, other, policy=policy)
        return done._replace(asked=await self._joining.ask(done)) if done.open else done
