"""Going back in time, and going on from there: in the run itself (rollback) or in a second one (fork).

Everything that can fail is done first and can be done again: agents are stopped, worktrees made. Then one append says
what the run is now, with the agents that go on, their conversations and their mail. Nothing is rewritten, so the way
back can itself be taken back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import replace

from maos import workspaces as workspaces
from maos.clock import Clock
from maos.engine import consent, ownership
from maos.engine.attempt_spec import check_places
from maos.engine.streams import RUN, RunReader, new_id, own_run
from maos.errors import InvalidInput
from maos.faults import crash_point
from maos.journal.journal import Append, Journal
from maos.model.attempt import check_agent, check_run
from maos.model.branch import begin, digest
from maos.model.events.commands import TasksRequested
from maos.model.events.parts import RunOrigin
from maos.model.events.run import QuestionAnswered, QuestionAsked, RunCreated, RunForked, RunRolledBack
from maos.model.message import TOPICS, inbox
from maos.model.run import Run, agent_name, stream
from maos.model.status import TaskStatus
from maos.state.agents import AgentStates
from maos.travel import branches, points_in_time
from maos.travel.branches import Cut
from maos.travel.points_in_time import PointInTime

if TYPE_CHECKING:
    from maos.engine.attempts import Attempts

GRACE_S = 10.0
KEPT, GOES_ON, ANEW, GIVEN_UP = "kept", "goes on", "begins", "given up"


class PlannedStep(NamedTuple):
    """What becomes of a task."""

    task: str
    what: str
    """kept: it was done, and stays so · goes on: from where it was · begins: it had not begun · given up: it was
    planned later."""
    now: str
    """How it stands with it now; empty when this run does not have it."""
    then: str
    agent: str
    """Who does it, or will."""
    saved: str = ""
    """The checkpoint that its agent goes on from."""
    saved_us: int = 0
    messages: int = 0
    """How many it gets again that it had not heard."""
    remembers: bool = False
    """Whether it goes on in its conversation."""


class TravelPlan(NamedTuple):
    """What going to a moment does, or did."""

    run: str
    """The run that has the state of then."""
    moment: PointInTime
    before: int
    """The position of the journal before it; going back there undoes this."""
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
        """The moment to go back to, to undo it."""
        return f"@{self.before}"


class Travel:
    """Takes runs to moments of their past."""

    def __init__(self, journal: Journal, clock: Clock, runs: RunReader, attempts: Attempts) -> None:
        self._journal = journal
        self._clock = clock
        self._runs = runs
        self._attempts = attempts
        self._states = AgentStates(journal, clock)

    async def foresee(self, run: Run, moment: PointInTime, *, into: str = "") -> TravelPlan:
        """What a rollback would do, or with `into` a fork of that name; nothing is changed."""
        then = await points_in_time.run_at(self._journal, moment)
        points_in_time.check_planned(then, moment)
        id, branch = (check_run(into), 0) if into else (run.id, run.branch + 1)
        return await self._journey(run, moment, then, await self._cuts(then, moment), id, branch, ())

    async def rollback(self, id: str, moment: PointInTime, *, without_files: bool = False) -> TravelPlan:
        """Make a run what it was; what came after stays in the journal, and nothing of it counts any more (I14)."""
        async with own_run(self._journal, self._clock, await self._runs.get(id)) as recorder:
            run = recorder.fold
            then = await points_in_time.run_at(self._journal, moment)
            points_in_time.check_planned(then, moment)
            check_files(then, without_files=without_files)
            check_places(run)
            stopped = await self._attempts.end_all(run.id, GRACE_S)
            crash_point("travel: stopped")
            cuts, branch = await self._cuts(then, moment), run.branch + 1
            journey = await self._journey(run, moment, then, cuts, run.id, branch, stopped)
            if self._is_there(run, moment):
                return journey._replace(before=await position_before(self._journal, run))
            await keep(run)
            name = f"{run.id}-b{branch}"
            state, also = await self._prepared(
                then, cuts, moment.position, run.id, branch, name, f"taken back to {moment.spoken}"
            )
            rolled_back = RunRolledBack(
                to=moment.version,
                position=moment.position,
                branch=branch,
                given_up={"version": run.version, "cost_usd": journey.cost_usd},
                state=state,
                digest=journey.digest,
                inbox_version=await self._journal.version(inbox(run.id)),
                at_us=self._clock.now_us(),
            )
            wishes = await self._wishes(then, moment, run.id, state)
            also = await self._subscribed(joined([*also, *wishes]))
            await recorder.append(rolled_back, also=also)
            return journey._replace(before=await position_before(self._journal, run))

    async def fork(self, id: str, moment: PointInTime, *, into: str = "", without_files: bool = False) -> TravelPlan:
        """A second run that begins where another one was; the first is not touched, and may be going on.

        With the same `into` it is made once.
        """
        origin = await self._runs.get(id)
        await consent.check(self._journal, origin.id)  # a copy of it would do what nobody has agreed to
        then = await points_in_time.run_at(self._journal, moment)
        points_in_time.check_planned(then, moment)
        check_files(then, without_files=without_files)
        check_places(origin)
        into = check_run(into) if into else new_id()
        for name in then.tasks:
            check_agent(agent_name(into, name))
        cuts = await self._cuts(then, moment)
        journey = await self._journey(origin, moment, then, cuts, into, 0, ())
        source: RunOrigin = {"run": origin.id, "version": moment.version, "position": moment.position}
        known = await RUN.load(self._journal, into)
        if known is not None:
            _check_made(known, source, moment)
            return journey
        async with own_run(self._journal, self._clock, Run(id=into)) as recorder:
            if recorder.fold.version:  # somebody was faster
                _check_made(recorder.fold, source, moment)
                return journey
            state, also = await self._prepared(
                then, cuts, moment.position, into, 0, into, f"forked from {origin.id}, {moment.spoken}"
            )
            at_us = self._clock.now_us()
            created = RunCreated(
                request=then.request,
                folder=then.folder,
                options=state["options"],
                origin=source,
                owner=ownership.identity(recorder.lease),
                at_us=at_us,
            )
            forked = RunForked(
                to=moment.version,
                position=moment.position,
                branch=0,
                state=state,
                digest=journey.digest,
                at_us=at_us,
            )
            wishes = await self._wishes(then, moment, into, state)
            also = await self._subscribed(joined([*also, *wishes]))
            await recorder.append(created, forked, also=also)
            return journey

    # --- inside ----------------------------------------------------------------------------------------------

    async def _cuts(self, then: Run, moment: PointInTime) -> dict[str, Cut]:
        """How it stood with the agents of tasks that had begun and were not done."""
        found = {}
        for name, task in then.tasks.items():
            if task.status != TaskStatus.DONE and task.attempts:
                cut = await branches.cut(self._journal, self._states, name, then.agent(name), moment)
                if cut is not None:
                    found[name] = cut
        return found

    async def _prepared(
        self, then: Run, cuts: Mapping[str, Cut], position: int, id: str, branch: int, workspace: str, why: str
    ) -> tuple[dict[str, Any], list[Append]]:
        """The content of the run, and all that belongs to its agents; their worktrees are there when this returns."""
        folder, place = Path(then.folder), then.options.get("workspace")
        if place:
            base = workspaces.Workspace.from_data(place).base
            into = await branches.fresh(self._attempts, workspace, folder, base=base, at=then.commit or base)
            place = into.to_data()
        crash_point("travel: merged files")
        state, _names = begin(then, id=id, branch=branch, workspace=place, why=why)
        also: list[Append] = []
        at_us = self._clock.now_us()
        for name, cut in cuts.items():
            agent = state["tasks"][name]["agent"]
            goes_on = await branches.prepare(self._attempts, agent, id, cut, folder)
            await branches.put_values(self._states, goes_on)
            also += branches.appends(self._attempts, goes_on, at_us, why)
        for name, task in then.tasks.items():  # somebody who has not begun can have been sent something
            if task.status != TaskStatus.DONE and name not in cuts:
                mail = await branches.mail_of(self._journal, then.agent(name), heard=position, sent=position)
                also += branches.forwarded(state["tasks"][name]["agent"], id, mail)
        crash_point("travel: files")
        return state, also

    async def _wishes(self, then: Run, moment: PointInTime, id: str, state: Mapping[str, Any]) -> list[Append]:
        """What agents and people wanted of the run by then, and nobody had carried out: it is wanted again. A pause or
        a wake-up of that time is not."""
        names = {then.agent(name): task["agent"] for name, task in state["tasks"].items()}
        found = []
        async for record in self._journal.read(inbox(then.id), after=then.inbox_cursor):
            if record.position > moment.position:
                break
            match record.event:
                case TasksRequested(asked_by=by) as command:
                    found.append(Append(inbox(id), [replace(command, asked_by=names.get(by, by))]))
                case QuestionAsked(asked_by=several) as command:
                    asked_by = [names.get(one, one) for one in several]
                    found.append(Append(inbox(id), [replace(command, asked_by=asked_by)]))
                case QuestionAnswered() as command:
                    found.append(Append(inbox(id), [command]))
        return found

    async def _subscribed(self, appends: Sequence[Append]) -> list[Append]:
        """Note what agents want to hear of, and give back the rest. The stream of that is everybody's, so nothing in it
        has the token of one run; and whoever is subscribed before they are there gets nothing."""
        topics = [each for each in appends if each.stream == TOPICS]
        if topics:
            await self._journal.append_all(topics)
        return [each for each in appends if each.stream != TOPICS]

    def _is_there(self, run: Run, moment: PointInTime) -> bool:
        """Whether it was taken there just now, by a call that was killed before it could say so."""
        if not run.branches or run.branches[-1].joined:
            return False
        last = run.branches[-1]
        return (last.version, last.to, last.position) == (run.version, moment.version, moment.position)

    async def _journey(
        self,
        run: Run,
        moment: PointInTime,
        then: Run,
        cuts: Mapping[str, Cut],
        id: str,
        branch: int,
        stopped: Sequence[str],
    ) -> TravelPlan:
        steps = [_step(run, then, name, id, branch, cuts.get(name)) for name in then.tasks]
        for name, task in run.tasks.items():
            if name not in then.tasks and id == run.id:
                steps.append(PlannedStep(name, GIVEN_UP, task.status, "", run.agent(name)))
        kinds = {cut.attempt.kind for cut in cuts.values()}
        notes = []
        if then.options.get("in_place"):
            notes.append(f"its agents work in {then.folder} itself: files stay as they are")
        if any(not self._attempts.takes_words(kind) for kind in kinds):
            notes.append("commands that had begun are run again, in the files of then")
        return TravelPlan(
            id,
            moment,
            await self._journal.head(),
            steps,
            then.commit,
            [each.question for each in then.open_questions],
            stopped,
            max(0.0, run.cost_usd - then.cost_usd),
            digest(then),
            notes,
        )


def _check_made(known: Run, source: RunOrigin, moment: PointInTime) -> None:
    """InvalidInput unless a run is the fork that is wanted. Now is later each time that it is asked for."""
    same = None if known.origin is None else {**known.origin, "position": source["position"]}
    if (same if moment.is_now else known.origin) != source:
        raise InvalidInput(f"there is an orchestration {known.id!r} already", hint="choose another id")


def check_files(then: Run, *, without_files: bool) -> None:
    """Refuse to go back without the files, unless that is what is wanted."""
    if then.options.get("in_place") and not without_files:
        raise InvalidInput(
            f"the agents of {then.id} work in {then.folder} itself, so its files cannot go back",
            hint="--without-files goes back with everything else",
        )


async def position_before(journal: Journal, run: Run) -> int:
    """Where the journal ended before the newest event of a run."""
    newest = await journal.event(stream(run.id), run.version)
    assert newest is not None
    return newest.position - 1


async def keep(run: Run) -> None:
    """Have the merged work of a branch that is given up stay under a ref: nothing else may lead to it for long."""
    place = run.options.get("workspace")
    if place and run.commit:
        into = workspaces.Workspace.from_data(place)
        assert into.repository is not None
        await workspaces.keep(into.repository, into.name, f"left-{run.branch}", run.commit)


def joined(appends: Sequence[Append]) -> list[Append]:
    """One append for each stream."""
    found: dict[str, Append] = {}
    for each in appends:
        known = found.get(each.stream)
        found[each.stream] = each if known is None else known._replace(events=[*known.events, *each.events])
    return list(found.values())


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
        GOES_ON,
        now,
        task.status,
        agent,
        cut.saved,
        saved[-1].at_us if saved else cut.attempt.planned_us,
        len(cut.messages),
        bool(cut.transcript),
    )
