"""Runs as they are now, or were: what the journal says of them, and whether the processes that it names are alive."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from maos import workspaces as workspaces
from maos.bus import history as message_history
from maos.bus.history import Filter, SentMessage
from maos.clock import MICROSECONDS, Clock
from maos.engine import ownership, questions
from maos.engine.attempts import Attempts
from maos.engine.streams import RunReader, permanent, statistics
from maos.errors import InvalidInput, MaosError, NotFound
from maos.journal.journal import Journal, Record
from maos.model.attempt import Attempt, OpenTool
from maos.model.cleanup import Statistics
from maos.model.events.records import ChatSaid
from maos.model.failure import ENDED_BY_ITSELF, REPEATABLE
from maos.model.message import history, inbox
from maos.model.notice import RunNotice
from maos.model.question import Open
from maos.model.run import Run, TaskState, chat_stream, stream
from maos.model.run_status import PendingCommands, SupervisorStatus, pending_commands, status_of
from maos.model.status import NoticeStatus, RunStatus, SupervisorState, TaskStatus
from maos.redact import without_secrets
from maos.runs import notify
from maos.runs.feed import RunFeed, at_work
from maos.travel import points_in_time
from maos.travel.points_in_time import PointInTime
from maos.workspaces import Blocked as Blocked
from maos.workspaces import Conflicted as Conflicted
from maos.workspaces import FileChange as FileChange
from maos.workspaces import Merged as Merged

RESUMABLE = ("interrupted", "idle", "failed", "blocked", "cancelled")
"""States of runs that `maos resume` resumes."""
DAY_US = 86_400 * MICROSECONDS
BEING_SENT = "being sent"


def is_executing(run: Run) -> bool:
    """Whether an engine that is alive, as far as this machine can tell, executes a run."""
    return run.is_going and not ownership.liveness(run.owner).has_ended


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
    def resumable(self) -> str:
        """The command that resumes it; empty when it is completed, or is executed."""
        return f"maos resume {self.run.id}" if self.now.state in RESUMABLE else ""

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


class RunSummary(NamedTuple):
    """What the tasks of a run have found and changed."""

    run: Run
    discoveries: list[dict[str, Any]]
    """With the task that made each."""
    files: list[FileChange] | None
    """What its tasks changed together; None when its files are not kept apart."""


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


class Unplanned(NamedTuple):
    """A conversation about a request of which there is no run."""

    id: str
    request: str
    at_us: int


class Conversations:
    """The conversations about runs, by the ids of the runs."""

    def __init__(self, journal: Journal, clock: Clock) -> None:
        self._journal = journal
        self._clock = clock

    async def record(self, id: str, text: str, **more: Any) -> None:
        """Keep what a person said, without keys and passwords that were pasted."""
        said = ChatSaid(text=without_secrets(text, {}), at_us=self._clock.now_us(), **more)
        await self._journal.append(chat_stream(id), said)

    async def read(self, id: str) -> list[Record | SentMessage]:
        """Return what a person said, what happened to the run, and its messages, in the order of the journal."""
        found: list[Record | SentMessage] = [each async for each in message_history.read(self._journal, id, Filter())]
        for name in (chat_stream(id), stream(id)):
            found += [record async for record in self._journal.read(name)]
        return sorted(found, key=lambda each: each.position)

    async def unplanned(self, beginning: str = "") -> Unplanned | None:
        """The newest conversation without a run whose id begins like this; not one whose plan was refused."""
        newest: Unplanned | None = None
        async for name in self._journal.streams(chat_stream(beginning)):
            id = name.removeprefix(chat_stream(""))
            if await self._journal.version(stream(id)):
                continue
            request, at_us, refused = "", 0, False
            async for record in self._journal.read(name):
                request = record.data.get("request", request)
                refused = record.data.get("refused", False)
                at_us = record.data["at_us"]
            if request and not refused and (newest is None or at_us > newest.at_us):
                newest = Unplanned(id, request, at_us)
        return newest


class RunViews(RunReader):
    """Runs, for front ends that show them."""

    def __init__(self, journal: Journal, clock: Clock, attempts: Attempts) -> None:
        super().__init__(journal)
        self._clock = clock
        self._attempts = attempts
        self.conversations = Conversations(journal, clock)
        """What people said in conversations about runs."""

    # --- finding ---------------------------------------------------------------------------------------------

    async def unfinished(self) -> list[Run]:
        """Runs with something left to do, the newest first."""
        found = [run async for run in self.all() if run.status != RunStatus.COMPLETED]
        return sorted(found, key=lambda run: run.updated_us, reverse=True)

    async def latest(self) -> Run:
        """The run that a person most likely wants to resume: the newest that no engine executes."""
        found = await self.unfinished()
        if not found:
            raise NotFound("there is no run to resume", hint="`maos ps --all` lists runs")
        return next((run for run in found if not is_executing(run)), found[0])

    async def newest(self) -> Run:
        """The run that something happened to last."""
        found = [run async for run in self.all()]
        if not found:
            raise NotFound("there are no runs", hint="`maos run` starts one")
        return max(found, key=lambda run: run.updated_us)

    async def interrupted(self) -> list[Run]:
        """Runs whose engine has exited, the newest first, as far back as `recovery.lookback_days` of the settings."""
        since_us = self.lookback_us()
        return [run for run in await self.unfinished() if is_interrupted(run) and run.updated_us >= since_us]

    def lookback_us(self) -> int:
        """Interrupted runs to which nothing has happened since then are not named (R-1009)."""
        days = self._attempts.settings.values.recovery.lookback_days
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
        at_us = self._clock.now_us()
        lives = not (run.is_open and ownership.liveness(run.owner).has_ended)
        now = status_of(run, attempts, waiting, lives=lives, now_us=at_us)
        messages = await self._journal.version(history(run.id))
        pinned = (await permanent(self._journal)).get(run.id)
        return RunView(run, attempts, waiting, asked, now, messages, at_us, pinned)

    async def status_at(self, moment: PointInTime) -> tuple[RunView, list[SentMessage]]:
        """A run as it was at a point in time, with the messages of its agents until then."""
        then = await points_in_time.run_at(self._journal, moment)
        attempts = await at_work(self._attempts, then, moment.position)
        waiting = self._journal.read(inbox(then.id), after=then.inbox_cursor)
        known = pending_commands(then, [each.event async for each in waiting if each.position <= moment.position])
        asked = questions.of_run(then, known)
        for each in attempts.values():
            asked += questions.of_attempt(each)
        said = [each for each in await self.messages(then.id) if each.position <= moment.position]
        now = status_of(then, attempts, known, lives=True, now_us=moment.time_us)
        return RunView(then, attempts, known, asked, now, len(said), moment.time_us), said

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
        tasks = {run.agent(name): name for name in run.tasks}
        discoveries = [
            {**each.data, "task": tasks[attempt.agent]}
            for attempt in await self.attempts_of(run)
            for each in attempt.discoveries
        ]
        return RunSummary(run, discoveries, await _files(run, self._attempts.folder))

    async def merge(self, run: Run, *, into: Path, message: str) -> Merged | Conflicted | Blocked:
        """Merge what the tasks of a run have done into the branch of a folder, as one commit."""
        if is_executing(run):
            hint = f"wait, or `maos pause {run.id}`"
            raise InvalidInput(f"{run.id} is being executed", hint=hint)
        own = points_in_time.workspace_of(run, self._attempts.folder)
        if own is None:
            raise InvalidInput(f"the agents of {run.id} work in {run.folder} itself", hint="what they do is there")
        if not run.commit:
            raise InvalidInput(f"no task of {run.id} has changed a file", hint=f"`maos resume {run.id}` resumes it")
        return await workspaces.merge(own, run.commit, into=into, message=message)

    async def notices(self) -> list[NoticeInfo]:
        """Notifications about runs, and their outcomes, the oldest first.

        Example::

            print([(each.title, each.addresses) for each in await m.runs.notices()])
        """
        runs = [run async for run in self.all()]
        known = [(run, (await notify.load(self._journal, run.id)).by_id.values()) for run in runs]
        found = [NoticeInfo.of(run, each) for run, notices in known for each in notices]
        return sorted(found, key=lambda each: each.time_us)

    async def cleaned_up(self) -> Statistics:
        """What cleanups have removed so far."""
        return await statistics(self._journal)

    async def list(self) -> list[RunView]:
        """All runs, those that have not ended first, and then the newest first.

        Example::

            print([each.run.id for each in await m.runs.list()])
        """
        found = [await self.status_of(run) async for run in self.all()]
        return sorted(found, key=lambda each: (not each.run.is_open, -each.run.created_us))


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
    unknown = list(attempt.tools_open.values())
    if attempt.kind in REPEATABLE:  # the command is as if it were the one tool of its agent
        unknown = [OpenTool(attempt.kind, {"command": shlex.join(map(str, attempt.order.get("argv") or ()))})]
    if task.status == TaskStatus.RUNNING and attempt.number == task.attempts:
        if attempt.is_open and ownership.is_held(attempt):
            return Next(task.name, "taken_up", agent, why=attempt.activity)
        if not attempt.is_open and not attempt.failure:
            return Next(task.name, "recorded", agent)
    if attempt.kind in REPEATABLE and not attempt.is_open and attempt.failure in ENDED_BY_ITSELF:
        unknown = []
    words = await attempts.words_on_resume(agent)
    why = task.why or attempt.message or ("its agent has exited" if attempt.is_open else "")
    return Next(task.name, "resumed", agent, words, unknown, why)
