"""The streams that engines own, the events they are made of, and readers of runs and attempts: any process that has the
journal can read them."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from functools import partial

from maos.clock import Clock
from maos.engine import ownership
from maos.engine.recorder import FOLD_EVERY, Kind, Recorder
from maos.engine.recorder import NEVER_US as NEVER_US
from maos.errors import Conflict, Erased, NotFound
from maos.ids import only
from maos.journal.codec import EventType
from maos.journal.journal import Append, Journal, Record
from maos.model import agent as agents
from maos.model import attempt, run, tool_calls, workflow
from maos.model.attempt import Attempt, agent_of, attempt_id
from maos.model.cleanup import PERMANENT, STREAM, Statistics
from maos.model.events import EVENTS
from maos.model.events.attempt import AttemptEnded
from maos.model.events.facts import Discovery
from maos.model.events.records import PinAdded, PinRemoved
from maos.model.events.run import RunEnded, RunRemoved
from maos.model.events.state import Compacted
from maos.model.events.workflow import WorkflowEnded, WorkflowRemoved
from maos.model.run import OWN_TREE, Run, TaskState, dotted
from maos.model.status import RunStatus
from maos.model.tool_calls import Reports
from maos.model.workflow import WorkflowRun
from maos.store.contract import StreamEnding

ATTEMPT = Kind(
    "attempt",
    attempt.Attempt,
    format=attempt.FORMAT,
    quiet=("attempt_output",),
    ends=(AttemptEnded.type,),
    example=lambda: attempt.Attempt(id=""),
    plain=("session", "turns", "cost_usd", "activity", "result", "last_text"),
)

RUN = Kind(
    "run",
    run.Run,
    format=run.FORMAT,
    quiet=frozenset(name for name in EVENTS if name.startswith("task_")),
    every=lambda fold: max(FOLD_EVERY, len(fold.tasks)),
    ends=(RunEnded.type, RunRemoved.type),
    example=lambda: Run(id="", tasks={"": TaskState(name="", plan={}, needs=[])}),
)

WORKFLOW_RUN = Kind(
    "workflow",
    workflow.WorkflowRun,
    format=workflow.FORMAT,
    quiet=frozenset(name for name in EVENTS if name.startswith(("workflow_", "step_"))),  # a short one is soon folded
    every=lambda fold: max(4 * FOLD_EVERY, 2 * len(fold.steps)),
    ends=(WorkflowEnded.type, WorkflowRemoved.type, Compacted.type),
    example=lambda: WorkflowRun(id=""),
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
async def own_run(
    journal: Journal, clock: Clock, known: Run, *, expected: int | None = None
) -> AsyncIterator[Recorder[Run]]:
    """Write to a run that no engine executes until the end of the block; Held while one does.

    The recorder has the run as it is then, and no other process changes it before the end of the block: with
    `expected`, Conflict unless it is at that version. Its lease is short, because it is not recorded which process has
    it.
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
        check_version(now, expected)
        yield recorder
    finally:
        await recorder.release()


def check_version(known: Run, expected: int | None) -> None:
    """Conflict unless a run is at the version that a caller expects; None: at any."""
    if expected not in (None, known.version):
        raise Conflict(run.stream(known.id), expected=expected or 0, actual=known.version)


def while_at(id: str, expected: int | None) -> list[Append]:
    """What makes an append fail with Conflict unless a run is at a version then, in the transaction of the append."""
    return [] if expected is None else [Append(run.stream(id), [], expected)]


