"""The streams that engines own, and the events they and inboxes are made of."""

from __future__ import annotations

from maos.engine import saving
from maos.engine.recorder import FOLD_EVERY, Kind
from maos.journal.codec import EventType
from maos.model import attempt, bundle, chat, cleanup, message, notice, run, schedule, tool_calls, workflow

ATTEMPT = Kind("attempt", attempt.Attempt, format=attempt.FORMAT, quiet=("attempt_output",))

RUN = Kind(
    "run",
    run.Run,
    format=run.FORMAT,
    quiet=[name for name in run.EVENT_TYPES if name.startswith("task_")],
    every=lambda fold: max(FOLD_EVERY, len(fold.tasks)),
)

WORKFLOW_RUN = Kind(
    "workflow",
    workflow.WorkflowRun,
    format=workflow.FORMAT,
    quiet=workflow.EVENT_TYPES,  # a short one is folded in no time
    every=lambda fold: max(4 * FOLD_EVERY, 2 * len(fold.steps)),
)

SCHEDULES = Kind("schedules", schedule.Schedules, format=schedule.FORMAT)

_PLAIN = frozenset((*run.EVENT_TYPES, *message.EVENT_TYPES, "attempt_planned", "attempt_started", "attempt_stopping",
                    "attempt_checkpointed", "attempt_ended"))  # fmt: skip
"""What `maos.views` shows to other programs; what agents say, by far the most, is not among it and is compressed."""

_NAMES = (*attempt.EVENT_TYPES, *attempt.INBOX_TYPES, *run.EVENT_TYPES, *run.INBOX_TYPES, *message.EVENT_TYPES,
          *tool_calls.EVENT_TYPES, *tool_calls.INBOX_TYPES, *saving.EVENT_TYPES, *cleanup.EVENT_TYPES,
          *chat.EVENT_TYPES, *notice.EVENT_TYPES, *bundle.EVENT_TYPES, *workflow.EVENT_TYPES, *workflow.INBOX_TYPES,
          *schedule.EVENT_TYPES)  # fmt: skip
TYPES = tuple(EventType(name, plain=name in _PLAIN) for name in dict.fromkeys(_NAMES))
