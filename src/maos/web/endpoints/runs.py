"""Runs over HTTP: list, start, steer, answer and look back."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from maos.errors import InvalidInput, KeyReused, NotFound
from maos.model.access import AccessObject, ScopeKind, Verb
from maos.model.events.parts import Limits
from maos.model.plan import Plan, Task
from maos.model.read_models import decided
from maos.model.run import Run
from maos.ops.access import parse_object
from maos.plans import source
from maos.plans.source import is_plan_file
from maos.runs import agent_types, plan_input
from maos.runs.file_changes import origin_of
from maos.runs.results import Blocked, Conflicted, Merged
from maos.runs.status import is_executing
from maos.web import documents as d
from maos.web import requests as r
from maos.web.api import Call, Tagged, page_of, within
from maos.web.conversion import (
    diff_info,
    difference_info,
    point_at,
    point_info,
    run_details,
    run_entry,
    task_info,
    travel_info,
    when,
)

RUN_ID_CHARS = 12


# --- reading -----------------------------------------------------------------------------------------------------


async def list_runs(call: Call) -> d.RunPage:
    """List runs, open ones first, then the newest first."""
    query: r.RunsQuery = call.query
    found, total = await call.m.runs.page(
        status=query.status, after=query.cursor, limit=query.limit + 1, seen=call.seen
    )
    shown = found[: query.limit]
    more = shown[-1].run.id if len(found) > query.limit else None
    return d.RunPage(runs=[run_entry(each) for each in shown], total=total, next=more)


async def get_run(call: Call) -> Tagged:
    """Show one run. Its ETag is its version."""
    run = await _run(call)
    if call.query.at:
        view, _said = await call.m.runs.status_at(await point_at(call, run, call.query.at))
        return run_details(view)
    return run_details(await call.m.runs.status_of(run))


async def list_tasks(call: Call) -> d.TaskPage:
    """List the tasks of a run, in the order of its plan."""
    query: r.TasksQuery = call.query
    run = await _run(call)
    names = [name for name, task in run.tasks.items() if query.status in ("", task.status)]
    chosen, more = page_of(names, lambda name: name, query.cursor, query.limit)
    return d.TaskPage(tasks=[task_info(run, name) for name in chosen], total=len(names), next=more)


async def list_events(call: Call) -> d.RunHistory:
    """List the events of a run, the oldest first: each is a version that it can be rolled back to."""
    query: r.HistoryQuery = call.query
    run = await _run(call)
    after = int(query.cursor) if query.cursor.isascii() and query.cursor.isdigit() else 0
    records = [each for each in await call.m.runs.versions(run.id) if each.version > after]
    shown = records[: query.limit]
    events = [d.of(each, d.RunEventEntry) for each in shown]
    return d.RunHistory(events=events, next=str(shown[-1].version) if len(records) > query.limit else None)


async def list_decisions(call: Call) -> d.DecisionList:
    """List the questions of a run that were answered, with who answered them, the newest first."""
    return d.DecisionList(decisions=decided(await _run(call)))


# --- starting ----------------------------------------------------------------------------------------------------


async def start_run(call: Call) -> Tagged:
    """Start a run of a request, of tasks, or of a plan file that the server's settings allow.

    It cannot name a command: see `docs/decisions/0034`. With an Idempotency-Key, a repeated request starts nothing.
    """
    call.check_executes()
    body: r.NewRun = call.body
    if sum(map(bool, (body.request, body.tasks, body.plan))) != 1:
        raise InvalidInput("it takes one of request, tasks and plan", hint="send exactly one of them")
    folder = _folder(call, body.folder)
    await call.require(Verb.START, parse_object(f"project/{folder}"))
    options, id = _options(body), ""
    if call.key:
        id = f"r-{call.key[:RUN_ID_CHARS]}"
        options["asked"] = hashlib.sha256(msgspec.json.encode(body)).hexdigest()
        if (repeated := await _repeated(call, id, options["asked"])) is not None:
            return repeated
    how: dict[str, Any] = {"folder": folder, "options": options, "id": id, "is_claimed": False}
    if body.request:
        run = await call.m.runs.start_request(body.request, is_approved=body.approved, **how)
    elif body.plan:
        run = await _start_file(call, body, how)
    else:
        run = await call.m.runs.start(_plan(body.tasks), **how)
    return run_details(await call.m.runs.status(run.id))


async def _repeated(call: Call, id: str, asked: str) -> Tagged | None:
    """The run that an earlier request with the same key has started; None when there is none."""
    try:
        view = await call.m.runs.status(id)
    except NotFound:
        return None
    if view.run.options.get("asked") != asked:
        raise KeyReused(call.request.headers["idempotency-key"])
    return run_details(view)


async def _start_file(call: Call, body: r.NewRun, how: dict[str, Any]) -> Run:
    """Start a plan file by its name: only from folders that the person who runs the server has named."""
    draft = source.load(_plan_file(body.plan, call.server.values.plans), variables=body.variables)
    valid = plan_input.validate(draft, agent_types.known(how["folder"]))
    if valid.parsed is not None:
        how["options"] |= origin_of(valid.parsed).option()
    return await call.m.runs.start(valid, is_vouched=True, **how)


def _plan_file(name: str, folders: Sequence[str]) -> Path:
    """The plan file of a name in one of some folders; NotFound when there is none."""
    if "/" not in name and not name.startswith(".") and is_plan_file(name):
        for each in folders:
            path = Path(each).expanduser() / name
            if path.is_file():
                return path
    hint = "put it into a folder of the setting serve.plans" if folders else "the setting serve.plans names no folder"
    raise NotFound(f"there is no plan file {name!r:.200}", hint=hint)


def _plan(tasks: Sequence[r.NewTask]) -> Plan:
    """A plan of tasks in words."""
    return Plan(tasks=[Task(name=each.name, task=each.task, agent=each.agent, needs=each.needs) for each in tasks])


def _options(body: r.NewRun) -> dict[str, Any]:
    """The options of a new run that the caller has chosen."""
    given = {"kind": body.kind, "model": body.model, "permission": body.permission, "concurrency": body.concurrency}
    budget = {"cost_usd": body.budget_usd, "tokens": body.budget_tokens}
    limits = {name: value for name, value in budget.items() if value}
    return {name: value for name, value in given.items() if value} | ({"budget": limits} if limits else {})


def _folder(call: Call, given: str) -> Path:
    """The folder that a run works in: one of those that are allowed, or below one."""
    allowed = [Path(each).expanduser().resolve() for each in call.server.values.folders] or [call.server.folder]
    folder = allowed[0] if not given else Path() if "\0" in given else Path(given).resolve()
    if not any(folder.is_relative_to(each) for each in allowed) or not folder.is_dir():
        raise InvalidInput(
            f"runs over HTTP cannot work in {given!r:.200}", hint="the setting serve.folders names folders"
        )
    return folder


# --- steering ----------------------------------------------------------------------------------------------------


async def pause_run(call: Call) -> Tagged:
    """Pause a run: its agents are stopped. Returns before they have ended if that takes longer than some seconds."""
    await within(call.m.runs.pause_and_wait(call.id, expected=call.expected))
    return await _now(call)


async def resume_run(call: Call) -> Tagged:
    """Resume a run that is paused, has failed or was interrupted: this server executes it."""
    call.check_executes()
    await call.m.runs.hand_over(call.id, expected=call.expected)
    return await _now(call)


async def update_run(call: Call) -> Tagged:
    """Change limits of a run, also while it is executed; of one that is paused, they count when it is resumed."""
    limits = Limits(**{name: getattr(call.body, name) for name in Limits.__struct_fields__})
    await within(call.m.runs.update(call.id, limits, expected=call.expected))
    return await _now(call)


async def cancel_run(call: Call) -> Tagged:
    """Cancel a run: its agents are stopped, and what is left is not started."""
    await within(call.m.runs.cancel(call.id, why=call.body.why or "cancelled", expected=call.expected))
    return await _now(call)


async def retry_tasks(call: Call) -> Tagged:
    """Retry failed tasks of a run, all by default; of a run that is not executed, when it is resumed."""
    await within(call.m.runs.retry(call.id, tasks=call.body.tasks, expected=call.expected))
    return await _now(call)


async def cancel_task(call: Call) -> Tagged:
    """Cancel one task of a run; it counts as failed until it is retried."""
    task, why = call.params["task"], call.body.why or "cancelled"
    await within(call.m.runs.cancel(call.id, task=task, why=why, expected=call.expected))
    return await _now(call)


async def skip_task(call: Call) -> Tagged:
    """Skip a task, so that tasks that need it can start."""
    await within(call.m.runs.skip(call.id, call.params["task"], reason=call.body.why, expected=call.expected))
    return await _now(call)


async def add_tasks(call: Call) -> Tagged:
    """Add tasks in words to a run; of one that has ended or is paused, they start when it is resumed."""
    run = await call.m.runs.get(call.id)
    added = plan_input.fitted(run, _plan(call.body.tasks))
    if is_executing(run):
        await call.m.runs.request_tasks(run.id, added.plan, expected=call.expected)
    else:
        await call.m.runs.add(run.id, added.plan, options=added.options, expected=call.expected)
    return await _now(call)


# --- points in time ----------------------------------------------------------------------------------------------


async def list_checkpoints(call: Call) -> d.PointList:
    """List the checkpoints of a run, the oldest first."""
    run = await _run(call)
    return d.PointList(checkpoints=[point_info(each) for each in await call.m.travel.checkpoints(run.id)])


async def make_checkpoint(call: Call) -> d.PointInfo:
    """Give the present state of a run a name; the files of agents that work are saved under it."""
    return point_info(await call.m.travel.checkpoint(call.id, call.body.name, expected=call.expected))


async def roll_back(call: Call) -> d.TravelInfo:
    """Roll a run back to a point in time; with `dry_run`, only show what that does. No engine may be executing it."""
    body: r.Rollback = call.body
    to = when(await call.m.runs.get(call.id), body.to) if body.to else None
    plan = await call.m.travel.rollback(
        call.id, to, without_files=body.without_files, dry_run=body.dry_run, expected=call.expected
    )
    return travel_info(plan, dry_run=body.dry_run)


async def fork_run(call: Call) -> d.TravelInfo:
    """Start a second run from a point in time; with `dry_run`, only show what that does.

    With an Idempotency-Key, a repeated request forks nothing more.
    """
    run, body = await call.m.runs.get(call.id), call.body
    # The new run is not part of this one: who may start runs in its project may fork it.
    await call.require(Verb.START, parse_object(f"project/{run.folder}"))
    into = body.into or (f"r-{call.key[:RUN_ID_CHARS]}" if call.key else "")
    at = when(run, body.at) if body.at else None
    plan = await call.m.travel.fork(
        run.id, at, into=into, without_files=body.without_files, dry_run=body.dry_run, expected=call.expected
    )
    return travel_info(plan, dry_run=body.dry_run)


async def compare_run(call: Call) -> d.DifferenceInfo:
    """Compare two points in time of a run, or a run with another one."""
    query: r.DiffQuery = call.query
    run = await _run(call)
    if query.other:
        await call.require(Verb.READ_OUTPUT, AccessObject(ScopeKind.RUN, query.other))
    other = await call.m.runs.get(query.other) if query.other else run
    before = when(run, query.before) if query.before else 1 if not query.other else None
    after = when(other, query.after) if query.after else None
    found = await call.m.travel.diff(run.id, before, after, other=query.other, patch=query.patch)
    return difference_info(found)


async def diff_run(call: Call) -> d.DiffInfo:
    """Show what the tasks of a run changed together, and with `patch` their lines."""
    run = await _run(call)
    summary = await call.m.runs.summary(run)
    files = None if summary.files is None else [d.of(each, d.FileChangeInfo) for each in summary.files]
    patch = ""
    if call.query.patch and files:
        patch = (await call.m.travel.diff(run.id, 1, patch=True)).patch
    return diff_info(files, patch)


async def list_task_files(call: Call) -> d.TaskFilesList:
    """List what each task of a run changed, in the order in which their work was merged; with `patch`, the lines."""
    found = await call.m.runs.task_files(call.id, patch=call.query.patch)
    tasks = []
    for each in found:
        changed = diff_info([d.of(file, d.FileChangeInfo) for file in each.files], each.patch or "")
        tasks.append(d.of(each, d.TaskFilesInfo, files=changed.files, patch=changed.patch, cut=changed.cut))
    return d.TaskFilesList(tasks=tasks)


async def merge_run(call: Call) -> d.MergeInfo:
    """Merge what the tasks of a run have done, all or nothing, into the branch that is checked out in its folder, or
    another branch: a commit for each task, or one commit with a message."""
    body: r.NewMerge = call.body
    found = await call.m.runs.merge(
        call.id,
        branch=body.branch,
        squash=body.squash,
        message=body.message,
        dry_run=body.dry_run,
        expected=call.expected,
    )
    match found:
        case Merged():
            return d.MergeInfo(
                outcome="merged",
                branch=found.branch,
                commit=found.commit,
                commits=len(found.commits),
                files=list(found.files),
                why="",
                hint="",
            )
        case Conflicted():
            return _not_merged(found, "conflicted", "\n".join(found.messages), "", body.branch)
        case Blocked():
            return _not_merged(found, "blocked", found.why, found.hint, body.branch)


# --- inside ------------------------------------------------------------------------------------------------------


def _not_merged(
    found: Conflicted | Blocked, outcome: Literal["conflicted", "blocked"], why: str, hint: str, branch: str
) -> d.MergeInfo:
    files = list(found.files)
    return d.MergeInfo(outcome=outcome, branch=branch, commit="", commits=0, files=files, why=why, hint=hint)


async def _run(call: Call) -> Run:
    """The run that is read."""
    return await call.m.runs.view(call.id)


async def _now(call: Call) -> Tagged:
    return run_details(await call.m.runs.status(call.id))
