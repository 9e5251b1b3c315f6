"""The streams that engines own, the events they are made of, and readers of runs and attempts: any process that has the
journal can read them."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from maos.clock import Clock
from maos.engine import ownership
from maos.engine.recorder import FOLD_EVERY, Kind, Recorder
from maos.errors import NotFound
from maos.ids import only
from maos.journal.codec import EventType
from maos.journal.journal import Journal, Record
from maos.model import agent as agents
from maos.model import attempt, run, workflow
from maos.model.attempt import Attempt, agent_of, attempt_id
from maos.model.cleanup import PERMANENT, STREAM, Statistics
from maos.model.events import EVENTS
from maos.model.events.records import PinAdded, PinRemoved
from maos.model.run import Run
from maos.model.status import RunStatus

ATTEMPT = Kind("attempt", attempt.Attempt, format=attempt.FORMAT, quiet=("attempt_output",))

RUN = Kind(
    "run",
    run.Run,
    format=run.FORMAT,
    quiet=frozenset(name for name in EVENTS if name.startswith("task_")),
    every=lambda fold: max(FOLD_EVERY, len(fold.tasks)),
)

WORKFLOW_RUN = Kind(
    "workflow",
    workflow.WorkflowRun,
    format=workflow.FORMAT,
    quiet=frozenset(name for name in EVENTS if name.startswith(("workflow_", "step_"))),  # a short one is soon folded
    every=lambda fold: max(4 * FOLD_EVERY, 2 * len(fold.steps)),
)

SCHEDULES = Kind("schedules", workflow.Schedules, format=1)

TYPES = tuple(EventType.of(each) for name, each in EVENTS.items() if name not in agents.EVENT_TYPES)


ID = "r-"
"""How the ids of runs begin; a person may leave it out."""
HINT = "`maos ps --all` lists runs"


def new_id() -> str:
    """An id for a run."""
    return f"{ID}{secrets.token_hex(3)}"


@asynccontextmanager
async def own_run(journal: Journal, clock: Clock, known: Run) -> AsyncIterator[Recorder[Run]]:
    """Write to a run that no engine executes until the end of the block; Held while one does.

    The recorder has the run as it is then. Its lease is short, because it is not recorded which process has it.
    """
    hint = f"pause it first, with `maos pause {known.id}`"
    is_open = bool(known.version) and known.is_open and known.status != RunStatus.PAUSED
    owned = known if known.version else None
    name, look = run.stream(known.id), partial(RUN.load, journal, known.id)
    lease = await ownership.claim(journal, clock, name, owned, is_open=is_open, hint=hint, look=look)
    now = await RUN.load(journal, known.id) or known
    recorder = Recorder(journal, RUN, now, lease, lease_s=ownership.CLAIM_S)
    recorder.hold()
    try:
        yield recorder
    finally:
        await recorder.release()


class RunReader:
    """Finds runs by their ids."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    async def get(self, id: str) -> Run:
        """A run by its id."""
        found = await RUN.load(self._journal, id)
        if found is None:
            raise NotFound(f"there is no run {id!r}", hint=HINT)
        return found

    async def all(self) -> AsyncIterator[Run]:
        """All runs that were not removed, by id."""
        async for id in self.ids():
            found = await RUN.load(self._journal, id)
            if found is not None and not found.removed_us:
                yield found

    async def ids(self, prefix: str = "") -> AsyncIterator[str]:
        """The ids of all runs that begin with a prefix; the runs are not read."""
        async for name in self._journal.streams(run.stream(prefix)):
            yield name.removeprefix(run.stream(""))

    async def find(self, given: str) -> Run:
        """A run by its id or a unique prefix of it, with or without `r-`.

        Example::

            run = await m.runs.find("r-1")
        """
        found = await self.matching(given)
        others = [] if found else [id async for id in self.ids()]
        return await self.get(only(given, found, "run", hint=HINT, others=others))

    async def matching(self, given: str) -> list[str]:
        """The ids of runs that a person may mean; a whole id alone, whichever longer ones there are."""
        for prefix in (given, ID + given):
            found = [id async for id in self.ids(prefix)] if prefix else []
            if found:
                return [prefix] if prefix in found else found
        return []


