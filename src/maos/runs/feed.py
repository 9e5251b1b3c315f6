"""One feed of a run: what is recorded of it, of its agents and of its messages, whichever process executes it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from maos.bus.history import Bodies
from maos.engine import questions
from maos.engine.streams import ATTEMPT, AttemptReader, RunReader
from maos.errors import StoreUnavailable
from maos.journal.journal import Journal, Record
from maos.model import attempt as attempts
from maos.model import message
from maos.model.attempt import Attempt
from maos.model.events.attempt import AttemptAnswered, AttemptOutput
from maos.model.events.facts import Discovery, Fact
from maos.model.events.records import ToolCalled
from maos.model.events.run import RunEvent
from maos.model.message import Message, inbox
from maos.model.question import Open, grouped
from maos.model.run import Run, agent_name, stream
from maos.model.run_status import PendingCommands, agents_of
from maos.model.tool_calls import discovery
from maos.model.tool_calls import stream as tools_stream
from maos.tuples import NamedTuple

if TYPE_CHECKING:  # front ends that only follow a run do not load what resuming one takes
    from maos.runs.consent import Act
    from maos.travel.relocation import Moved

CATCH_UP_S = 5.0
PAGE_EVENTS = 500
RETRY_S = 1.0


class RunUpdate(NamedTuple):
    """Something was recorded of the run; `run` has it already."""

    run: Run
    event: RunEvent


class AgentOutput(NamedTuple):
    """Something was recorded of an agent; `attempt` has it already."""

    attempt: Attempt
    facts: Sequence[Fact]
    answered: AttemptAnswered | None = None
    """The answer to what it asked permission for, if that is what was recorded."""


class ReportedDiscovery(NamedTuple):
    """An agent has reported a discovery by a tool; one in a line of its output is a fact of that output."""

    agent: str
    discovery: Discovery
    at_us: int


Update = RunUpdate | AgentOutput | ReportedDiscovery | Message | Record
"""What a feed yields: of the run, of an agent, a message that an agent or a person sent; or the record of a command, a
question or an answer in the inbox of the run or of an agent, or of a tool that an agent used."""


async def at_work(attempts: AttemptReader, run: Run, position: int | None = None) -> dict[str, Attempt]:
    """The newest attempt of each agent that works on a run, or did when the run was paused, as of now or a position."""
    found = {}
    tasks = run.tasks.values() if run.is_open else ()
    for agent in (each for task in tasks for each in agents_of(run, task)):
        attempt = await (attempts.newest(agent) if position is None else attempts.at(agent, position))
        if attempt is not None:  # else it is recorded as begun, and not begun yet
            found[agent] = attempt
    return found


class RunFeed:
    """One run, followed from now on, or from its beginning. Use it with `async with`, and iterate over it."""

    def __init__(self, journal: Journal, id: str, *, from_start: bool = False) -> None:
        self._journal = journal
        self._bodies = Bodies(journal)
        self._id = id
        self._from_start = from_start
        self._after = 0
        self._moved = asyncio.Event()
        self.run = Run(id=id)
        """The run as of the newest update."""
        self.attempts: dict[str, Attempt] = {}
        """The newest attempt of each agent that was at work when the feed began, or has started since, by name."""

    async def __aenter__(self) -> RunFeed:
        if not self._from_start:
            self._after = await self._journal.head()
            self.run = await RunReader(self._journal).get(
                self._id
            )  # after the head: what is read twice is applied once
            self.attempts = await at_work(AttemptReader(self._journal), self.run)
        return self

    async def __aexit__(self, *error: object) -> None:
        pass

    @property
    def questions(self) -> list[Open]:
        """What the run and its agents ask a person by now, the oldest first."""
        found = questions.of_run(self.run, PendingCommands(questions=self.run.questions))
        for each in self.attempts.values():
            found += questions.of_attempt(each)
        return grouped(sorted(found, key=lambda each: each.asked_us))

    async def __aiter__(self) -> AsyncIterator[Update]:
        """Updates as they are recorded. While the store is away, this waits until it is back."""
        while True:
            try:
                async for record in self._journal.follow(after=self._after, wanted=self._concerns):
                    update = await self._update(record)
                    self._after = record.position
                    if update is not None:
                        yield update
                        self._moved.set()
            except StoreUnavailable:
                await asyncio.sleep(RETRY_S)

    async def recorded(self) -> AsyncIterator[Update]:
        """Updates that are recorded and were not read yet, without waiting for more."""
        while events := await self._journal.store.read_log(after=self._after, limit=PAGE_EVENTS):
            for event in events:
                self._after = event.position
                if self._concerns(event.stream):
                    record = await self._journal.decode_unless_erased(event)
                    update = await self._update(record) if record is not None else None
                    if update is not None:
                        yield update

    def _concerns(self, name: str) -> bool:
        """Whether a stream is of the run, its agents or its messages."""
        agents = agent_name(self._id, "")
        begins = (attempts.stream(agents), tools_stream(agents), inbox(agents))
        return name in (stream(self._id), message.history(self._id), inbox(self._id)) or name.startswith(begins)

    async def caught_up(self, version: int) -> None:
        """Return when the consumer of this feed has handled everything up to a version of the run, or after 5 s."""
        with suppress(TimeoutError):
            async with asyncio.timeout(CATCH_UP_S):
                while self.run.version < version:
                    self._moved.clear()
                    await self._moved.wait()

    async def _update(self, record: Record) -> Update | None:
        agents = agent_name(self._id, "")
        if record.stream == stream(self._id):
            if record.version != self.run.version + 1:
                return None
            self.run.apply(record.event)
            return RunUpdate(self.run, record.event)
        if record.stream.startswith(attempts.stream(agents)):
            return await self._of_agent(record)
        if record.stream == message.history(self._id):
            return await self._bodies.message(record)
        if isinstance(record.event, ToolCalled) and record.stream.startswith(tools_stream(agents)):
            found = discovery(record.event)
            agent = record.stream.removeprefix(tools_stream(""))
            return record if found is None else ReportedDiscovery(agent, found, record.event.at_us)
        if record.stream == inbox(self._id) or record.stream.startswith(inbox(agents)):
            return record
        return None

    async def _of_agent(self, record: Record) -> Update:
        id = record.stream.removeprefix(attempts.stream(""))
        agent = attempts.agent_of(id)
        known = self.attempts.get(agent)
        if known is None or known.id != id:
            known = Attempt(id=id) if record.version == 1 else await ATTEMPT.load(self._journal, id)
            assert known is not None
            self.attempts[agent] = known
        if record.version == known.version + 1:
            known.apply(record.event)
        event = record.event
        facts = event.facts if isinstance(event, AttemptOutput) else ()
        return AgentOutput(known, facts, event if isinstance(event, AttemptAnswered) else None)


class Observer:
    """Callbacks of a front end whose process resumes and executes a run; override those that it needs."""

    async def agree(self, run: Run, acts: Sequence[Act]) -> bool:
        """Whether a person agrees to what an imported run would start here."""
        return False

    def moved(self, moved: Moved) -> None:
        """The run works in another folder from now on."""

    def definition_changed(self, run: Run, change: object) -> None:
        """The plan file of the run has changed since; `change` says how."""

    def notice(self, text: str, document: dict[str, Any]) -> None:
        """The settings have changed, worktrees were removed, or a notification could not be sent."""
