"""Points in time of runs, for programs: show, compare, roll back, fork and join runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from maos.clock import Clock
from maos.engine import checkpoints
from maos.engine.streams import RunReader
from maos.journal.journal import Journal
from maos.model.run import Run
from maos.travel import comparison, points_in_time
from maos.travel.comparison import Difference, Side
from maos.travel.join import Join, JoinPlan
from maos.travel.points_in_time import PointInTime, When
from maos.travel.rollback import Travel, TravelPlan

if TYPE_CHECKING:
    from maos.engine.attempts import Attempts


class Comparison(NamedTuple):
    """Two points in time, and how they differ."""

    before: Side
    after: Side
    difference: Difference


class TimeTravel:
    """Points in time of runs: show, compare, roll back, fork and join runs.

    A point in time is a version (12, or -1 for the one before the newest), the name of a checkpoint, "@POSITION" of the
    journal, a `datetime`, or a `PointInTime` that a call returned. Nothing is ever rewritten: a rollback is one more
    event, and can be undone.
    """

    def __init__(self, journal: Journal, clock: Clock, runs: RunReader, attempts: Attempts) -> None:
        self._journal = journal
        self._clock = clock
        self._runs = runs
        self._travel = Travel(journal, clock, runs, attempts)
        self._joining = Join(journal, clock, runs, attempts)

    async def point(self, id: str, when: When = None) -> PointInTime:
        """Which point in time is meant: its version, position and time; now, if nothing is said.

        Example::

            point = await m.travel.point("r-1", -1)
            print(point.version, point.position)
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
        return [await points_in_time.at_version(self._journal, run, each.version) for each in run.checkpoints]

    async def at(self, id: str, when: When) -> Run:
        """A run as it was at a point in time.

        Example::

            then = await m.travel.at("r-1", 2)
            print(then.done, "of", len(then.tasks))
        """
        return await points_in_time.run_at(self._journal, await self.point(id, when))

    async def diff(
        self, id: str, before: When = None, after: When = None, *, other: str = "", patch: bool = False
    ) -> Comparison:
        """How two points in time of a run differ, or with `other` this run and another one: tasks, questions, messages,
        findings, merged files, and with `patch` their lines.

        Example::

            found = await m.travel.diff("r-1", 2)
            print([each.name for each in found.difference.tasks])
        """
        sides = (
            await comparison.side(self._journal, await self.point(id, before)),
            await comparison.side(self._journal, await self.point(other or id, after)),
        )
        return Comparison(*sides, await comparison.compare(*sides, patch=patch))

    async def rollback(
        self, id: str, to: When = None, *, without_files: bool = False, dry_run: bool = False
    ) -> TravelPlan:
        """Make a run what it was at a point in time, by default its newest checkpoint: tasks, questions, conversations,
        inboxes and files. No engine may be executing it. With `dry_run` nothing is changed.

        Example::

            plan = await m.travel.rollback("r-1", 2)
            await m.travel.rollback("r-1", plan.undo)
        """
        run = await self._runs.get(id)
        point = await (points_in_time.last_checkpoint(self._journal, run) if to is None else self.point(run.id, to))
        if dry_run:
            return await self._travel.preview(run, point)
        return await self._travel.rollback(run.id, point, without_files=without_files)

    async def fork(
        self, id: str, at: When = None, *, into: str = "", without_files: bool = False, dry_run: bool = False
    ) -> TravelPlan:
        """Create a second run that begins at a point in time of another one, by default now; the first is not touched,
        and may be running. `into` is its id: with the same id it is created once.

        Example::

            plan = await m.travel.fork("r-1", 2, into="r-2")
            print((await m.runs.get("r-2")).origin)
        """
        run = await self._runs.get(id)
        point = await self.point(run.id, at)
        if dry_run:
            return await self._travel.preview(run, point, into=into or "NEW")
        return await self._travel.fork(run.id, point, into=into, without_files=without_files)

    async def join(self, id: str, other: str, *, policy: str = "", dry_run: bool = False) -> JoinPlan:
        """Bring what another run of the same origin has done into a run. Where both changed the same, `policy` (ours,
        theirs or newest) decides; what it leaves `open` is asked of a person, and nothing is joined before that.

        Example::

            await m.travel.fork("r-1", into="r-2")
            print((await m.travel.join("r-1", "r-2", policy="ours")).added)
        """
        if dry_run:
            return await self._joining.preview(id, other, policy=policy)
        done = await self._joining.join(id, other, policy=policy)
        return done._replace(asked=await self._joining.ask(done)) if done.open else done
