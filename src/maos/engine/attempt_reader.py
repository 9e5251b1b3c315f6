"""What is recorded of agents that run or ran: a journal is all it takes to read it, from any process."""

from __future__ import annotations

from collections.abc import AsyncIterator

from maos.engine.types import ATTEMPT
from maos.errors import NotFound
from maos.journal.journal import Journal, Record
from maos.model.attempt import Attempt, agent_of, attempt_id, stream
from maos.model.run import Run


class AttemptReader:
    """Finds attempts by the names of their agents."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    @property
    def journal(self) -> Journal:
        """Where they are recorded."""
        return self._journal

    async def get(self, agent: str) -> Attempt:
        """The newest attempt of an agent."""
        number = 0
        async for name in self._journal.streams(stream(agent) + "."):
            tail = name.rpartition(".")[2]
            if name == stream(attempt_id(agent, int(tail) if tail.isdigit() else 0)):
                number = max(number, int(tail))
        found = await ATTEMPT.load(self._journal, attempt_id(agent, number)) if number else None
        if found is None:
            raise NotFound(f"there is no agent {agent!r} that runs or ran", hint="`maos agent list` shows them")
        return found

    async def all(self) -> AsyncIterator[Attempt]:
        """The newest attempt of every agent, by name."""
        newest: dict[str, int] = {}
        async for name in self._journal.streams("attempt/"):
            id = name.removeprefix("attempt/")
            newest[agent_of(id)] = max(newest.get(agent_of(id), 0), int(id.rpartition(".")[2]))
        for agent, number in sorted(newest.items()):
            found = await ATTEMPT.load(self._journal, attempt_id(agent, number))
            if found is not None:
                yield found

    async def history(self, agent: str) -> list[Attempt]:
        """All attempts of an agent, the oldest first."""
        newest = await self.get(agent)
        found = [await ATTEMPT.load(self._journal, attempt_id(agent, number)) for number in range(1, newest.number)]
        return [*(each for each in found if each is not None), newest]

    async def discoveries(self, run: Run, *, but: str = "") -> list[tuple[str, str]]:
        """What the agents of a run have found so far (R-104): who, and what; the newest of each, by task."""
        found: list[tuple[str, str]] = []
        for task in run.tasks.values():
            agent = run.agent(task.name)
            if task.attempts and agent != but:
                attempt = await ATTEMPT.load(self._journal, attempt_id(agent, task.attempts))
                found += [(agent, each.text) for each in (attempt.discoveries if attempt else ())]
        return found

    async def records(self, agent: str) -> AsyncIterator[Record]:
        """The events of all attempts of an agent, in order."""
        for past in await self.history(agent):
            async for record in self._journal.read(stream(past.id)):
                yield record
