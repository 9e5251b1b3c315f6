"""What comes of runs: what their tasks found and changed, merged into a branch or described for a pull request; what
resuming one would do; runs as they were at a point in time; and what people said about them."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from maos import workspaces as workspaces
from maos.bus import history as message_history
from maos.bus.history import Filter, SentMessage
from maos.clock import Clock
from maos.engine import ownership, questions
from maos.engine.attempts import Attempts
from maos.engine.streams import RUN, check_version
from maos.errors import InvalidInput, MaosError
from maos.journal.journal import Journal, Record
from maos.model.attempt import Attempt
from maos.model.events.attempt import OpenTool
from maos.model.events.records import ChatSaid
from maos.model.failure import ENDED_BY_ITSELF, REPEATABLE
from maos.model.message import inbox
from maos.model.notice import RunNotice
from maos.model.notice import stream as notice_stream
from maos.model.question import grouped
from maos.model.run import Run, TaskState, chat_stream, stream
from maos.model.run_status import pending_commands, status_of
from maos.model.status import NoticeStatus, TaskStatus
from maos.runs import decisions, merges, notify, pull_request
from maos.runs.feed import at_work
from maos.runs.pull_request import PullRequest
from maos.runs.status import RunView, RunViews, is_executing
from maos.travel import points_in_time
from maos.travel.points_in_time import PointInTime
from maos.tuples import NamedTuple
from maos.workspaces import Blocked as Blocked
from maos.workspaces import Conflicted as Conflicted
from maos.workspaces import FileChange as FileChange
from maos.workspaces import Merged as Merged

BEING_SENT = "being sent"


class RunSummary(NamedTuple):
    """What the tasks of a run have found and changed."""

    run: Run
    discoveries: Sequence[dict[str, Any]]
    """With the task that made each."""
    files: list[FileChange] | None
    """What its tasks changed together; None when its files are not kept apart."""
    unmerged: Sequence[UnmergedFiles] = ()
    """What tasks that failed have changed in worktrees of their own."""


class UnmergedFiles(NamedTuple):
    """What the agent of a task has changed in its worktree, and was not merged."""

    task: str
    tree: str
    files: list[FileChange]


class TaskFiles(NamedTuple):
    """What the work of a task changed when it was merged with that of the others."""

    task: str
    """Empty for the work of a run that was joined."""
    subject: str
    commit: str
    files: list[FileChange]
    patch: str | None


class Next(NamedTuple):
    """What resuming a run means for one of its tasks."""

    task: str
    what: str
    """kept: it is done and is not run again · taken_up: its agent still works · recorded: its agent has ended, and only
    that must be recorded · resumed: it continues · checked: its gates are next · begun: it has not begun."""
    agent: str
    words: str = ""
    """What its agent is told, word for word."""
    unknown: Sequence[OpenTool] = ()
    """Tools of which it is unknown whether they took effect (I31)."""
    why: str = ""


class NoticeInfo(NamedTuple):
    """A notification about a run."""

    run: str
    id: str
    what: str
    title: str
    addresses: dict[str, str]
    """What came of it, by address."""
    why: dict[str, str]
    time_us: int

    @classmethod
    def of(cls, run: Run, notice: RunNotice) -> NoticeInfo:
        """A notice about a run; one without an outcome is being sent, or its engine has exited."""
        pending = BEING_SENT if is_executing(run) else NoticeStatus.UNKNOWN
        told = notice.planned
        statuses = {each: str(notice.statuses.get(each, pending)) for each in told.addresses}
        return cls(run.id, told.id, told.what, told.title, statuses, notice.why, told.at_us)


class Conversations:
    """The conversations about runs, by the ids of the runs."""

    def __init__(self, journal: Journal, clock: Clock) -> None:
        self._journal = journal
        self._clock = clock

    async def record(self, id: str, text: str, **more: Any) -> None:
        """Keep what a person said."""
        self._journal.principal.check_may_decide(f"speak for a person in the conversation about {id}")
        said = ChatSaid(text=text, by=self._journal.by, at_us=self._clock.now_us(), **more)
        await self._journal.append(chat_stream(id), said)

    async def read(self, id: str) -> list[Record | SentMessage]:
        """Return what a person said, what happened to the run, and its messages, in the order of the journal."""
        found: list[Record | SentMessage] = [each async for each in message_history.read(self._journal, id, Filter())]
        for name in (chat_stream(id), stream(id)):
            found += [record async for record in self._journal.read(name)]
        return sorted(found, key=lambda each: each.position)


class RunResults(RunViews):
    """Runs, for front ends that show what came of them."""

    _attempts: Attempts

    def __init__(self, journal: Journal, clock: Clock, attempts: Attempts) -> None:
        super().__init__(journal, clock, attempts, lambda: attempts.settings.values.recovery.lookback_days)
        self.conversations = Conversations(journal, clock)
        """What people said in conversations about runs."""

    async def status_at(self, moment: PointInTime) -> tuple[RunView, list[SentMessage]]:
        """A run as it was at a point in time, with the messages of its agents until then."""
        then = await points_in_time.run_at(self._journal, moment)
        attempts = await at_work(self._attempts, then, moment.position)
        waiting = self._journal.read(inbox(then.id), after=then.inbox_cursor)
        known = pending_commands(then, [each.event async for each in waiting if each.position <= moment.position])
        asked = questions.of_run(then, known)
        for each in attempts.values():
            asked += questions.of_attempt(each)
        asked = grouped(asked)
        said = [each for each in await self.messages(then.id) if each.position <= moment.position]
        now = status_of(then, attempts, known, lives=True, now_us=moment.time_us)
        return RunView(then, attempts, known, asked, now, len(said), moment.time_us), said

    async def attempts_at(self, view: RunView, position: int, tasks: Iterable[str]) -> dict[str, Attempt]:
        """The newest attempt at each of some tasks of a run as it was, by task; without those that had not begun. They
        are shared with other readers, and must not be changed."""
        found: dict[str, Attempt] = {}
        for name in tasks:
            task, agent = view.run.tasks[name], view.run.agent(name)
            attempt = view.attempts.get(agent)
            if attempt is None and task.attempts:
                newest = await self._attempts.view(agent)
                # Of a task that had ended, the attempt has not changed since, unless a later one was begun.
                has_ended = task.status in (TaskStatus.DONE, TaskStatus.FAILED)
                is_same = newest is not None and has_ended and newest.planned_us <= task.ended_us
                attempt = newest if is_same else await self._attempts.at(agent, position)
            if attempt is not None:
                found[name] = attempt
        return found

    # --- what comes of them ----------------------------------------------------------------------------------

    async def preview(self, run: Run) -> list[Next]:
        """What resuming a run would do, task by task."""
        return [await _next(self._attempts, run, task) for task in run.tasks.values()]

    async def attempts_of(self, run: Run) -> list[Attempt]:
        """All attempts of the agents of a run, by task, the oldest first."""
        found: list[Attempt] = []
        for task in run.tasks.values():
            if task.attempts and await self._attempts.newest(run.agent(task.name)):
                found += await self._attempts.history(run.agent(task.name))
        return found

    async def summary(self, run: Run) -> RunSummary:
        """What the tasks of a run have found and changed so far."""
        failed = [task for task in run.tasks.values() if task.status == TaskStatus.FAILED]
        unmerged = [left for task in failed if (left := await self._left(run, task)).files]
        return RunSummary(run, await self.discoveries(run), await self.files(run), unmerged)

    async def files(self, run: Run) -> list[FileChange] | None:
        """Which files the merged work of a run changes, as of the run that is given; None when that is not known here,
        or its agents work in its folder itself.

        Example::

            then = await m.travel.at("r-1", 2)
            print(await m.runs.files(then))
        """
        return await _files(run, self._attempts.folder)

    async def discoveries(self, run: Run) -> Sequence[dict[str, Any]]:
        """What the agents of a run have found so far, each with its task."""
        found = await self._attempts.discoveries(run)
        return [{**each.data, "task": task.name} for task, each in found]

    async def _left(self, run: Run, task: TaskState) -> UnmergedFiles:
        """What the agent of a task has changed in its worktree; nothing when that is not known here."""
        attempt = await self._attempts.newest(run.agent(task.name))
        if attempt is None or not attempt.workspace or not attempt.saved:
            return UnmergedFiles(task.name, "", [])
        try:
            workspace = workspaces.Workspace.located(attempt.workspace, self._attempts.folder)
            if workspace.in_place or workspace.base is None:
                return UnmergedFiles(task.name, "", [])
            files = await workspaces.diff(workspace, workspace.base, attempt.saved)
        except (MaosError, OSError):
            files = []  # it is on another machine, or was removed; the rest is worth showing all the same
        return UnmergedFiles(task.name, str(attempt.workspace["tree"]), files)

    async def merge(
        self,
        id: str,
        *,
        into: str | Path = "",
        branch: str = "",
        squash: bool = False,
        message: str = "",
        dry_run: bool = False,
        expected: int | None = None,
    ) -> Merged | Conflicted | Blocked:
        """Merge what the tasks of a run have done: all of it, or nothing.

        It becomes one commit for each task, or with `squash` or a `message` one commit, on the branch that is checked
        out in the folder `into` (that of the run if not given), or on another `branch`; one that does not exist is
        created where the run began. With `dry_run` nothing is changed, and the result says what would be. With
        `expected`, only the work of that version is merged; Conflict when the run was at another when it was read.

        Example::

            done = await m.runs.merge("r-1", branch="new-parser", dry_run=True)
            print(done)
        """
        run = await self.get(id)
        check_version(run, expected)
        self._journal.principal.check_may_decide(f"merge {run.id}")
        if is_executing(run) and not dry_run:
            hint = f"wait, or `maos pause {run.id}`"
            raise InvalidInput(f"{run.id} is being executed", hint=hint)
        own = self._own_workspace(run)
        landed = await workspaces.landed(own, run.commit)
        parts = [merges.whole(run, message, landed)]
        if not (squash or message.strip()) and landed:
            parts = merges.parts(run, landed, await self._newest_attempts(run))
        return await workspaces.merge(
            own, run.commit, into=Path(into or run.folder), parts=parts, branch=branch, as_user=True, dry_run=dry_run
        )

    async def task_files(self, id: str, *, patch: bool = False) -> list[TaskFiles]:
        """Which files each task of a run changed, in the order in which their work was merged.

        Example::

            for each in await m.runs.task_files("r-1"):
                print(each.task, [file.path for file in each.files])
        """
        run = await self.get(id)
        own = self._own_workspace(run)
        found, before = [], str(own.base)
        for each in await workspaces.landed(own, run.commit):
            changed = await workspaces.diff(own, before, each.commit)
            lines = await workspaces.patch(own, before, each.commit) if patch else None
            found.append(TaskFiles(each.task, each.subject, each.commit, changed, lines))
            before = each.commit
        return found

    async def pull_request(self, id: str) -> PullRequest:
        """The text of a pull request for the work of a run: its title, and Markdown.

        Example::

            print((await m.runs.pull_request("r-1")).body)
        """
        run = await self.get(id)
        base = str((run.options.get("workspace") or {}).get("base") or "")
        found = await self.summary(run)
        return pull_request.describe(run, found.files or (), await self._newest_attempts(run), base=base)

    async def _newest_attempts(self, run: Run) -> dict[str, Attempt]:
        """The newest attempt at each task of a run that was begun."""
        found = {name: await self._attempts.newest(run.agent(name)) for name in run.tasks}
        return {name: each for name, each in found.items() if each is not None}

    def _own_workspace(self, run: Run) -> workspaces.Workspace:
        """Where the work of a run's tasks is merged; InvalidInput when nothing is."""
        own = points_in_time.workspace_of(run, self._attempts.folder)
        if own is None:
            raise InvalidInput(f"the agents of {run.id} work in {run.folder} itself", hint="what they do is there")
        if not run.commit:
            raise InvalidInput(f"no task of {run.id} has changed a file", hint=f"`maos resume {run.id}` resumes it")
        return own

    async def notices(self) -> list[NoticeInfo]:
        """Notifications about runs, and their outcomes, the oldest first.

        Example::

            print([(each.title, each.addresses) for each in await m.runs.notices()])
        """
        found: list[NoticeInfo] = []
        async for name in self._journal.streams(notice_stream("")):
            run = await RUN.view(self._journal, name.removeprefix(notice_stream("")))
            if run is not None and not run.removed_us:
                known = await notify.load(self._journal, run.id)
                found += [NoticeInfo.of(run, each) for each in known.by_id.values()]
        return sorted(found, key=lambda each: each.time_us)


