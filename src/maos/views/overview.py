"""Everything that runs or waits now: runs, agents that belong to none, workflow runs, questions and unknown effects."""

from __future__ import annotations

from typing import NamedTuple

from maos.bus.history import SentMessage
from maos.clock import MICROSECONDS
from maos.engine import questions
from maos.journal.journal import Journal
from maos.model.question import Open
from maos.model.status import AttemptStatus, RunStatus
from maos.runs.consent import Act
from maos.runs.service import Runs
from maos.runs.status import RunView
from maos.views import effects
from maos.views.agents import Agents, AgentStatus
from maos.views.effects import EffectOutcome, ExternalEffect
from maos.views.workflows import WorkflowInfo, of_function
from maos.workflows.service import Workflows

RECENT_US = 7 * 86_400 * MICROSECONDS
"""For how long a run that failed is among what runs or waits."""
MESSAGES_MAX = 20


class Overview(NamedTuple):
    """Everything that runs or waits."""

    runs: list[RunView]
    agents: list[AgentStatus]
    """Those that are at work and belong to no run."""
    questions: list[Open]
    messages: list[SentMessage]
    """The newest between agents."""
    failed_before: int
    """Runs that failed longer ago."""
    flows: list[WorkflowInfo]
    """Workflow runs that have not ended, but for parts of others."""
    unknown: list[ExternalEffect]
    """What was begun by a process that has exited, and may or may not have taken effect."""


async def overview(journal: Journal, runs: Runs, agents: Agents, workflows: Workflows) -> Overview:
    """Read everything that runs or waits now."""
    known = await runs.list()
    asked = [question for each in known for question in each.questions]
    alone = []
    names = {name for each in known for name in each.attempts}
    prefixes = tuple(f"{each.run.id}." for each in known)
    async for attempt in agents.all():
        if attempt.is_open and attempt.agent not in names:
            asked += await questions.of_agent(journal, attempt)
            if not attempt.agent.startswith(prefixes):
                alone.append(await agents.status(attempt.agent))
    flows = sorted([flow async for flow in workflows.all() if flow.is_open], key=lambda each: -each.changed_us)
    unknown: list[ExternalEffect] = []
    for flow in flows:
        asked += await questions.of_workflow(journal, flow)
        unknown += effects.of_workflow(flow)
    for each in known:
        for lost in each.lost if each.run.is_open else ():
            unknown += [effect async for effect in effects.of_agent(agents, lost.agent)]
    old = [each for each in known if each.run.status == RunStatus.FAILED and each.at_us - each.run.ended_us > RECENT_US]
    ids = ("", *(each.run.id for each in known))
    said = [message for id in ids for message in await runs.messages(id, newest=MESSAGES_MAX)]
    return Overview(
        runs=[each for each in known if each.run.is_open or (each.run.status == RunStatus.FAILED and each not in old)],
        agents=alone,
        questions=asked,
        messages=sorted(said, key=lambda each: each.position)[-MESSAGES_MAX:],
        failed_before=len(old),
        flows=[of_function(flow) for flow in flows if not flow.parent],
        unknown=[each for each in unknown if each.outcome is EffectOutcome.UNKNOWN],
    )


async def would_start(runs: Runs, agents: Agents, workflows: Workflows) -> dict[str, list[Act]]:
    """What resuming everything would start here, by the id of the run, agent or workflow run."""
    unfinished = await runs.unfinished()
    found = {run.id: await runs.acts(run.id) for run in unfinished}
    names = {name for run in unfinished for task in run.tasks for name in run.agents(task)}
    async for attempt in agents.all():
        if attempt.agent not in names and attempt.status != AttemptStatus.DONE:
            order = attempt.order
            command, may = tuple(order["argv"]), (str(order["permission"]), tuple(order["tools_allowed"]))
            act = Act(attempt.agent, "task", attempt.kind, command, "" if command else attempt.task, *may)
            found[attempt.agent] = [act]
    async for flow in workflows.all():
        if flow.is_open and not flow.parent:
            found[flow.id] = [Act(flow.id, "task", "workflow", (), f"the function {flow.name}", "", ())]
    return {id: acts for id, acts in found.items() if acts}
