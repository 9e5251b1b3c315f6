"""The streams that engines own, and the events they and inboxes are made of."""

from __future__ import annotations

from maos.engine.recorder import FOLD_EVERY, Kind
from maos.journal.codec import EventType
from maos.model import agent, attempt, run, schedule, workflow
from maos.model.events import EVENTS

ATTEMPT = Kind("attempt", attempt.Attempt, format=attempt.FORMAT, quiet=("attempt_output",))

RUN = Kind(
    "run",
    run.Run,
    format=run.FORMAT,
    quiet=[name for name in EVENTS if name.startswith("task_")],
    every=lambda fold: max(FOLD_EVERY, len(fold.tasks)),
)

WORKFLOW_RUN = Kind(
    "workflow",
    workflow.WorkflowRun,
    format=workflow.FORMAT,
    quiet=[name for name in EVENTS if name.startswith(("workflow_", "step_"))],  # a short one is folded in no time
    every=lambda fold: max(4 * FOLD_EVERY, 2 * len(fold.steps)),
)

SCHEDULES = Kind("schedules", schedule.Schedules, format=schedule.FORMAT)

TYPES = tuple(EventType.of(each) for name, each in EVENTS.items() if name not in agent.EVENT_TYPES)
