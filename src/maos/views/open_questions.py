"""What a person is asked by runs, agents and workflows, and what was decided; found without what starting one takes."""

from __future__ import annotations

from collections.abc import AsyncIterator

from maos.clock import MICROSECONDS, Clock
from maos.engine import questions
from maos.engine.streams import NEVER_US, AttemptReader, RunReader, WorkflowReader
from maos.journal.journal import Journal
from maos.model.access import VisibleParts
from maos.model.attempt import Attempt
from maos.model.events.commands import PermissionAnswered
from maos.model.message import inbox
from maos.model.question import PERMISSION, Open, grouped
from maos.model.read_models import AnsweredQuestion, decided

DECIDED_US = 30 * 86_400 * MICROSECONDS


class QuestionReader:
    """Finds open questions, and decisions."""

    def __init__(
        self, journal: Journal, clock: Clock, runs: RunReader, agents: AttemptReader, workflows: WorkflowReader
    ) -> None:
        self._journal = journal
        self._clock = clock
        self._runs = runs
        self._agents = agents
        self._workflows = workflows

    async def open(self, *, seen: VisibleParts | None = None) -> list[Open]:
        """All questions that are not answered, the oldest first. Requests for the same permission are one question.
        With `seen`, those of the runs and agents that a reader sees.

        Example::

            for question in await m.questions.open():
                print(question.ref, question.text)
        """
        found = [each async for each in self._open() if seen is None or await _is_seen(each, seen)]
        return grouped(sorted(found, key=lambda each: each.asked_us))

    async def _open(self) -> AsyncIterator[Open]:
        async for run in self._runs.open(since_us=NEVER_US):  # also one that has ended, and asks how to join another
            for each in questions.of_run(run, await questions.pending_of(self._journal, run)):
                yield each
        async for _attempt, _version, each in self._requests():
            yield each
        async for flow in self._workflows.open():
            for each in await questions.of_workflow(self._journal, flow):
                yield each

    async def _requests(self) -> AsyncIterator[tuple[Attempt, int, Open]]:
        """Everything that agents ask to be allowed to do, with who asks, and the version of the inbox in which there is
        no answer."""
        async for attempt in self._agents.open():
            if questions.of_attempt(attempt):
                version = await self._journal.version(inbox(attempt.agent))
                for each in await questions.of_agent(self._journal, attempt):
                    yield attempt, version, each

    async def decided(self, *, limit: int = 100, seen: VisibleParts | None = None) -> list[AnsweredQuestion]:
        """The newest decisions of people about what is open or ended in the last month, the newest first. With `seen`,
        those of the runs and agents that a reader sees.

        Example::

            print([(each.text, each.answer, each.by) for each in await m.questions.decided(limit=10)])
        """
        found: list[AnsweredQuestion] = []
        since_us = self._clock.now_us() - DECIDED_US
        async for run in self._runs.open(since_us=since_us):
            if seen is None or await seen.has_run(run.id):
                found += decided(run)
        async for attempt in self._agents.open(since_us=since_us):
            if seen is not None and not await seen.has_agent(attempt.agent):
                continue
            if not attempt.answered_cursor and not attempt.permissions:
                continue
            async for record in self._journal.read(inbox(attempt.agent)):
                event = record.event
                if isinstance(event, PermissionAnswered):
                    answer = ("allowed" if event.allow else "denied") + (f": {event.why}" if event.why else "")
                    run_id = attempt.agent.partition(".")[0] if "." in attempt.agent else ""
                    found.append(AnsweredQuestion(f"{attempt.agent}/{event.request}", run_id, attempt.agent, PERMISSION,
                                          "a permission", answer, event.by, 0, record.time_us))  # fmt: skip
        return sorted(found, key=lambda each: -each.answered_us)[:limit]


async def _is_seen(question: Open, seen: VisibleParts) -> bool:
    is_agent = question.kind == PERMISSION
    return await (seen.has_agent(question.owner) if is_agent else seen.has_run(question.owner))
