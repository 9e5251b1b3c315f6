"""Agents as front ends show and steer them: status with liveness, output, files, and commands to them.

`Agents` is what `Maos.agents` gives: the engine's `Attempts`, and what people and programs ask about agents besides.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Unpack

import msgspec

from maos import workspaces as workspaces
from maos.clock import MICROSECONDS
from maos.engine import ownership as owners
from maos.engine.attempt_spec import ResumeOptions
from maos.engine.attempts import Attempts
from maos.engine.live import LiveAttempt
from maos.engine.ownership import Held, Liveness
from maos.errors import InvalidInput, MaosError, NotFound
from maos.ids import AGENT
from maos.journal.journal import Record
from maos.model.attempt import Attempt, Tokens, agent_of, stream
from maos.model.events.commands import GRACE_S
from maos.model.events.parts import Owner
from maos.model.failure import TABLE
from maos.model.message import inbox
from maos.model.status import AgentState
from maos.views.ids import Ids
from maos.workspaces import Blocked, Conflicted, FileChange, Merged, Workspace

RECENT_US = 86_400 * MICROSECONDS
LOOK_EVERY_S = 1.0
MESSAGE_CHARS_MAX = 70
UNATTENDED = "unattended"
"""The type of an `AgentEvent` that is not recorded: the engine that records the agent has exited."""


class FailureInfo(msgspec.Struct):
    """Why an attempt failed, what that means, and what to do about it."""

    name: str
    message: str
    meaning: str
    action: str
    hint: str
    reset_us: int | None


class AgentStatus(msgspec.Struct, kw_only=True):
    """An agent as it is now: its newest attempt, whether its processes live, and what all its attempts took."""

    attempt: int
    status: AgentState
    failure: FailureInfo | None
    turns: int
    cost_usd: float
    tokens: Tokens
    started_us: int
    """When its newest attempt was started; until then, when it was planned."""
    ended_us: int | None
    agent: str
    kind: str
    task: str
    activity: str
    output_us: int | None
    result: str
    exit: dict[str, Any]
    resumable: str | None
    """The command that attaches to it or resumes it; None when it is done, or runs."""

    @property
    def is_open(self) -> bool:
        """Whether its attempt has no recorded end."""
        return self.status.is_open

    @property
    def since_us(self) -> int:
        """When it became what it is."""
        return self.ended_us or self.started_us


class AgentDetails(NamedTuple):
    """Everything that is known of an agent."""

    now: AgentStatus
    attempts: list[Attempt]
    """All of them, the oldest first."""
    files: list[FileChange] | None
    """What it changed up to its last checkpoint; None when its files are not kept, or not within reach."""

    @property
    def newest(self) -> Attempt:
        """Its newest attempt."""
        return self.attempts[-1]


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


class Agents(Attempts):
    """Runs agents, and knows, follows and steers all that run or ran, whichever process runs them."""

    async def find(self, given: str) -> str:
        """Return the name of the agent that is called `given` or alone begins so, or that does the task RUN/TASK."""
        return (await Ids(self.journal).find(given, AGENT)).id

    # --- status ----------------------------------------------------------------------------------------------

    async def status(self, agent: str) -> AgentStatus:
        """How an agent is now.

        Example::

            status = await m.agents.status("fixer")
            print(status.status, status.activity, status.resumable)
        """
        return status_of(await self.history(agent))

    async def statuses(self, *, everything: bool = True) -> tuple[list[AgentStatus], int]:
        """All agents, open ones first and the newest first; else without those that ended long ago, which are counted.

        Example::

            agents, older = await m.agents.statuses(everything=False)
        """
        found = []
        async for attempt in self.all():
            found.append(status_of(await self.history(attempt.agent) if attempt.number > 1 else [attempt]))
        since_us = 0 if everything else self._clock.now_us() - RECENT_US
        shown = [each for each in found if each.is_open or (each.ended_us or 0) >= since_us]
        return sorted(shown, key=lambda each: (not each.is_open, -each.since_us)), len(found) - len(shown)

    async def details(self, agent: str) -> AgentDetails:
        """Everything that is known of an agent."""
        attempts = await self.history(agent)
        return AgentDetails(status_of(attempts), attempts, await _files(attempts[-1], self.folder))

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

    async def _event(self, record: Record) -> AgentEvent:
        id = record.stream.removeprefix(stream(""))
        agent = agent_of(id)
        messages = {}
        for fact in record.data.get("facts", ()):
            if fact["kind"] == "input" and fact["id"].startswith("inbox/"):
                version = int(fact["id"].removeprefix("inbox/"))
                sent = await self.journal.event(inbox(agent), version)
                messages[version] = str(sent.data.get("text", "")) if sent else ""
        at_us = record.data.get("at_us", record.time_us)
        event = f"{record.stream}@{record.version}"
        return AgentEvent(event, agent, _number(id), record.type, record.data, at_us, record.time_us, messages)

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

    async def tell(self, agent: str, text: str) -> tuple[int, bool]:
        """Send a person's message to an agent that can read one; its number, and whether the agent runs."""
        attempt = await self.get(agent)
        if attempt.kind == "shell" and not attempt.order.get("takes_input"):
            raise InvalidInput(
                f"agent {agent!r} is a command that was started without input",
                hint="start it with `maos agent run --input`",
            )
        return await self.send(agent, text), attempt.is_open

    # --- files -----------------------------------------------------------------------------------------------

    async def diff(self, agent: str, *, patch: bool = False) -> AgentFiles:
        """What an agent changed up to its last checkpoint, and the patch of it; InvalidInput when that is not kept."""
        workspace, commit = _saved(await self.get(agent), self.folder)
        base = workspace.base or commit
        changed = await workspaces.diff(workspace, base, commit)
        return AgentFiles(agent, changed, await workspaces.patch(workspace, base, commit) if patch else None)

    async def merge(self, agent: str, *, into: str | Path = ".", message: str = "") -> Merged | Conflicted | Blocked:
        """Merge what an agent did into the branch that is checked out in a folder, as one commit, or not at all."""
        attempt = await self.get(agent)
        if attempt.is_open:
            raise InvalidInput(f"agent {agent!r} has not ended", hint=f"wait, or `maos agent stop {agent}`")
        workspace, commit = _saved(attempt, self.folder)
        title = message or _title(attempt.task) or f"Work of {agent}"
        return await workspaces.merge(workspace, commit, into=Path(into), message=title)