async def _files(run: Run, home: Path) -> list[FileChange] | None:
    try:
        workspace = points_in_time.workspace_of(run, home)
        if workspace is None:
            return None
        if not run.commit or workspace.base is None:
            return []
        return await workspaces.diff(workspace, workspace.base, run.commit)
    except (MaosError, OSError):
        return None  # it is on another machine, or was moved; the rest is worth showing all the same


async def _next(attempts: Attempts, run: Run, task: TaskState) -> Next:
    agent = run.agent(task.name)
    if task.status.is_done:
        return Next(task.name, "kept", agent)
    if task.status == TaskStatus.GATED:
        return Next(task.name, "checked", agent)
    attempt = await attempts.newest(agent)
    if attempt is None:
        return Next(task.name, "begun", agent, str(task.plan.get("task", "")))
    unknown = list(attempt.known.unknown.values())
    if attempt.kind in REPEATABLE:  # the command is as if it were the one tool of its agent
        unknown = [OpenTool(attempt.kind, {"command": shlex.join(map(str, attempt.order.get("argv") or ()))})]
    if task.status == TaskStatus.RUNNING and attempt.number == task.attempts:
        if attempt.is_open and ownership.is_held(attempt):
            return Next(task.name, "taken_up", agent, why=attempt.activity)
        if not attempt.is_open and not attempt.failure:
            return Next(task.name, "recorded", agent)
    if attempt.kind in REPEATABLE and not attempt.is_open and attempt.failure in ENDED_BY_ITSELF:
        unknown = []
    instead = decisions.told_instead(task, attempt.number)
    then = "" if instead else decisions.told_on_retry(run, task)
    words = await attempts.words_on_resume(agent, then, instead=instead)
    why = task.why or attempt.message or ("its agent has exited" if attempt.is_open else "")
    return Next(task.name, "resumed", agent, words, unknown, why)
