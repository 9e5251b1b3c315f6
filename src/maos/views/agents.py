"""Agents as front ends show and steer them: status with liveness, output, files, and commands to them.

`Agents` is what `Maos.agents` gives: the engine's `Attempts`, and what people and programs ask about agents besides.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any, Unpack

import msgspec

from maos import workspaces as workspaces
from maos.engine import ownership as owners
from maos.engine.attempt_spec import ResumeOptions
from maos.engine.attempts import Attempts
from maos.engine.live import LiveAttempt
from maos.engine.ownership import Held
from maos.errors import InvalidInput, MaosError, NotFound
from maos.ids import AGENT
from maos.journal.journal import Record
from maos.model.agent import stream as state_stream
from maos.model.attempt import Attempt, agent_of, attempt_id, stream
from maos.model.events.attempt import AttemptOutput
from maos.model.events.commands import GRACE_S
from maos.model.events.facts import Discovery, InputReceived
from maos.model.events.parts import Owner
from maos.model.message import inbox
from maos.model.read_models import AgentStatus
from maos.tuples import NamedTuple
from maos.views.agent_status import AgentStatuses, status_of
from maos.views.ids import Ids
from maos.workspaces import Blocked, Conflicted, FileChange, Merged, Workspace

LOOK_EVERY_S = 1.0
MESSAGE_CHARS_MAX = 70
PART_EVENTS = 16
"""How many events of a window are read at once while their facts are counted."""
UNATTENDED = "unattended"
"""The type of an `AgentEvent` that is not recorded: the engine that records the agent has exited."""


class AgentDetails(NamedTuple):
    """Everything that is known of an agent."""

    now: AgentStatus
    attempts: list[Attempt]
    """All of them, the oldest first."""
    files: list[FileChange] | None
    """What it changed up to its last checkpoint; None when its files are not kept, or not within reach."""
    discoveries: list[Discovery]
    """What it has found in all its attempts."""
    state_version: int
    """The version that its state is at; 0 when it has none."""

    @property
    def newest(self) -> Attempt:
        """Its newest attempt."""
        return self.attempts[-1]


class RecordedOutput(Mapping[str, Any]):
    """What an agent printed, as plain data that is decoded when it is looked at."""

    def __init__(self, record: Record) -> None:
        self._record = record

    @property
    def json(self) -> bytes:
        """All of it as JSON."""
        return self._record.json

    def __getitem__(self, name: str) -> Any:
        return self._record.data[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._record.data)

    def __len__(self) -> int:
        return len(self._record.data)


class AgentEvent(NamedTuple):
    """One event of an agent's attempt, with what a reader needs to show it."""

    id: str
    agent: str
    attempt: int
    type: str
    data: Mapping[str, Any]
    at_us: int
    """When it happened."""
    time_us: int
    """When it was recorded."""
    messages: Mapping[int, str] = {}
    """The messages that the agent got with it, by their versions in its inbox."""


class OutputWindow(NamedTuple):
    """Some events of one attempt."""

    attempt: int
    attempts: int
    """How many the agent has."""
    events: list[tuple[int, AgentEvent]]
    """Each with its version in the attempt."""
    newest: int
    """The version that the attempt is at."""


class Attachment(NamedTuple):
    """An agent to follow: one that this process runs now, or that another one runs."""

    agent: str
    attempt: str
    after: int
    """The version of the attempt after which everything is new to the reader."""
    running: LiveAttempt | None
    """None while another process runs it."""
    owner: Owner | None = None
    """The process that runs it, if that is another one."""
    held: str = ""
    """Why it could not be attached to."""


class AgentFiles(NamedTuple):
    """What an agent changed, up to its last checkpoint."""

    agent: str
    files: list[FileChange]
    patch: str | None