async def attempts_at(journal: Journal, agent: str, position: int) -> list[int]:
    """The numbers of the attempts of an agent that were planned at a position of the journal."""
    found = []
    async for number in _numbers(journal, agent):
        first = await journal.event(attempt.stream(attempt_id(agent, number)), 1)
        if first is not None and first.position <= position:
            found.append(number)
    return found


async def _numbers(journal: Journal, agent: str) -> AsyncIterator[int]:
    """The numbers of the attempts of an agent; names of others may begin with its name and a dot."""
    async for name in journal.streams(attempt.stream(f"{agent}.")):
        tail = name.rpartition(".")[2]
        if tail.isdigit() and name == attempt.stream(attempt_id(agent, int(tail))):
            yield int(tail)


class AttemptReader:
    """Finds attempts by the names of their agents."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal

    async def get(self, agent: str) -> Attempt:
        """The newest attempt of an agent."""
        found = await self.newest(agent)
        if found is None:
            raise NotFound(f"there is no agent {agent!r} that runs or ran", hint="`maos agent list` shows them")
        return found

    async def newest(self, agent: str) -> Attempt | None:
        """The newest attempt of an agent; None when it was never started."""
        number = max([each async for each in _numbers(self.journal, agent)], default=0)
        return await ATTEMPT.load(self.journal, attempt_id(agent, number)) if number else None

    async def all(self) -> AsyncIterator[Attempt]:
        """The newest attempt of every agent, by name."""
        newest: dict[str, int] = {}
        async for name in self.journal.streams(attempt.stream("")):
            agent, number = agent_of(name.partition("/")[2]), int(name.rpartition(".")[2])
            newest[agent] = max(newest.get(agent, 0), number)
        for name, number in sorted(newest.items()):
            found = await ATTEMPT.load(self.journal, attempt_id(name, number))
            if found is not None:
                yield found

    async def names(self, prefix: str = "") -> AsyncIterator[str]:
        """The names of agents that run or ran, of those that begin with a prefix, each once."""
        seen: set[str] = set()
        async for name in self.journal.streams(attempt.stream(prefix)):
            agent = agent_of(name.partition("/")[2])
            if agent not in seen:
                seen.add(agent)
                yield agent

    async def at(self, agent: str, position: int) -> Attempt | None:
        """The newest attempt of an agent as it was at a position of the journal; None when it had not started."""
        begun = await attempts_at(self.journal, agent, position)
        return await ATTEMPT.at(self.journal, attempt_id(agent, max(begun)), position=position) if begun else None

    async def history(self, agent: str) -> list[Attempt]:
        """All attempts of an agent, the oldest first."""
        newest = await self.get(agent)
        found = [await ATTEMPT.load(self.journal, attempt_id(agent, number)) for number in range(1, newest.number)]
        return [*(each for each in found if each is not None), newest]

    async def discoveries(self, of: Run, *, but: str = "") -> list[tuple[str, str]]:
        """What the agents of a run have found so far (R-104): who, and what; the newest of each, by task."""
        found: list[tuple[str, str]] = []
        for task in of.tasks.values():
            name = of.agent(task.name)
            if task.attempts and name != but:
                newest = await ATTEMPT.load(self.journal, attempt_id(name, task.attempts))
                found += [(name, each.text) for each in (newest.discoveries if newest else ())]
        return found

    async def records(self, agent: str) -> AsyncIterator[Record]:
        """The events of all attempts of an agent, in order."""
        for past in await self.history(agent):
            async for record in self.journal.read(attempt.stream(past.id)):
                yield record


async def permanent(journal: Journal) -> dict[str, str]:
    """The runs that are never cleaned up, and why."""
    found: dict[str, str] = {}
    async for record in journal.read(PERMANENT):
        match record.event:
            case PinAdded(run=id, why=why):
                found[id] = why
            case PinRemoved(run=id):
                found.pop(id, None)
    return found


async def statistics(journal: Journal) -> Statistics:
    """What was removed so far."""
    found = Statistics()
    async for record in journal.read(STREAM):
        found.apply(record.event)
    return found