class RunReader:
    """Finds runs by their ids."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    async def get(self, id: str) -> Run:
        """A run by its id."""
        found = await RUN.load(self._journal, id)
        if found is None:
            raise self._missing(id)
        return found

    async def all(self) -> AsyncIterator[Run]:
        """All runs that were not removed, by id."""
        async for id in self.ids():
            found = await RUN.load(self._journal, id)
            if found is not None and not found.removed_us:
                yield found

    async def open(self, *, since_us: int | None = None) -> AsyncIterator[Run]:
        """Runs that have not ended, by id, shared with other readers; with `since_us`, also those that ended since.

        Runs that ended before are not read: there may be thousands.
        """
        async for id in RUN.open_ids(self._journal, since_us):
            found = await RUN.view(self._journal, id)
            if found is not None and not found.removed_us and (found.is_open or since_us is not None):
                yield found

    async def newest_first(self) -> AsyncIterator[Run]:
        """All runs that were not removed, shared with other readers: those created last first."""
        async for id in RUN.ids(self._journal, newest=True):
            found = await RUN.view(self._journal, id)
            if found is not None and not found.removed_us:
                yield found

    async def view(self, id: str) -> Run:
        """A run by its id, shared with other readers: it must not be changed."""
        found = await RUN.view(self._journal, id)
        if found is None:
            raise self._missing(id)
        return found

    def _missing(self, id: str) -> NotFound:
        """The error for a run that there is not, or not any more."""
        if self._journal.is_erased(run.stream(id)):
            return Erased(id)
        return NotFound(f"there is no run {id!r}", hint=HINT)

    async def views(self) -> AsyncIterator[Run]:
        """All runs that were not removed, by id, shared with other readers: they must not be changed."""
        async for id in self.ids():
            found = await RUN.view(self._journal, id)
            if found is not None and not found.removed_us:
                yield found

    def ids(self, prefix: str = "") -> AsyncIterator[str]:
        """The ids of all runs that begin with a prefix; the runs are not read."""
        return RUN.ids(self._journal, prefix)

    async def has_tree(self, name: str) -> bool:
        """Whether a worktree of this name is one in which the work of a run's tasks is merged."""
        found = await RUN.view(self._journal, OWN_TREE.sub("", name)) or await RUN.view(self._journal, name)
        own = [f"{found.id}-b{number}" if number else found.id for number in range(found.branch + 1)] if found else ()
        return name in own

    async def of_trees(self, names: Iterable[str]) -> AsyncIterator[Run]:
        """The runs that worktrees of these names can belong to: their own, or those of their agents; each once."""
        ids = {each for name in names for each in (*dotted(name), OWN_TREE.sub("", name))}
        for id in sorted(ids):
            found = await RUN.view(self._journal, id)
            if found is not None and not found.removed_us:
                yield found

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

    async def view(self, agent: str) -> Attempt | None:
        """The newest attempt of an agent, shared with other readers: it must not be changed."""
        number = max([each async for each in _numbers(self.journal, agent)], default=0)
        return await ATTEMPT.view(self.journal, attempt_id(agent, number)) if number else None

    async def all(self) -> AsyncIterator[Attempt]:
        """The newest attempt of every agent, by name."""
        async for id in self._newest_of_all():
            found = await ATTEMPT.load(self.journal, id)
            if found is not None:
                yield found

    async def views(self) -> AsyncIterator[Attempt]:
        """The newest attempt of every agent, by name, shared with other readers: they must not be changed."""
        async for id in self._newest_of_all():
            found = await ATTEMPT.view(self.journal, id)
            if found is not None:
                yield found

    async def open(self, *, since_us: int | None = None) -> AsyncIterator[Attempt]:
        """The newest attempts of agents that have not ended, by name, shared with other readers; with `since_us`, also
        of those that ended since. The others are not read."""
        begun = ATTEMPT.open_ids(self.journal, since_us)
        for agent in sorted({agent_of(id) async for id in begun}):
            number = max([each async for each in _numbers(self.journal, agent)])
            found = await ATTEMPT.view(self.journal, attempt_id(agent, number))
            if found is not None and (found.is_open or since_us is not None):
                yield found

    async def _newest_of_all(self) -> AsyncIterator[str]:
        newest: dict[str, int] = {}
        async for name in self.journal.streams(attempt.stream("")):
            agent, number = agent_of(name.partition("/")[2]), int(name.rpartition(".")[2])
            newest[agent] = max(newest.get(agent, 0), number)
        for name, number in sorted(newest.items()):
            yield attempt_id(name, number)

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

    async def discoveries(self, of: Run, *, but: str = "") -> list[tuple[TaskState, Discovery]]:
        """What the agents of a run have found so far (R-104), by task, in the order of their attempts."""
        begun = [task for task in of.tasks.values() if task.attempts and of.agent(task.name) != but]
        # Of a run with thousands of tasks, only agents of which something is recorded are looked at.
        own, known = f"{of.id}.", {agent async for agent in self.names(f"{of.id}.")}
        async for name in self.journal.streams(tool_calls.stream(own)):
            known.add(name.removeprefix(tool_calls.stream("")))
        found = []
        for task in begun:
            agent = of.agent(task.name)
            if agent in known or not agent.startswith(own):
                found += [(task, each) for each in await self.discoveries_of(agent)]
        return found

    async def discoveries_of(self, agent: str, *, position: int | None = None) -> list[Discovery]:
        """What an agent has found in all its attempts, in lines of its output or by a tool; each text once.

        With `position`, what it had found at that position of the journal.
        """
        found: list[Discovery] = []
        if position is None:  # with the folds that are kept: an attempt may have printed a million lines
            numbers = sorted([each async for each in _numbers(self.journal, agent)])
            attempts = [await ATTEMPT.view(self.journal, attempt_id(agent, number)) for number in numbers]
        else:
            numbers = sorted(await attempts_at(self.journal, agent, position))
            ids = [attempt_id(agent, number) for number in numbers]
            attempts = [await ATTEMPT.at(self.journal, id, position=position) for id in ids]
        for past in attempts:
            found += past.discoveries if past is not None else ()
        reports = Reports()
        async for record in self.journal.read(tool_calls.stream(agent)):
            if position is None or record.position <= position:
                reports.apply(record.event)
        return list({each.text: each for each in (*reports.discoveries, *found)}.values())

    async def records(self, agent: str) -> AsyncIterator[Record]:
        """The events of all attempts of an agent, in order."""
        for past in await self.history(agent):
            async for record in self.journal.read(attempt.stream(past.id)):
                yield record