def status_of(attempts: Sequence[Attempt]) -> AgentStatus:
    """How an agent is, from all its attempts, the oldest first."""
    newest = attempts[-1]
    total = Tokens()
    for each in attempts:
        total += each.total_tokens
    state = state_of(newest)
    return AgentStatus(
        attempt=newest.number,
        status=state,
        failure=failure_of(newest),
        turns=newest.turns,
        cost_usd=sum(each.total_cost_usd for each in attempts),
        tokens=total,
        started_us=newest.started_us or newest.planned_us,
        ended_us=newest.ended_us or None,
        agent=newest.agent,
        kind=newest.kind,
        task=newest.task,
        activity=newest.activity,
        output_us=newest.output_us or None,
        result=newest.result or newest.last_text,
        exit=newest.exit,
        resumable=_command(newest.agent, state),
    )


def state_of(attempt: Attempt) -> AgentState:
    """The recorded status of an attempt, unless the processes that it names have exited."""
    if not attempt.is_open:
        return AgentState(attempt.status)
    found = owners.agent_liveness(attempt)
    if found is Liveness.DETACHED:
        return AgentState.DETACHED
    return AgentState.INTERRUPTED if found.has_ended else AgentState(attempt.status)


def failure_of(attempt: Attempt) -> FailureInfo | None:
    """Why an attempt failed; None when it did not."""
    if not attempt.failure:
        return None
    known = TABLE.get(attempt.failure)
    meaning, action, hint = (known.meaning, known.action, known.hint) if known else ("", "", "")
    return FailureInfo(attempt.failure, attempt.message, meaning, action, hint, attempt.reset_us or None)


def _command(agent: str, state: AgentState) -> str | None:
    if state is AgentState.DETACHED:
        return f"maos agent attach {agent}"
    if state in (AgentState.INTERRUPTED, AgentState.STOPPED, AgentState.FAILED):
        return f"maos agent resume {agent}"
    return None


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
