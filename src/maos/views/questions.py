"""What a person is asked by runs, agents and workflows, and the answers: given once, also while no engine runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from maos.clock import Clock
from maos.engine import ownership, questions
from maos.engine.ownership import Liveness
from maos.engine.permissions import Permissions, project_of_attempt
from maos.engine.questions import Answered
from maos.errors import Conflict, InvalidInput, NotFound, NotPermitted
from maos.ids import match_id
from maos.journal.journal import Append, Journal, by_stream
from maos.model.access import VisibleParts
from maos.model.attempt import Attempt
from maos.model.permission import AGENT, PROJECT, RUN, StoredRule, for_request
from maos.model.question import (
    ALWAYS,
    NEVER,
    PERMISSION,
    QUESTION,
    WORKFLOW,
    Open,
    check,
    find,
    grouped,
    typed_answer,
)
from maos.model.run import dotted
from maos.runs.service import Runs
from maos.tuples import NamedTuple
from maos.views.agents import Agents
from maos.views.open_questions import DECIDED_US, QuestionReader
from maos.workflows.service import Workflows


class Given(NamedTuple):
    """An answer that was recorded."""

    question: Open
    answer: str
    by: str
    """The principal that gave it."""
    running: bool
    """Whether an engine that lives, as far as this machine can tell, will act on it."""
    resumable: str
    """The command that resumes its owner, when no engine executes it."""
    rule: StoredRule | None = None
    """The rule that was made with it."""
    requests: int = 1
    """How many requests of agents it answers."""


class Questions(QuestionReader):
    """Finds open questions, and records answers to them; the first answer counts."""

    _runs: Runs
    _agents: Agents
    _workflows: Workflows

    def __init__(
        self, journal: Journal, clock: Clock, runs: Runs, agents: Agents, workflows: Workflows, permissions: Permissions
    ) -> None:
        super().__init__(journal, clock, runs, agents, workflows)
        self._permissions = permissions

    async def answer(
        self,
        id: str,
        answer: str,
        *,
        why: str = "",
        scope: str = "",
        pattern: str = "",
        seen: VisibleParts | None = None,
        typed: bool = False,
    ) -> Given:
        """Answer the question with an id, or the one whose id begins so; `why` goes with a yes or a no. With `seen`,
        only one of the runs and agents that it names. With `typed`, a person typed the answer in one line, which may
        have a reason: `no, use git mv`.

        To what an agent asks to be allowed to do, `always` and `never` make a rule: of exactly this command, or of a
        `pattern`, such as `Bash(pytest *)`; for the `scope` agent, run (the default in a run) or project.

        Example::

            await m.questions.answer("r-1/gate/docs/0/1", "no", why="The button is blue")
        """
        try:
            question = find(await self.open(seen=seen), id)
        except NotFound as error:
            named = [await self._runs.view(each) for each in await self._runs.matching(id.partition("/")[0])]
            since_us = self._clock.now_us() - DECIDED_US
            for run in named or [each async for each in self._runs.open(since_us=since_us)]:
                if seen is not None and not await seen.has_run(run.id):
                    continue
                for each in (await questions.pending_of(self._journal, run)).questions.values():
                    if each.answer is not None and id in (each.id, f"{run.id}/{each.id}"):
                        raise Answered(f"{run.id}/{each.id}", each.answer, each.answered_by) from error
            raise
        if typed and not (why or scope or pattern):
            answer, why, scope, pattern = typed_answer(question, answer)
        if why and question.kind == QUESTION:
            raise InvalidInput("--why goes with yes and no", hint="put everything into the answer")
        if seen is not None and question.run and scope != AGENT:
            makes_rule = check(question, answer, why, asks_for_rule=bool(pattern)) in (ALWAYS, NEVER)
            if makes_rule and not await seen.has_run(question.run):  # which answers requests of other agents too
                raise NotPermitted(f"{self._journal.by} may not make rules for {question.run}", hint="scope: agent")
        return await self.give(question, answer, why, scope=scope, pattern=pattern)

    async def give(self, question: Open, answer: str, why: str = "", *, scope: str = "", pattern: str = "") -> Given:
        """Record the answer to a question that is open. Answered when another answer was recorded first."""
        said = check(question, answer, why, asks_for_rule=bool(pattern))
        if (scope or pattern) and said not in (ALWAYS, NEVER):
            raise InvalidInput(
                "a pattern, and for what it counts, make a rule", hint="answer always or never with them"
            )
        while question.kind == PERMISSION:
            try:
                return await self._permit(question, said, why, scope, pattern)
            except Conflict:
                continue  # something else came into an inbox, perhaps another answer
        if question.kind == WORKFLOW:
            await self._workflows.answer(question.owner, question.id, said)
            is_gone = ownership.liveness((await self._workflows.get(question.owner)).owner) is Liveness.GONE
            resumable = f"maos workflow resume {question.owner}" if is_gone else ""
        else:
            await self._runs.answer(question.owner, question.id, said)
            resumable = (await self._runs.status(question.owner)).resumable
        return Given(question, said, self._journal.by, not resumable, resumable)

    async def _permit(self, question: Open, said: str, why: str, scope: str, pattern: str) -> Given:
        """Answer a request for permission, and all that ask for the same; always and never make a rule, which answers
        all requests that it covers. The answers are recorded together, with the rule unless it is for a project.
        Conflict when something came into the inbox of an agent meanwhile."""
        allow, rule = said in ("yes", ALWAYS), None
        recorded: Sequence[Append] = ()
        is_for_program = question.is_for_program and not pattern and scope in ("", AGENT)
        waiting = [each async for each in self._requests()]
        asking = next((attempt for attempt, _version, each in waiting if each.ref == question.ref), None)
        if asking is None:
            raise NotFound(f"{question.owner} asks for that no more", hint="it was answered, or its agent has ended")
        versions = {each.owner: version for _attempt, version, each in waiting}
        same = [each for _attempt, _version, each in waiting if each.ref in question.refs]
        if said in (ALWAYS, NEVER) and not is_for_program:
            scope = scope or (RUN if question.run else AGENT)
            of = {AGENT: question.owner, RUN: question.run, PROJECT: str(project_of_attempt(asking))}.get(scope, "")
            if not of:
                raise InvalidInput(f"{question.owner} belongs to no run", hint="--for agent or --for project")
            wanted = for_request(question.asked, allow=allow, pattern=pattern)
            rule, recorded = await self._permissions.prepare(wanted, scope=scope, of=of)
            known = {each.ref for each in same}
            others = [(attempt, each) for attempt, _version, each in waiting if each.ref not in known]
            same += [each for attempt, each in others if _counts(rule, attempt) and rule.rule.covers(each.asked)]
        always = said == ALWAYS and is_for_program
        how: dict[str, Any] = {"allow": allow, "why": why, "rule": rule, "always": always}
        answers = [
            self._agents.answered(each.owner, each.id, **how)._replace(expected=versions[each.owner]) for each in same
        ]
        await self._journal.append_all(by_stream([*recorded, *answers]))
        resumable = (await self._agents.status(question.owner)).resumable or ""
        return Given(question, said, self._journal.by, not resumable, resumable, rule, len(same))

    async def give_line(self, question: Open, line: str) -> Given:
        """Record an answer as a person typed it in one line: `no, use git mv` is a no with a reason, and
        `always pytest *` makes a rule."""
        typed = typed_answer(question, line)
        return await self.give(question, typed.answer, typed.why, scope=typed.scope, pattern=typed.pattern)

    async def answer_line(self, id: str, line: str) -> Given:
        """Answer the question with an id as a person typed it in one line."""
        return await self.give_line(find(await self.open(), id), line)

    async def answer_permission(
        self, agent: str, answer: str, *, request: str = "", why: str = "", scope: str = "", pattern: str = ""
    ) -> Given:
        """Answer what an agent asks to be allowed to do; `request` may be left out while it asks for one thing only.

        Example::

            await m.questions.answer_permission("fixer", "yes")
        """
        asked = grouped(await questions.of_agent(self._journal, await self._agents.get(agent)))
        waiting = {each.id: each for each in asked}
        if not waiting:
            raise NotFound(f"agent {agent!r} asks for nothing", hint="its question may have been answered already")
        named = ", ".join(waiting)
        if request:
            request = match_id(request, waiting, "request", hint=f"agent {agent!r} asks {named}")
        elif len(waiting) > 1:
            raise InvalidInput(f"agent {agent!r} asks for {len(waiting)} things", hint=f"name one of {named}")
        question = waiting[request] if request else asked[0]
        return await self.give(question, answer, why, scope=scope, pattern=pattern)


def _counts(rule: StoredRule, attempt: Attempt) -> bool:
    """Whether a rule counts for an agent."""
    if rule.scope == PROJECT:
        return rule.of == str(project_of_attempt(attempt))
    return rule.of in dotted(attempt.agent)
