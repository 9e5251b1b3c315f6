"""Everything that runs or waits now: runs, agents that belong to none, workflow runs, questions and unknown effects."""

from __future__ import annotations

from maos.bus.history import SentMessage
from maos.engine import questions
from maos.engine.streams import WorkflowReader, owner_of
from maos.journal.journal import Journal
from maos.model.access import VisibleParts
from maos.model.question import Open, grouped
from maos.model.read_models import AgentStatus, EffectOutcome, ExternalEffect, WorkflowInfo
from maos.model.status import AgentState, RunStatus
from maos.model.workflow import FAILED
from maos.runs.status import RECENT_US as RECENT_US
from maos.runs.status import RunView, RunViews
from maos.tuples import NamedTuple
from maos.views import effects
from maos.views.agent_status import AgentViews
from maos.views.workflows import of_function

MESSAGES_MAX = 20


class Overview(NamedTuple):
    """Everything that runs or waits."""

    runs: list[RunView]
    """Those that have not ended, or failed in the last week."""
    agents: list[AgentStatus]
    """Those that are at work and belong to no run."""
    questions: list[Open]
    messages: list[SentMessage]
    """The newest between agents."""
    flows: list[WorkflowInfo]
    """Workflow runs that have not ended, or failed in the last week, but for parts of others."""
    unknown: list[ExternalEffect]
    """What was begun by a process that has exited, and may or may not have taken effect."""

    @property
    def interrupted_agents(self) -> list[AgentStatus]:
        """Agents that belong to no run and have exited, as has the engine that recorded them."""
        return [each for each in self.agents if each.status is AgentState.INTERRUPTED]


async def overview(
    journal: Journal, runs: RunViews, agents: AgentViews, workflows: WorkflowReader, seen: VisibleParts | None = None
) -> Overview:
    """Read everything that runs or waits now; with `seen`, what a reader sees of it. What ended longer ago than a week
    is not read."""
    since_us = runs.now_us() - RECENT_US
    known = await runs.list(since_us=since_us, seen=seen)
    asked = [question for each in known for question in each.questions]
    alone = []
    names = {name for each in known for name in each.attempts}
    async for attempt in agents.open():
        if attempt.agent in names or (seen is not None and not await seen.has_agent(attempt.agent)):
            continue
        asked += grouped(await questions.of_agent(journal, attempt))
        if not await owner_of(journal, attempt.agent):
            alone.append(await agents.status(attempt.agent))
    flows = [flow async for flow in workflows.open(since_us=since_us) if flow.is_open or flow.status == FAILED]
    flows = [flow for flow in flows if seen is None or await seen.has_run(flow.id)]
    flows.sort(key=lambda each: -each.changed_us)
    unknown: list[ExternalEffect] = []
    for flow in [each for each in flows if each.is_open]:
        asked += await questions.of_workflow(journal, flow)
        unknown += effects.of_workflow(flow)
    for each in known:
        for lost in each.lost if each.run.is_open else ():
            unknown += [effect async for effect in effects.of_agent(agents, lost.agent)]
    ids = (*([""] if seen is None else []), *(each.run.id for each in known))
    said = [message for id in ids for message in await runs.messages(id, newest=MESSAGES_MAX)]
    return Overview(
        runs=[each for each in known if each.run.is_open or each.run.status == RunStatus.FAILED],
        agents=alone,
        questions=asked,
        messages=sorted(said, key=lambda each: each.position)[-MESSAGES_MAX:],
        flows=[of_function(flow) for flow in flows if not flow.parent],
        unknown=[each for each in unknown if each.outcome is EffectOutcome.UNKNOWN],
    )
