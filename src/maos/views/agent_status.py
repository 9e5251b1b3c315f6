"""The status of agents: what the journal says of them, and whether the processes that it names are alive."""

from __future__ import annotations

from collections.abc import Sequence, Set

from maos.clock import MICROSECONDS, Clock
from maos.engine import ownership as owners
from maos.engine.ownership import Liveness
from maos.engine.streams import AttemptReader
from maos.journal.journal import Journal
from maos.model.agent import PREFIX as STATES
from maos.model.attempt import Attempt, Tokens
from maos.model.failure import TABLE
from maos.model.read_models import AgentStatus, FailureInfo
from maos.model.run import BESIDE
from maos.model.status import AgentState
from maos.runs.budgets import Allowance, left_of_attempt
from maos.text import without_escapes

RECENT_US = 86_400 * MICROSECONDS


class AgentStatuses(AttemptReader):
    """The status of agents that run or ran."""

    _clock: Clock

    async def status(self, agent: str) -> AgentStatus:
        """How an agent is now.

        Example::

            status = await m.agents.status("fixer")
            print(status.status, status.activity, status.resumable)
        """
        return status_of(await self.history(agent), self._clock.now_us())

    async def statuses(self, *, everything: bool = True, checks: bool = True) -> tuple[list[AgentStatus], int]:
        """All agents, open ones first and the newest first; else without those that ended long ago, which are counted.

        Without `checks`, those are left out that check the work of another agent or resolve its conflicts, unless they
        are at work.

        Example::

            agents, older = await m.agents.statuses(everything=False)
        """
        shown, now_us = [], self._clock.now_us()
        known = {agent async for agent in self.names()}
        since_us = 0 if everything else now_us - RECENT_US
        async for attempt in self.views() if everything else self.open(since_us=since_us):
            if not attempt.is_open and attempt.ended_us < since_us:
                continue
            if checks or attempt.is_open or not _is_check(attempt.agent, known):
                shown.append(status_of(await self.history(attempt.agent) if attempt.number > 1 else [attempt], now_us))
        total = len(known) if checks else sum(not _is_check(each, known) for each in known)
        shown.sort(key=lambda each: (not each.is_open, -each.since_us))
        return shown, max(0, total - len(shown))

    async def never_run(self) -> int:
        """How many agents have a state, and have neither run nor been started."""
        ran = {name async for name in self.names()}
        return len([name async for name in self.journal.streams(STATES) if name.removeprefix(STATES) not in ran])


class AgentViews(AgentStatuses):
    """Agents that run or ran, for front ends that show them."""

    def __init__(self, journal: Journal, clock: Clock) -> None:
        super().__init__(journal)
        self._clock = clock


def status_of(attempts: Sequence[Attempt], now_us: int) -> AgentStatus:
    """How an agent is now, from all its attempts, the oldest first."""
    newest = attempts[-1]
    left = left_of_attempt(newest, now_us) if newest.is_open else Allowance()
    total = Tokens()
    for each in attempts:
        total += each.total_tokens
    state = state_of(newest)
    return AgentStatus(
        attempt=newest.number,
        status=state,
        failure=failure_of(newest),
        turns=newest.turns,
        cost_usd=sum(each.cost_usd for each in attempts),
        estimated_usd=sum(each.estimated_usd for each in attempts),
        unpriced_tokens=sum(each.unpriced_tokens for each in attempts),
        tokens=total,
        started_us=newest.started_us or newest.planned_us,
        ended_us=newest.ended_us or None,
        agent=newest.agent,
        kind=newest.kind,
        task=newest.task,
        activity=without_escapes(newest.activity),
        output_us=newest.output_us or None,
        result=without_escapes(newest.result or newest.last_text),
        exit=newest.exit,
        resumable=resume_command(newest.agent, state),
        left_usd=left.usd,
        left_s=left.time_s,
    )


def _is_check(agent: str, names: Set[str]) -> bool:
    """Whether an agent checks the work of another, or resolves its conflicts, by their names."""
    other = BESIDE.sub("", agent)
    return other != agent and other in names


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
    reset_us, traceback = attempt.reset_us or None, attempt.traceback
    return FailureInfo(attempt.failure, attempt.message, meaning, action, hint, reset_us, traceback)


def resume_command(agent: str, state: AgentState) -> str | None:
    """The command that attaches to an agent or resumes it; None when it is done, or runs."""
    if state is AgentState.DETACHED:
        return f"maos agent attach {agent}"
    if state in (AgentState.INTERRUPTED, AgentState.STOPPED, AgentState.FAILED):
        return f"maos agent resume {agent}"
    return None
