"""What a person is asked by runs, agents and workflows, and the answers: given once, also while no engine runs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import NamedTuple

from maos.engine import ownership, questions
from maos.engine.ownership import Liveness
from maos.engine.questions import Answered
from maos.errors import InvalidInput, NotFound
from maos.ids import match_id
from maos.journal.journal import Journal
from maos.model.message import inbox
from maos.model.question import PERMISSION, QUESTION, WORKFLOW, Open, check, find, with_reason
from maos.runs.service import Runs
from maos.views.agents import Agents
from maos.workflows.service import Workflows


class Given(NamedTuple):
    """An answer that was recorded."""

    question: Open
    answer: str
    running: bool
    """Whether an engine that lives, as far as this machine can tell, will act on it."""
    resumable: str
    """The command that resumes its owner, when no engine executes it."""


class Questions:
    """Finds open questions, and records answers to them; the first answer counts."""

    def __init__(self, journal: Journal, runs: Runs, agents: Agents, workflows: Workflows) -> None:
        self._journal = journal
        self._runs = runs
        self._agents = agents
        self._workflows = workflows

    async def open(self) -> list[Open]:
        """All questions that are not answered, the oldest first.

        Example::

            for question in await m.questions.open():
                print(question.ref, question.text)
        """
        return sorted([each async for each in self._open()], key=lambda each: each.asked_us)

    async def _open(self) -> AsyncIterator[Open]:
        async for run in self._runs.all():
            if run.is_open or await self._journal.version(inbox(run.id)) > run.inbox_cursor:
                for each in questions.of_run(run, await questions.pending_of(self._journal, run)):
                    yield each
        async for attempt in self._agents.all():
            for each in await questions.of_agent(self._journal, attempt):
                yield each
        async for flow in self._workflows.all():
            for each in await questions.of_workflow(self._journal, flow):
                yield each

    async def answer(self, id: str, answer: str, *, why: str = "") -> Given:
        """Answer the question with an id, or the one whose id begins so; `why` goes with a yes or a no.

        Example::

            await m.questions.answer("r-1/gate/api/0/1", "no", why="The button is blue")
        """
        try:
            question = find(await self.open(), id)
        except NotFound as error:
            await self._check_answered(id, error)
            raise
        if why and question.kind == QUESTION:
            raise InvalidInput("--why goes with yes and no", hint="put everything into the answer")
        return await self.give(question, answer, why)

    async def give(self, question: Open, answer: str, why: str = "") -> Given:
        """Record the answer to a question that is open. Answered when another answer was recorded first."""
        said = check(question, answer, why)
        if question.kind == PERMISSION:
            await self._agents.answer(question.owner, question.id, allow=said == "yes", why=why)
            resumable = (await self._agents.status(question.owner)).resumable or ""
        elif question.kind == WORKFLOW:
            await self._workflows.answer(question.owner, question.id, said)
            is_gone = ownership.liveness((await self._workflows.get(question.owner)).owner) is Liveness.GONE
            resumable = f"maos workflow resume {question.owner}" if is_gone else ""
        else:
            await self._runs.answer(question.owner, question.id, said)
            resumable = (await self._runs.status(question.owner)).resumable
        return Given(question, said, not resumable, resumable)

    async def give_line(self, question: Open, line: str) -> Given:
        """Record an answer as a person typed it in one line: `no, use git mv` is a no with a reason."""
        return await self.give(question, *with_reason(question, line))

    async def answer_permission(self, agent: str, allow: bool, *, request: str = "", why: str = "") -> Open:
        """Answer what an agent asks to be allowed to do; `request` may be left out while it asks for one thing only.

        Example::

            await m.questions.answer_permission("fixer", True)
        """
        asked = await questions.of_agent(self._journal, await self._agents.get(agent))
        waiting = {each.id: each for each in asked}
        question = waiting[_request(agent, list(waiting), request)]
        await self._agents.answer(agent, question.id, allow=allow, why=why)
        return question

    async def _check_answered(self, given: str, error: Exception) -> None:
        """Raise Answered when a question that is not open was answered already."""
        async for run in self._runs.all():
            for each in (await questions.pending_of(self._journal, run)).questions.values():
                if each.answer is not None and given in (each.id, f"{run.id}/{each.id}"):
                    raise Answered(f"{run.id}/{each.id}", each.answer, each.answered_by) from error


def _request(agent: str, waiting: list[str], given: str) -> str:
    """The request that is meant: the only one there is, or the one whose id begins so."""
    if not waiting:
        raise NotFound(f"agent {agent!r} asks for nothing", hint="its question may have been answered already")
    if given:
        return match_id(given, waiting, "request", hint=f"agent {agent!r} asks {', '.join(waiting)}")
    if len(waiting) > 1:
        raise InvalidInput(f"agent {agent!r} asks for {len(waiting)} things", hint=f"name one of {', '.join(waiting)}")
    return waiting[0]
