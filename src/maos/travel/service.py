"""Points in time of runs, for programs: show, compare, roll back, fork and join runs.

With a rollback or a fork, a run or a second one resumes from an earlier point in time. Everything that can fail is done
first and can be repeated: agents are stopped, worktrees created. Then one append says what the run is now, with the
agents that continue, their conversations and their messages. Nothing is rewritten, so a rollback can be rolled back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from maos.clock import Clock
from maos.engine import checkpoints, consent, ownership
from maos.engine.attempt_spec import check_places
from maos.engine.attempts import Attempts
from maos.engine.recorder import Recorder
from maos.engine.streams import RUN, RunReader, check_version, new_id, own_run
from maos.errors import InvalidInput
from maos.faults import crash_point
from maos.journal.journal import Append, Journal, by_stream
from maos.model.attempt import check_agent, check_run
from maos.model.branch import begin, digest
from maos.model.events.core import EventBase
from maos.model.events.parts import RunOrigin, Spent
from maos.model.events.run import QuestionAnswered, RunCreated, RunForked, RunRolledBack
from maos.model.message import TOPICS, inbox
from maos.model.read_models import PlannedStep
from maos.model.run import Content, Run, agent_name
from maos.model.run_status import agents_of, spent_of
from maos.model.status import TaskStatus
from maos.state.agents import AgentStates
from maos.travel import branches, points_in_time
from maos.travel.branches import GRACE_S, Cut, keep_merged, position_before
from maos.travel.join import RunJoins
from maos.travel.points_in_time import Difference, PointInTime, When
from maos.tuples import NamedTuple

KEPT, CONTINUES, ANEW, GIVEN_UP = "kept", "continues", "begins", "given up"


class TravelPlan(NamedTuple):
    """What a rollback or a fork does, or did."""

    run: str
    """The run that has the state of then."""
    point: PointInTime
    before: int
    """The position of the journal before it; a rollback to there undoes this."""
    steps: Sequence[PlannedStep]
    commit: str
    """The merged work of then."""
    questions: Sequence[str]
    """What is asked again."""
    stopped: Sequence[str]
    """Agents that were at work."""
    cost_usd: float
    """What was spent since, and stays spent."""
    digest: str
    notes: Sequence[str] = ()

    @property
    def undo(self) -> str:
        """The point in time to roll back to, to undo it."""
        return f"@{self.before}"


class TimeTravel(RunJoins):
    """Points in time of runs: show, compare, roll back, fork and join runs.

    A point in time is a version (12, or -1 for the one before the newest), the name of a checkpoint, "@POSITION" of the
    journal, a `datetime`, or a `PointInTime` that a call returned. Nothing is ever rewritten: a rollback is one more
    event, and can be undone.
    """

    def __init__(self, journal: Journal, clock: Clock, runs: RunReader, attempts: Attempts) -> None:
        super().__init__(journal, clock, runs, attempts)
        self._states = AgentStates(journal, clock)

    async def point(self, id: str, when: When = None) -> PointInTime:
        """Resolve a point in time: its version, position and time; by default now.

        Example::

            point = await m.travel.point("r-1", -1)
            print(point.version, point.position)
        """
        return await points_in_time.find(self._journal, await self._runs.get(id), when)

    async def checkpoint(self, id: str, name: str, *, expected: int | None = None) -> PointInTime:
        """Give the present state of a run a name; the files of agents that work are saved under it.

        With `expected`, only while the run is at that version; else Conflict.

        Example::

            await m.travel.checkpoint("r-1", "before-refactoring")
        """
        run = await checkpoints.make_and_wait(self._journal, self._clock, await self._runs.get(id), name, expected)
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
    ) -> Difference:
        """How two points in time of a run differ, or with `other` this run and another one: tasks, questions, messages,
        findings, merged files, and with `patch` their lines.

        Example::

            found = await m.travel.diff("r-1", 2)
            print([each.name for each in found.tasks])
        """
        one = await points_in_time.side(self._journal, await self.point(id, before))
        two = await points_in_time.side(self._journal, await self.point(other or id, after))
        return await points_in_time.compare(one, two, self._attempts.folder, patch=patch)

    async def rollback(
        self,
        id: str,
        to: When = None,
        *,
        without_files: bool = False,
        dry_run: bool = False,
        expected: int | None = None,
    ) -> TravelPlan:
        """Roll a run back to a point in time, by default its newest checkpoint: tasks, questions, conversations,
        inboxes and files. No engine may be executing it. With `dry_run` nothing is changed. With `expected`, only while
        the run is at that version; else Conflict.

        Example::

            plan = await m.travel.rollback("r-1", 2)
            await m.travel.rollback("r-1", plan.undo)
        """
        run = await self._runs.get(id)
        check_version(run, expected)
        point = await (points_in_time.last_checkpoint(self._journal, run) if to is None else self.point(run.id, to))
        if dry_run:
            then = await self._run_at(point)
            return await self._plan(run, then, point, await self._cuts(then, point), run.id, run.branch + 1)
        async with own_run(self._journal, self._clock, run, expected=expected) as recorder:
            run, then = recorder.fold, await self._run_at(point)
            _check_files(then, without_files=without_files)
            check_places(run)
            stopped = await self._attempts.end_all(run.id, GRACE_S)
            crash_point("travel: stopped")
            branch, cuts = run.branch + 1, await self._cuts(then, point)
            plan = (await self._plan(run, then, point, cuts, run.id, branch))._replace(stopped=stopped)
            if _is_there(run, point):
                return plan._replace(before=await position_before(self._journal, run))
            await keep_merged(run, self._attempts.folder)
            into, why = f"{run.id}-b{branch}", f"rolled back to {point.spoken}"
            content, also = await self._prepared(plan, then, cuts, branch, into, why)
            rolled_back = RunRolledBack(
                to=point.version,
                position=point.position,
                branch=branch,
                given_up={"version": run.version, "spent": await self._given_up(run, then, cuts)},
                state=content.data,
                digest=plan.digest,
                inbox_version=await self._journal.version(inbox(run.id)),
                by=self._journal.by,
                at_us=self._clock.now_us(),
            )
            await self._append(recorder, [rolled_back], also)
            return plan._replace(before=await position_before(self._journal, run))

    async def fork(
        self,
        id: str,
        at: When = None,
        *,
        into: str = "",
        without_files: bool = False,
        dry_run: bool = False,
        expected: int | None = None,
    ) -> TravelPlan:
        """Create a second run that starts at a point in time of another one, by default now; the first is not changed,
        and may be running. `into` is its id: with the same id it is created once. With `expected`, only if the first
        was at that version when it was read, which is then what "now" means; else Conflict.

        Example::

            plan = await m.travel.fork("r-1", 2, into="r-2")
            print((await m.runs.get("r-2")).origin)
        """
        source = await self._runs.get(id)
        check_version(source, expected)
        point = await points_in_time.find(self._journal, source, at)
        then = await self._run_at(point)
        cuts = await self._cuts(then, point)
        if dry_run:
            return await self._plan(source, then, point, cuts, check_run(into or "NEW"), 0)
        await consent.check(self._journal, source.id)  # a copy of it would do what no person has agreed to
        _check_files(then, without_files=without_files)
        check_places(source)
        into = check_run(into) if into else new_id()
        for name in then.tasks:
            check_agent(agent_name(into, name))
        plan = await self._plan(source, then, point, cuts, into, 0)
        origin: RunOrigin = {"run": source.id, "version": point.version, "position": point.position}
        known = await RUN.load(self._journal, into)
        if known is not None:
            _check_made(known, origin, point)
            return plan
        async with own_run(self._journal, self._clock, Run(id=into)) as recorder:
            if recorder.fold.version:  # another process was first
                _check_made(recorder.fold, origin, point)
                return plan
            why = f"forked from {source.id}, {point.spoken}"
            content, also = await self._prepared(plan, then, cuts, 0, into, why)
            at_us = self._clock.now_us()
            created = RunCreated(
                request=then.request,
                folder=then.folder,
                options=content.options,
                origin=origin,
                owner=ownership.identity(recorder.lease),
                by=self._journal.by,
                at_us=at_us,
            )
            forked = RunForked(
                to=point.version,
                position=point.position,
                branch=0,
                state=content.data,
                digest=plan.digest,
                by=self._journal.by,
                at_us=at_us,
            )
            await self._append(recorder, [created, forked], also)
            return plan

    # --- inside ----------------------------------------------------------------------------------------------

    async def _run_at(self, point: PointInTime) -> Run:
        """The run as it was; InvalidInput when there was nothing to resume."""
        then = await points_in_time.run_at(self._journal, point)
        if not then.tasks:
            raise InvalidInput(f"nothing was planned yet at {point.spoken} of {point.run}", hint="choose a later one")
        return then

    async def _cuts(self, then: Run, point: PointInTime) -> dict[str, Cut]:
        """What the agents of tasks had come to that had begun and were not done, by task."""
        cuts = {}
        for name, task in then.tasks.items():
            if task.status != TaskStatus.DONE and task.attempts:
                cut = await branches.cut(self._journal, self._states, then.agent(name), point)
                if cut is not None:
                    cuts[name] = cut
        return cuts

    async def _given_up(self, run: Run, then: Run, cuts: Mapping[str, Cut]) -> Spent:
        """What was taken since then, by agents at work too, but for what those that continue from there count again."""
        agents = [agent for task in run.tasks.values() for agent in agents_of(run, task)]
        newest = {agent: found for agent in agents if (found := await self._attempts.newest(agent)) is not None}
        now = spent_of(run, newest).minus(run.given_up)
        return now.minus(spent_of(then, {then.agent(name): cut.attempt for name, cut in cuts.items()})).plus(
            then.given_up
        )

    async def _prepared(
        self, plan: TravelPlan, then: Run, cuts: Mapping[str, Cut], branch: int, workspace: str, why: str
    ) -> tuple[Content, list[Append]]:
        """The content of the run, and the appends of its agents; their worktrees exist when this returns."""
        id, position = plan.run, plan.point.position
        folder, own, into = Path(then.folder), points_in_time.workspace_of(then, self._attempts.folder), None
        if own is not None:
            base = own.base
            into = await branches.fresh(self._attempts, workspace, folder, base=base, at=then.commit or base)
        crash_point("travel: merged files")
        content = begin(then, id=id, branch=branch, workspace=into.to_data() if into else None, why=why)
        also: list[Append] = []
        at_us = self._clock.now_us()
        for name, task in then.tasks.items():
            agent = content.tasks[name].agent
            if name in cuts:
                also += await branches.continue_agent(
                    self._attempts, self._states, agent, id, cuts[name], folder, at_us, why
                )
            elif task.status != TaskStatus.DONE:  # an agent that has not begun can have been sent something
                waiting = await branches.inbox_at(self._journal, then.agent(name), received=position, sent=position)
                also += branches.forwarded(agent, id, waiting)
        crash_point("travel: files")
        names = {then.agent(name): task.agent for name, task in content.tasks.items()}
        unhandled = points_in_time.read_until(self._journal, inbox(then.id), position, after=then.inbox_cursor)
        commands = await branches.sent_again(unhandled, names)
        return content, [*also, *([Append(inbox(id), commands)] if commands else [])]

    async def _append(self, recorder: Recorder[Run], events: Sequence[EventBase], also: Sequence[Append]) -> None:
        """Write the events of the run with everything that belongs to them.

        Subscriptions come first and alone: their stream belongs to all runs, so nothing in it has the token of one, and
        an agent that is subscribed before it exists receives nothing.
        """
        merged = by_stream(also)
        if topics := [each for each in merged if each.stream == TOPICS]:
            await self._journal.append_all(topics)
        await recorder.append(*events, also=[each for each in merged if each.stream != TOPICS])

    async def _plan(
        self, run: Run, then: Run, point: PointInTime, cuts: Mapping[str, Cut], id: str, branch: int
    ) -> TravelPlan:
        steps = [_step(run, then, name, id, branch, cuts.get(name)) for name in then.tasks]
        # Answers that no engine had handled then: they are sent again, and count.
        unhandled = points_in_time.read_until(self._journal, inbox(then.id), point.position, after=then.inbox_cursor)
        answered = {each.event.id async for each in unhandled if isinstance(each.event, QuestionAnswered)}
        for name, task in run.tasks.items():
            if name not in then.tasks and id == run.id:
                steps.append(PlannedStep(name, GIVEN_UP, task.status, "", run.agent(name)))
        kinds = {cut.attempt.kind for cut in cuts.values()}
        notes = []
        if then.options.get("in_place"):
            notes.append(f"its agents work in {then.folder} itself: files stay as they are")
        if any(not self._attempts.takes_words(kind) for kind in kinds):
            notes.append("commands that had started are run again, on the files of then")
        return TravelPlan(
            id,
            point,
            await self._journal.head(),
            steps,
            then.commit,
            [each.question for each in then.open_questions if each.id not in answered],
            [],
            (await self._given_up(run, then, cuts)).cost_usd,
            digest(then),
            notes,
        )


def _is_there(run: Run, point: PointInTime) -> bool:
    """Whether it was rolled back there just now, by a call that was killed before it could return."""
    if not run.branches or run.branches[-1].joined:
        return False
    last = run.branches[-1]
    return (last.version, last.to, last.position) == (run.version, point.version, point.position)


def _check_files(then: Run, *, without_files: bool) -> None:
    """Refuse to go back without the files, unless that is what is wanted."""
    if then.options.get("in_place") and not without_files:
        raise InvalidInput(
            f"the agents of {then.id} work in {then.folder} itself, so its files cannot be rolled back",
            hint="--without-files rolls back everything else",
        )


def _check_made(known: Run, origin: RunOrigin, point: PointInTime) -> None:
    """InvalidInput unless a run is the fork that is wanted. Now is later each time that it is asked for."""
    same = None if known.origin is None else {**known.origin, "position": origin["position"]}
    if (same if point.is_now else known.origin) != origin:
        raise InvalidInput(f"there is a run {known.id!r} already", hint="choose another id")


def _step(run: Run, then: Run, name: str, id: str, branch: int, cut: Cut | None) -> PlannedStep:
    task = then.tasks[name]
    now = run.tasks[name].status if name in run.tasks else ""
    if task.status == TaskStatus.DONE:
        return PlannedStep(name, KEPT, now, task.status, then.agent(name))
    agent = agent_name(id, name, branch)
    if cut is None:
        return PlannedStep(name, ANEW, now, task.status, agent)
    saved = [each for each in cut.attempt.checkpoints if each.name == cut.saved]
    return PlannedStep(
        name,
        CONTINUES,
        now,
        task.status,
        agent,
        cut.saved,
        saved[-1].at_us if saved else cut.attempt.planned_us,
        len(cut.waiting.messages),
        bool(cut.transcript),
    )
