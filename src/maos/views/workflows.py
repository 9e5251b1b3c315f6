"""Workflow runs as front ends list them: those of functions, and runs that were made from plan files."""

from __future__ import annotations

from maos.engine.streams import WorkflowReader
from maos.engine.workflow_status import Status
from maos.errors import NotFound
from maos.model.plan_file import Origin, origin
from maos.model.read_models import WorkflowInfo
from maos.model.run import Run
from maos.model.workflow import INTERRUPTED, STARTED, VALUE, Step, WorkflowRun
from maos.runs.status import RunView, RunViews

ACTIVITY_STEPS_MAX = 3
NEEDS_PERSON = "waiting_for_user"


async def list_all(
    runs: RunViews, workflows: WorkflowReader, status: str = "", *, since_us: int | None = None
) -> list[WorkflowInfo]:
    """All workflow runs, or those that have a status now: open ones first, and the newest first. With `since_us`, of
    those that ended only the ones that did since: the others are not read."""
    everything = since_us is None
    found = [of_function(each) async for each in (workflows.all() if everything else workflows.open(since_us=since_us))]
    async for run in runs.views() if everything else runs.open(since_us=since_us):
        if (made_from := origin(run)) is not None:
            found.append(of_file(await runs.status_of(run), made_from))
    chosen = [each for each in found if status in ("", each.status)]
    return sorted(chosen, key=lambda each: (not each.is_open, -each.changed_us))


async def latest(runs: RunViews, workflows: WorkflowReader) -> WorkflowRun | Run:
    """The workflow run that was changed last, of those that can be resumed."""
    found: list[tuple[int, WorkflowRun | Run]] = []
    async for each in workflows.open():
        if not each.parent:
            found.append((each.changed_us, each))
    async for run in runs.views():
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
        error=run.cause,
        started_us=run.started_us,
        changed_us=run.changed_us,
        ended_us=run.ended_us or None,
    )


def of_file(status: RunView, made_from: Origin) -> WorkflowInfo:
    """The run of a plan file; its tasks are its steps."""
    run, now = status.run, status.now
    state = NEEDS_PERSON if now.needs_person and now.state == "working" else now.state
    return WorkflowInfo(
        id=run.id,
        of="file",
        workflow=made_from.name,
        version=made_from.digest[:12],
        status=status.status,
        state=run.status if state == "idle" else state,
        why=now.error or run.why or None,
        parent=None,
        steps=len(run.tasks),
        steps_done=run.done,
        waiting=[each.ref for each in status.questions],
        unknown=[f"{each.id}/{tool}" for each in status.lost for tool in each.known.unknown],
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
    return step.name if step.kind in (step.name, VALUE) else f"{step.kind} {step.name}"
