"""What resuming everything in a database would start here: what a person agrees to before it is trusted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from maos.engine.permissions import allowed_by_rules
from maos.model.status import AttemptStatus
from maos.runs.consent import Act, of_attempt
from maos.runs.service import Runs
from maos.views.agents import Agents
from maos.workflows.service import Workflows


async def would_start(runs: Runs, agents: Agents, workflows: Workflows) -> dict[str, list[Act]]:
    """What resuming everything would start here, by the id of the run, agent or workflow run."""
    unfinished = await runs.unfinished()
    found = {run.id: await runs.acts(run.id) for run in unfinished}
    names = {name for run in unfinished for task in run.tasks for name in run.agents(task)}
    async for attempt in agents.all():
        if attempt.agent not in names and attempt.status != AttemptStatus.DONE:
            rules = await allowed_by_rules(agents.journal, attempt.agent)
            acts = of_attempt(attempt, attempt.agent)
            found[attempt.agent] = [each._replace(tools=(*each.tools, *rules)) for each in acts]
    async for flow in workflows.all():
        if flow.is_open and not flow.parent:
            words = f"the function {flow.name} of {_source(flow.options.get('where') or {})}"
            found[flow.id] = [Act(flow.id, "task", "workflow", (), words, "", ())]
    for name, schedule in (await workflows.schedules()).items():
        words = f"the function {schedule.workflow} of {_source(schedule.where)}, at {schedule.cron}"
        found.setdefault(name, []).append(Act(name, "schedule", "workflow", (), words, "", ()))
    return {id: acts for id, acts in found.items() if acts}


def _source(where: Mapping[str, Any]) -> str:
    """Where the code of a workflow is loaded from."""
    return str(where.get("file") or where.get("module") or "a file that is not known")
