"""Commands, in the stream `inbox/<name>` of a run, an agent or a workflow run that another process executes.

The process that executes a command records its outcome, with the command's version in the inbox (`inbox_version`).
Questions and their answers are commands too; they are the same events as in the stream of a run.
"""

from __future__ import annotations

from typing import Any

from maos.model.events.core import EventBase, event
from maos.model.events.parts import Limits

GRACE_S = 10.0
"""How long a program has to end by itself when it is stopped."""


class Command(EventBase, frozen=True, kw_only=True):
    """What all commands have."""

    at_us: int = 0
    by: str = ""
    """The principal that requested it."""


@event("stop_requested")
class StopRequested(Command, frozen=True, kw_only=True):
    """For an agent: end."""

    grace_s: float = GRACE_S


@event("permission_answered")
class PermissionAnswered(Command, frozen=True, kw_only=True):
    """For an agent: what it asked for is allowed or refused."""

    request: str
    allow: bool
    why: str = ""
    rule: str = ""
    """The rule that was made with this answer."""
    rule_id: str = ""
    always: bool = False
    """Whether its program is told not to ask for this again, in its own session."""


@event("checkpoint_requested")
class CheckpointRequested(Command, frozen=True, kw_only=True):
    """For a run or an agent: make files and conversation safe."""

    name: str


@event("pause_requested")
class PauseRequested(Command, frozen=True, kw_only=True):
    """For a run or a workflow run: pause."""

    why: str = ""


@event("wake_requested")
class WakeRequested(Command, frozen=True, kw_only=True):
    """For a run: do not wait for the end of a rate limit."""


@event("update_requested")
class UpdateRequested(Command, frozen=True, kw_only=True):
    """For a run: change its limits, or how many of its agents work at once."""

    limits: Limits


@event("tasks_requested")
class TasksRequested(Command, frozen=True, kw_only=True):
    """For a run: add tasks."""

    tasks: list[dict[str, Any]]
    """Tasks as in a plan."""
    asked_by: str


@event("signal_sent")
class SignalSent(Command, frozen=True, kw_only=True):
    """For a workflow run: what it waits for."""

    name: str
    value: Any = None


@event("resolve_requested")
class ResolveRequested(Command, frozen=True, kw_only=True):
    """For a workflow run: the outcome of a step whose outcome is unknown."""

    step_id: str
    outcome: str
    """`done`, `failed` or `again`."""
    value: Any = None
    why: str = ""
    tries: int | None = None
    """Of which try it is the outcome."""


@event("cancel_requested")
class CancelRequested(Command, frozen=True, kw_only=True):
    """For a run or a workflow run: end. For a run with `task`: end that task alone."""

    why: str = ""
    task: str = ""
    attempt: int = 0
    """The attempt at the task that is meant; a later one is left alone. 0 for any."""


@event("retry_requested")
class RetryRequested(Command, frozen=True, kw_only=True):
    """For a run: try failed tasks again."""

    tasks: list[str] = []
    """Their names; empty for all that have failed."""
    changed: dict[str, Any] = {}
    """What a person changes of the only task before: its `task` or its `command`."""


@event("skip_requested")
class SkipRequested(Command, frozen=True, kw_only=True):
    """For a run: count a task as done without its result."""

    task: str
    why: str = ""