class Agents(Attempts, AgentStatuses):
    """Runs agents, and knows, follows and steers all that run or ran, whichever process runs them."""

    async def find(self, given: str) -> str:
        """Return the name of the agent that is called `given` or alone begins so, or that does the task RUN/TASK."""
        return (await Ids(self.journal).find(given, AGENT)).id

    async def details(self, agent: str) -> AgentDetails:
        """Everything that is known of an agent."""
        attempts = await self.history(agent)
        files, now = await _files(attempts[-1], self.folder), status_of(attempts, self._clock.now_us())
        if now.failure is not None and now.failure.name == "login_expired" and (login := self.login(now.kind)):
            now.failure = msgspec.structs.replace(now.failure, hint=f"{login}, then `maos agent resume`")
        version = await self.journal.version(state_stream(agent))
        return AgentDetails(now, attempts, files, await self.discoveries_of(agent), version)

    # --- output ----------------------------------------------------------------------------------------------

    async def output(
        self, agent: str, *, attempt: int | None = None, follow: bool = False
    ) -> AsyncIterator[AgentEvent]:
        """The events of all attempts of an agent, or of one; with `follow`, until the attempt that is open has ended.

        Example::

            async for event in m.agents.output("fixer", follow=True):
                print(event.type, event.data)
        """
        attempts = await self.history(agent)
        chosen = [each for each in attempts if attempt in (None, each.number)]
        if not chosen:
            raise NotFound(f"agent {agent!r} has no attempt {attempt}", hint=f"its attempts are 1 to {len(attempts)}")
        for each in chosen:
            if follow and each.is_open:
                async for event in self.follow(each.id):
                    yield event
            else:
                async for record in self.journal.read(stream(each.id)):
                    yield await self._event(record)

    async def window(
        self,
        agent: str,
        *,
        attempt: int = 0,
        after: int | None = None,
        before: int | None = None,
        limit: int = 200,
        facts_max: int = 0,
    ) -> OutputWindow:
        """Some events of one attempt of an agent, in order: after a version, or before one; by default the newest.

        With `facts_max`, a smaller window with about so many facts: at least one event, however large it is.

        Example::

            window = await m.agents.window("fixer", limit=50)
            print(window.newest, [event.type for _version, event in window.events])
        """
        newest = await self.get(agent)
        number = attempt or newest.number
        if number > newest.number:
            raise NotFound(f"agent {agent!r} has no attempt {number}", hint=f"its attempts are 1 to {newest.number}")
        name = stream(attempt_id(agent, number))
        records: list[Record] = []
        facts, is_more = 0, True
        while is_more and len(records) < limit:
            size = min(limit - len(records), PART_EVENTS if facts_max else limit)
            if after is not None:
                part = await self.journal.page(name, after=records[-1].version if records else after, limit=size)
            else:
                part = await self.journal.page_back(name, before=records[-1].version if records else before, limit=size)
            is_more = len(part) == size
            for each in part:
                if facts_max and facts > facts_max:
                    is_more = False
                    break
                records.append(each)
                facts += len(each.event.facts) if isinstance(each.event, AttemptOutput) else 0
        if after is None:
            records.reverse()
        events = [(record.version, await self._event(record, is_lazy=True)) for record in records]
        return OutputWindow(number, newest.number, events, await self.journal.version(name))

    async def follow(self, attempt: str, *, after: int = 0, owner: Owner | None = None) -> AsyncIterator[AgentEvent]:
        """The events of an attempt after a version as they are recorded, until it has ended.

        When the engine that records it has exited, one event of the type UNATTENDED says so: no more events come until
        another engine attaches.
        """
        records = self.journal.follow_stream(stream(attempt), after=after)
        owner = owner or {}
        coming = asyncio.ensure_future(anext(records))
        try:
            while True:
                await asyncio.wait([coming], timeout=LOOK_EVERY_S)
                if not coming.done():
                    if owner and owners.liveness(owner).has_ended:
                        owner = {}
                        agent, now_us = agent_of(attempt), self._clock.now_us()
                        status = await self.status(agent)
                        data = {"status": status.status, "resumable": status.resumable}
                        yield AgentEvent("", agent, _number(attempt), UNATTENDED, data, now_us, now_us)
                    continue
                record = coming.result()
                coming = asyncio.ensure_future(anext(records))
                owner = record.data["owner"] if record.type in ("attempt_planned", "attempt_claimed") else owner
                yield await self._event(record)
                if record.type == "attempt_ended":
                    return
        finally:
            coming.cancel()
            await asyncio.gather(coming, return_exceptions=True)

    async def _event(self, record: Record, *, is_lazy: bool = False) -> AgentEvent:
        id = record.stream.removeprefix(stream(""))
        agent = agent_of(id)
        messages = {}
        printed = record.event if isinstance(record.event, AttemptOutput) else None
        for fact in printed.facts if printed is not None else ():
            if isinstance(fact, InputReceived) and fact.id.startswith("inbox/"):
                version = int(fact.id.removeprefix("inbox/"))
                sent = await self.journal.event(inbox(agent), version)
                messages[version] = str(sent.data.get("text", "")) if sent else ""
        data = RecordedOutput(record) if printed is not None and is_lazy else record.data
        at_us = printed.at_us if printed is not None else record.data.get("at_us", record.time_us)
        event = f"{record.stream}@{record.version}"
        return AgentEvent(event, agent, _number(id), record.type, data, at_us, record.time_us, messages)

    # --- commands --------------------------------------------------------------------------------------------

    async def attach(self, agent: str) -> Attachment:
        """Attach to an agent that no engine records; while another engine does, follow it only."""
        before = await self.get(agent)
        if not before.is_open:
            raise InvalidInput(
                f"agent {agent!r} has ended: {before.status}",
                hint=f"`maos agent resume {agent}` resumes it, `maos agent logs {agent}` shows its output",
            )
        try:
            running = await self.adopt(agent)
        except Held as error:
            return Attachment(agent, before.id, before.version, None, before.owner, error.what)
        return Attachment(agent, before.id, before.version, running, {} if running else before.owner)

    async def resume_attached(self, agent: str, *, task: str = "", **options: Unpack[ResumeOptions]) -> Attachment:
        """Resume an agent, and return from where on its output is new. A command accepts no further `task`."""
        before = await self.get(agent)
        if task and before.kind == "shell":
            raise InvalidInput(
                f"agent {agent!r} is a command, and accepts no further task",
                hint=f"`maos agent resume {agent}` runs it again as it was",
            )
        running = await self.resume(agent, task=task, **options)
        after = before.version if running.attempt.id == before.id else 0
        return Attachment(agent, running.attempt.id, after, running)

    async def stop_and_wait(self, agent: str, *, grace_s: float = GRACE_S) -> tuple[bool, AgentStatus]:
        """Have an agent stopped by the engine that runs it, or by this one; whether it ran, and how it ended.

        Example::

            ran, status = await m.agents.stop_and_wait("fixer")
        """
        before = await self.get(agent)
        if before.is_open:
            await self.end(before, grace_s)
        return before.is_open, await self.status(agent)

    async def tell(self, agent: str, text: str, *, key: str | None = None) -> tuple[int, bool]:
        """Send a person's message to an agent that can read one; its number, and whether the agent runs.

        With a `key`, a repeated call sends nothing.

        Example::

            number, is_running = await m.agents.tell("fixer", "the tests are in tests/")
        """
        attempt = await self.get(agent)
        if attempt.kind == "shell" and not attempt.order.get("takes_input"):
            raise InvalidInput(
                f"agent {agent!r} is a command that was started without input",
                hint="start it with `maos agent run --input`",
            )
        return await self.send(agent, text, key=key), attempt.is_open

    # --- files -----------------------------------------------------------------------------------------------

    async def diff(self, agent: str, *, patch: bool = False) -> AgentFiles:
        """What an agent changed up to its last checkpoint, and the patch of it; InvalidInput when that is not kept.

        Example::

            print([each.path for each in (await m.agents.diff("fixer")).files])
        """
        workspace, commit = _saved(await self.get(agent), self.folder)
        base = workspace.base or commit
        changed = await workspaces.diff(workspace, base, commit)
        return AgentFiles(agent, changed, await workspaces.patch(workspace, base, commit) if patch else None)

    async def merge(
        self, agent: str, *, into: str | Path = ".", branch: str = "", message: str = "", dry_run: bool = False
    ) -> Merged | Conflicted | Blocked:
        """Merge what an agent did into the branch that is checked out in a folder, or another: as one commit, or not
        at all. With `dry_run` nothing is changed.

        Example::

            done = await m.agents.merge("fixer", into="work", message="Fix the parser")
        """
        self.journal.principal.check_may_decide(f"merge {agent}")
        attempt = await self.get(agent)
        if attempt.is_open and not dry_run:
            raise InvalidInput(f"agent {agent!r} has not ended", hint=f"wait, or `maos agent stop {agent}`")
        workspace, commit = _saved(attempt, self.folder)
        title = message or _title(attempt.task) or f"Work of {agent}"
        return await workspaces.merge(
            workspace, commit, into=Path(into), message=title, branch=branch, as_user=True, dry_run=dry_run
        )


async def _files(attempt: Attempt, home: Path) -> list[FileChange] | None:
    try:
        workspace, commit = _saved(attempt, home)
        return await workspaces.diff(workspace, workspace.base, commit) if workspace.base else None
    except (MaosError, OSError):
        return None  # not kept, or on another machine, or moved; the rest is worth showing all the same


def _saved(attempt: Attempt, home: Path) -> tuple[Workspace, str]:
    """The workspace of an attempt and its newest commit; InvalidInput when there is none."""
    workspace = Workspace.located(attempt.workspace, home) if attempt.workspace else None
    if workspace is None or workspace.in_place:
        raise InvalidInput(
            f"agent {attempt.agent!r} works in the folder itself", hint="what it does is there; `git diff` shows it"
        )
    if not attempt.saved:
        raise InvalidInput(f"agent {attempt.agent!r} has no checkpoint yet", hint="wait until it has ended")
    return workspace, attempt.saved


def _number(attempt: str) -> int:
    return int(attempt.rpartition(".")[2])


def _title(task: str) -> str:
    line = " ".join(task.split())
    return line if len(line) <= MESSAGE_CHARS_MAX else line[: MESSAGE_CHARS_MAX - 1] + "…"
