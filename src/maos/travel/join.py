"""Bringing two runs of one origin together: what the other one has done becomes part of ours, and its files are merged.

The other run is only read. Files are merged in a worktree of their own, from where the two runs parted; what both sides
changed is decided by a policy or by a person, who is asked as by any run. One append makes it so, and a rollback to
the version before undoes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from maos import workspaces as workspaces
from maos.clock import Clock
from maos.engine import consent, questions
from maos.engine.attempt_spec import check_places
from maos.engine.attempts import Attempts
from maos.engine.streams import RunReader, own_run
from maos.errors import Corrupt, InvalidInput, NotFound
from maos.faults import crash_point
from maos.journal.journal import Append, Journal
from maos.model.branch import (
    FILES,
    JOIN,
    OURS,
    THEIRS,
    BranchPoint,
    JoinConflict,
    Joined,
    digest,
    join,
    line_of,
    parted,
)
from maos.model.events.core import EventBase
from maos.model.events.parts import WorkspaceData
from maos.model.events.run import QuestionAnswered, QuestionAsked, RunJoined
from maos.model.message import inbox
from maos.model.question import Open
from maos.model.run import Run
from maos.travel import branches, points_in_time, relocation
from maos.travel.branches import GRACE_S, keep_merged, position_before
from maos.travel.points_in_time import lineage
from maos.tuples import NamedTuple


class JoinPlan(NamedTuple):
    """What a join does, or did."""

    run: str
    other: str
    base: BranchPoint
    """Where the two parted."""
    before: int
    """The position of the journal before it; a rollback to there undoes this."""
    taken: Sequence[str]
    added: Sequence[str]
    conflicts: Sequence[JoinConflict]
    chosen: dict[str, str]
    """How each of them was decided, by its id."""
    commit: str = ""
    """The merged files, once they are."""
    asked: Sequence[Open] = ()
    """Questions to a person, instead of the join."""

    @property
    def open(self) -> list[JoinConflict]:
        """Conflicts that are not decided: nothing was joined."""
        return [each for each in self.conflicts if each.id not in self.chosen]

    @property
    def undo(self) -> str:
        """The point in time to roll back to, to undo it."""
        return f"@{self.before}"


class RunJoins:
    """Joins runs."""

    def __init__(self, journal: Journal, clock: Clock, runs: RunReader, attempts: Attempts) -> None:
        self._journal = journal
        self._clock = clock
        self._runs = runs
        self._attempts = attempts

    async def join(self, id: str, other: str, *, policy: str = "", dry_run: bool = False) -> JoinPlan:
        """Merge what another run of the same origin has done into a run. Where both changed the same thing, `policy`
        (ours, theirs or newest) decides. Conflicts that it does not decide become questions (`open`), and nothing is
        joined.

        Example::

            await m.travel.fork("r-1", into="r-2")
            print((await m.travel.join("r-1", "r-2", policy="ours")).added)
        """
        ours, theirs = await self._runs.get(id), await self._runs.get(other)
        if dry_run:
            return (await self._union(ours, theirs, policy))[0]
        await consent.check(self._journal, theirs.id)  # what it would do, ours would
        for each in (ours, theirs):
            await relocation.restore(self._journal, self._clock, self._attempts, each)
        done = await self._join(ours, theirs, policy)
        return done._replace(asked=await self._ask(done, theirs)) if done.open else done

    # --- inside ----------------------------------------------------------------------------------------------

    async def _join(self, known: Run, theirs: Run, policy: str) -> JoinPlan:
        """Join, unless there are conflicts that are not decided."""
        async with own_run(self._journal, self._clock, known) as recorder:
            ours = recorder.fold
            union, found = await self._union(ours, theirs, policy)
            if union.open:
                return union
            last = ours.branches[-1] if ours.branches else None
            if last and last.joined == (theirs.id, theirs.version) and last.version == ours.version:
                before = await position_before(self._journal, ours)
                return union._replace(before=before, commit=ours.commit)  # it was done before
            await self._attempts.end_all(ours.id, GRACE_S)
            await keep_merged(ours, self._attempts.folder)
            prefer = union.chosen.get(FILES, "")
            found.content.commit, place = await self._merged(ours, theirs, prefer)
            if place is not None:
                found.content.options["workspace"] = place
            at_us, handled = self._clock.now_us(), await self._journal.version(inbox(ours.id))
            event = RunJoined(
                to=ours.version,
                position=await self._journal.head(),
                branch=ours.branch + 1,
                other={"run": theirs.id, "version": theirs.version, "digest": digest(theirs)},
                base={"run": union.base.run, "version": union.base.version},
                chosen=dict(union.chosen),
                state=found.content.data,
                inbox_version=handled,
                by=self._journal.by,
                at_us=at_us,
            )
            crash_point("travel: joined files")
            unhandled = self._journal.read(inbox(ours.id), after=ours.inbox_cursor, until=handled)
            commands = [each for each in await branches.sent_again(unhandled, {}) if not _is_of_join(each)]
            commands += [replace(each, at_us=at_us) for each in found.answers]
            await recorder.append(event, also=[Append(inbox(ours.id), commands)] if commands else [])
            return union._replace(before=await position_before(self._journal, ours), commit=ours.commit)

    async def _ask(self, union: JoinPlan, theirs: Run) -> list[Open]:
        """Ask a person about the conflicts that are not decided; repeated, they are asked once.

        The questions are recorded in the run itself, also one that has ended: so it is among those that are open.
        """
        async with own_run(self._journal, self._clock, await self._runs.get(union.run)) as recorder:
            run = recorder.fold
            known = (await questions.pending_of(self._journal, run)).questions
            asked = [
                QuestionAsked(
                    id=f"{_prefix(theirs)}{each.id}",
                    question=f"Joining {union.other} to {union.run}: {_told(each)} Which one should be used?",
                    choices=[OURS, THEIRS],
                    context=f"{OURS} ({union.run}): {each.ours}\n{THEIRS} ({union.other}): {each.theirs}",
                    asked_by=[],
                    at_us=self._clock.now_us(),
                )
                for each in union.open
            ]
            if new := [each for each in asked if each.id not in known]:
                await recorder.append(*new)
            waiting = questions.of_run(run, await questions.pending_of(self._journal, run))
        return [each for each in waiting if each.id.startswith(_prefix(theirs))]

    async def _union(self, ours: Run, theirs: Run, policy: str) -> tuple[JoinPlan, Joined]:
        for each in (ours, theirs):
            check_places(each)
        base = await self._parted(ours, theirs)
        runs = {**await lineage(self._journal, ours), **await lineage(self._journal, theirs)}
        point = await points_in_time.at_version(self._journal, runs[base.run], base.version)
        then = await points_in_time.run_at(self._journal, point)
        answers = (await questions.pending_of(self._journal, ours)).questions

        def choose(conflict: JoinConflict) -> str:
            asked = answers.get(f"{_prefix(theirs)}{conflict.id}")
            return policy or (asked.answer or "" if asked is not None else "")

        files = await self._files_in_conflict(ours, theirs)
        found = join(then, ours, theirs, files=files, branch=ours.branch + 1, choose=choose)
        before = await self._journal.head()
        plan = JoinPlan(ours.id, theirs.id, base, before, found.taken, found.added, found.conflicts, found.chosen)
        return plan, found

    async def _parted(self, ours: Run, theirs: Run) -> BranchPoint:
        if ours.id == theirs.id:
            raise InvalidInput(f"{ours.id} cannot be joined with itself", hint="name a fork of it, or where it is from")
        runs = [await lineage(self._journal, run) for run in (ours, theirs)]
        lines = [line_of(known, run.id, run.version) for known, run in zip(runs, (ours, theirs), strict=True)]
        found = parted(*lines)
        missing = [run.origin["run"] for known in runs for run in known.values()
                   if run.origin and run.origin["run"] not in known]  # fmt: skip
        if found is None and missing:
            raise NotFound(f"they come from {missing[0]}, which is not here", hint="import it too, and join them then")
        if found is None:
            hint = "only a run and its forks, or two forks of one run, can be joined"
            raise InvalidInput(f"{ours.id} and {theirs.id} have nothing in common", hint=hint)
        return found

    async def _files_in_conflict(self, ours: Run, theirs: Run) -> JoinConflict | None:
        workspace = points_in_time.workspace_of(theirs, self._attempts.folder)
        if workspace is None or not theirs.commit:
            return None
        onto = ours.commit or str(workspace.base)
        files = await workspaces.preview(workspace, theirs.commit, onto=onto)
        if not files:
            return None
        return JoinConflict(FILES, "", ", ".join(files), ", ".join(files), _last_us(ours), _last_us(theirs), files)

    async def _merged(self, ours: Run, theirs: Run, side: str) -> tuple[str, WorkspaceData | None]:
        """The merged files of both, in a worktree of their own."""
        own, others = (points_in_time.workspace_of(each, self._attempts.folder) for each in (ours, theirs))
        if own is None:
            return ours.commit, None
        name = f"{ours.id}-b{ours.branch + 1}"
        folder = Path(ours.folder)
        into = await branches.fresh(self._attempts, name, folder, base=own.base, at=ours.commit or own.base)
        crash_point("travel: merged files")
        if not theirs.commit or others is None:
            return ours.commit, into.to_data()
        done = await workspaces.merge(
            others,
            theirs.commit,
            into=into.path,
            message=f"Join {theirs.id}",
            prefer={OURS: workspaces.OTHERS, THEIRS: workspaces.OWN}.get(side, ""),
        )
        if not isinstance(done, workspaces.Merged):
            raise Corrupt(f"the files of {theirs.id} could not be merged: {done.files}", hint="join them again")
        return done.commit, into.to_data()


def _is_of_join(command: EventBase) -> bool:
    """Whether a command asks how runs are to be joined, or answers that."""
    return isinstance(command, QuestionAsked | QuestionAnswered) and command.id.startswith(JOIN)


def _prefix(theirs: Run) -> str:
    return f"{JOIN}{theirs.id}@{theirs.version}/"


def _last_us(run: Run) -> int:
    return max((task.ended_us for task in run.tasks.values()), default=0)


def _told(conflict: JoinConflict) -> str:
    if conflict.kind == FILES:
        return f"both changed {conflict.ours}."
    if conflict.kind == "question":
        return f"the question {conflict.name} was answered with {conflict.ours!r} and {conflict.theirs!r}."
    if conflict.kind == "plan":
        return f"both have planned a task {conflict.name}, and not the same."
    return f"both have done {conflict.name}, with different results."