class WorkflowReader:
    """Finds workflow runs."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    async def all(self) -> AsyncIterator[WorkflowRun]:
        """All workflow runs that were not removed, by id.

        Example::

            async for run in m.workflows.all():
                print(run.id, run.status)
        """
        async for id in WORKFLOW_RUN.ids(self._journal):
            found = await WORKFLOW_RUN.load(self._journal, id)
            if found is not None and not found.removed_us:
                yield found

    async def count(self) -> int:
        """How many workflow runs there are; none of them is read.

        Example::

            print(await m.workflows.count())
        """
        removed = StreamEnding((WorkflowRemoved.type,), NEVER_US)
        return len([id async for id in WORKFLOW_RUN.ids(self._journal, unless=removed)])

    async def open(self, *, since_us: int | None = None) -> AsyncIterator[WorkflowRun]:
        """Workflow runs that have not ended, by id; with `since_us`, also those that ended since.

        Example::

            print([run.id async for run in m.workflows.open()])
        """
        async for id in WORKFLOW_RUN.open_ids(self._journal, since_us):
            found = await WORKFLOW_RUN.load(self._journal, id)
            if found is not None and not found.removed_us and (found.is_open or since_us is not None):
                yield found


async def owner_of(journal: Journal, agent: str) -> str:
    """The run or workflow run that an agent belongs to; empty when it works alone."""
    for owner in dotted(agent):
        for stream in (run.stream(owner), workflow.stream(owner)):
            if await journal.version(stream):
                return owner
    return ""


async def permanent(journal: Journal) -> dict[str, str]:
    """The runs that are never cleaned up, and why."""
    found: dict[str, str] = {}
    if not await journal.version(PERMANENT):
        return found
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
