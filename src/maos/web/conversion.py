"""Read models of the services as documents of the API."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from maos.errors import InvalidInput
from maos.model.plan_file import OPTION as FROM_FILE
from maos.model.question import PERMISSION, UNKNOWN, WORKFLOW
from maos.runs.budgets import is_at_limit
from maos.runs.status import is_executing
from maos.web import documents as d
from maos.web import system_documents as sd
from maos.web.api import Call, Tagged

if TYPE_CHECKING:
    from maos.app import Maos
    from maos.model.access import Credential, Verb
    from maos.model.question import Open
    from maos.model.read_models import AgentStatus
    from maos.model.run import Run
    from maos.runs.status import RunView
    from maos.travel.points_in_time import Difference, PointInTime, When
    from maos.travel.service import TravelPlan
    from maos.views.questions import Given

PATCH_CHARS_MAX = 1_000_000
RESULT_CHARS_MAX = 4_000
ABOUT_CHARS_MAX = 200


def run_entry(view: RunView, kind: type[Any] = d.RunEntry, **more: Any) -> Any:
    """A run in a list."""
    run, now, spent = view.run, view.now, view.spent
    return kind(
        id=run.id,
        version=run.version,
        request=run.request,
        status=run.status,
        state=now.state,
        activity=now.activity,
        error=now.error,
        to_do=view.now.to_do,
        needs_person=now.needs_person,
        progress=run.progress,
        tasks=dict(Counter(str(each.status) for each in run.tasks.values())),
        agents_at_work=sum(each.is_open for each in view.attempts.values()),
        questions=len(view.questions),
        messages=view.messages,
        cost_usd=spent.cost_usd,
        estimated_usd=spent.estimated_usd,
        tokens=spent.tokens,
        unpriced_tokens=spent.unpriced_tokens,
        left_usd=view.left.usd,
        created_us=run.created_us,
        updated_us=run.updated_us,
        ended_us=run.ended_us,
        until_us=now.until_us,
        created_by=run.created_by,
        stopped_by=run.stopped_by,
        folder=run.folder,
        pinned=view.permanent is not None,
        resumable=bool(view.resumable),
        **more,
    )


def run_details(view: RunView) -> Tagged:
    """Everything about a run but its tasks."""
    run, owner = view.run, view.run.owner
    engine = None
    if owner:
        engine = d.EngineInfo(pid=int(owner["pid"]), host=str(owner["host"]), alive=is_executing(run))
    proposal = None
    if run.proposal is not None:
        proposal = d.ProposedPlanInfo(summary=run.proposal.summary, tasks=run.proposal.tasks)
    details = run_entry(
        view,
        d.RunDetails,
        summary=run.summary,
        why=run.why,
        options=_options(run),
        commit=run.commit,
        branch=run.branch,
        origin=dict(run.origin) if run.origin else None,
        engine=engine,
        limit=run.limit if is_at_limit(run) else "",
        restored=run.times_restored,
        stuck=list(view.now.stuck),
        checkpoints=[d.of(each, d.CheckpointInfo) for each in run.checkpoints],
        pending=[question_info(each, run) for each in view.questions],
        proposal=proposal,
    )
    return Tagged(details, run.version)


def _options(run: Run) -> dict[str, Any]:
    """The options of a run, of the file that it was made from only the name: the steps in it can be thousands."""
    made_from = run.options.get(FROM_FILE)
    return {**run.options, **({FROM_FILE: {"file": made_from["file"]}} if made_from else {})}


def task_info(run: Run, name: str) -> d.TaskInfo:
    """A task of a run."""
    task = run.tasks[name]
    plan = task.plan
    usual = "shell" if plan.get("command") else run.options.get("kind", "")
    return d.TaskInfo(
        name=name,
        description=str(plan.get("task") or " ".join(plan.get("command", ()))),
        is_command=not plan.get("task") and bool(plan.get("command")),
        agent=run.agent(name),
        kind=str(plan.get("agent") or plan.get("kind") or usual),
        status=task.status,
        needs=task.needs,
        attempts=task.attempts,
        tries=task.tries,
        result=task.result[:RESULT_CHARS_MAX],
        why=task.why,
        failure=task.failure,
        cost_usd=task.cost_usd,
        estimated_usd=task.estimated_usd,
        tokens=task.tokens,
        started_us=task.started_us,
        ended_us=task.ended_us,
        worked_us=task.worked_us,
        not_before_us=task.not_before_us,
        gates=len(plan.get("gates", ())),
        gates_passed=task.gate,
        conflict=task.conflict,
    )


async def question_infos(m: Maos, questions: Iterable[Open]) -> list[d.QuestionInfo]:
    """Open questions, each with what its run is about."""
    found: list[d.QuestionInfo] = []
    runs: dict[str, Run] = {}
    for each in questions:
        id = each.run or ("" if each.kind in (WORKFLOW, UNKNOWN, PERMISSION) else each.owner)
        if id and id not in runs:
            runs[id] = await m.runs.view(id)
        found.append(question_info(each, runs[id] if id else None))
    return found


def question_info(question: Open, run: Run | None) -> d.QuestionInfo:
    """An open question of a run, or of what has none."""
    lists = {name: list(getattr(question, name)) for name in ("choices", "meanings", "suggestions", "asked_by")}
    about = run.request.strip().partition("\n")[0][:ABOUT_CHARS_MAX] if run is not None else ""
    return d.of(question, d.QuestionInfo, run=run.id if run is not None else "", about=about, **lists)


def diff_info(files: Sequence[d.FileChangeInfo] | None, patch: str) -> d.DiffInfo:
    """Changed files, and the lines up to a limit."""
    shown = None if files is None else list(files)
    return d.DiffInfo(files=shown, patch=patch[:PATCH_CHARS_MAX], cut=len(patch) > PATCH_CHARS_MAX)


def point_info(point: PointInTime) -> d.PointInfo:
    """A point in time."""
    return d.of(point, d.PointInfo)


def travel_info(plan: TravelPlan, *, dry_run: bool) -> d.TravelInfo:
    """What a rollback or a fork does, or would do."""
    lists = {"questions": list(plan.questions), "stopped": list(plan.stopped), "notes": list(plan.notes)}
    return d.of(plan, d.TravelInfo, dry_run=dry_run, **lists)


def difference_info(found: Difference) -> d.DifferenceInfo:
    """What differs between two points in time."""
    return d.DifferenceInfo(
        before=point_info(found.before.point),
        after=point_info(found.after.point),
        tasks=found.tasks,
        questions=found.questions,
        files=None if found.files is None else [d.of(each, d.FileChangeInfo) for each in found.files],
        patch=found.patch[:PATCH_CHARS_MAX],
        cut=len(found.patch) > PATCH_CHARS_MAX,
    )


def agent_info(status: AgentStatus) -> AgentStatus:
    """An agent in a list."""
    return replace(status, result=status.result[:RESULT_CHARS_MAX])


def answer_info(given: Given) -> d.AnswerInfo:
    """An answer that was recorded."""
    return d.AnswerInfo(ref=given.question.ref, answer=given.answer, by=given.by, running=given.running)


# --- points in time ---------------------------------------------------------------------------------------------


async def point_at(call: Call, run: Run, text: str) -> PointInTime:
    """A point in time of a run as a caller names it."""
    return await call.m.travel.point(run.id, when(run, text))


def when(run: Run, text: str) -> When:
    """A point in time as a caller writes it."""
    if any(each.name == text for each in run.checkpoints) or text.startswith("@"):
        return text
    digits = text.removeprefix("-")
    if digits.isascii() and digits.isdigit() and len(digits) < 19:
        return int(text)
    try:
        return datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError):
        hint = "give a version, the name of a checkpoint, @POSITION or a time"
        raise InvalidInput(f"{run.id} has no point in time {text!r:.100}", hint=hint) from None


def identity_of(known: Credential, verbs: list[Verb]) -> sd.Identity:
    """Who a credential stands for."""
    return sd.Identity(
        principal=str(known.principal),
        role=known.role,
        on=list(known.on),
        kind=known.kind,
        expires_us=known.expires_us,
        verbs=verbs,
    )
