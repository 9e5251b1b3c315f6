"""Workflow runs as front ends list them: those of functions, and runs that were made from plan files."""

from __future__ import annotations

import msgspec

from maos.errors import NotFound
from maos.model.run import Run
from maos.model.workflow import CHANGED, STARTED, Step, WorkflowRun
from maos.runs.file_changes import Origin, origin
from maos.runs.status import RunView, RunViews
from maos.workflows.service import Workflows
from maos.workflows.status import INTERRUPTED, Status

ACTIVITY_STEPS_MAX = 3
NEEDS_PERSON = "waiting_for_user"


class WorkflowInfo(msgspec.Struct, kw_only=True):
    """A workflow run in a list."""

    id: str
    of: str
    """function, or file: the run of a plan file."""
    workflow: str
    version: str
    status: str
    """The recorded status; "interrupted" when it is recorded as running and its process has ended."""
    state: str
    """The status, or "waiting_for_user" when it waits for a person."""
    why: str | None
    parent: str | None
    steps: int
    steps_done: int
    waiting: list[str]
    unknown: list[str]
    file: str | None = None
    activity: str
    is_open: bool
    started_us: int
    changed_us: int
    ended_us: int | None

    @property
    def needs_resume(self) -> bool:
        """Whether it stopped without a command, and does not continue until it is resumed."""
        return self.status in (INTERRUPTED, CHANGED)


async def list_all(runs: RunViews, workflows: Workflows, status: str = "") -> list[WorkflowInfo]:
    """All workflow runs, or those that have a status now: open ones first, and the newest first."""
    found = [of_function(each.run) for each in await workflows.list()]
    async for run in runs.all():
        if (made_from := origin(run)) is not None:
            found.append(of_file(await runs.status_of(run), made_from))
    chosen = [each for each in found if status in ("", each.status)]
    return sorted(chosen, key=lambda each: (not each.is_open, -each.changed_us))


async def latest(runs: RunViews, workflows: Workflows) -> WorkflowRun | Run:
    """The workflow run that was changed last, of those that can be resumed."""
    found: list[tuple[int, WorkflowRun | Run]] = []
    async for each in workflows.all():
        if each.is_open and not each.parent:
            found.append((each.changed_us, each))
    async for run in runs.all():
        if run.status != "completed" and origin(run) is not None:
            found.append((run.updated_us, run))
    if not found:
        raise NotFound("there is no workflow to resume", hint="`maos workflow list` shows all")
    return max(found, key=lambda each: each[0])[1]


def of_function(run: WorkflowRun) -> WorkflowInfo:
    """The workflow run of a function."""
    status = Status.of(run)
    waits = status.needs_person and status.name != INTERRUPTED
    begun = [describe(step) for step in run.steps.values() if step.status == STARTED]
    return WorkflowInfo(
        id=run.id,
        of="function",
        workflow=run.name,
        version=run.definition,
        status=status.name,
        state=NEEDS_PERSON if waits else status.name,
        why=run.why or None,
        parent=run.parent or None,
        steps=len(run.steps),
        steps_done=run.done,
        waiting=list(run.waiting),
        unknown=list(run.unknown),
        activity=run.why or ", ".join(begun[:ACTIVITY_STEPS_MAX]),
        is_open=run.is_open,
        started_us=run.started_us,
        changed_us=run.changed_us,
        ended_us=run.ended_us or None,
    )


def of_file(status: RunView, made_from: Origin) -> WorkflowInfo:
    """The run of a plan file; its tasks are its steps."""
    run, now = status.run, status.now
    return WorkflowInfo(
        id=run.id,
        of="file",
        workflow=made_from.name,
        version=made_from.digest[:12],
        status=INTERRUPTED if now.state == INTERRUPTED else run.status,
        state=run.status if now.state == "idle" else now.state,
        why=now.error or run.why or None,
        parent=None,
        steps=len(run.tasks),
        steps_done=run.done,
        waiting=[each.ref for each in status.questions],
        unknown=[f"{each.id}/{tool}" for each in status.lost for tool in each.tools_open],
        file=made_from.file,
        activity=now.error or now.activity,
        is_open=run.is_open,
        started_us=run.created_us,
        changed_us=run.updated_us,
        ended_us=run.ended_us or None,
    )


def describe(step: Step) -> str:
    """What a step does: `charge(7)`, or the kind and name of one that is not a function."""
    if step.kind == "step":
        return f"{step.name}({step.about['given']})" if step.about.get("given") else step.name
    return step.name if step.name == step.kind else f"{step.kind} {step.name}"
