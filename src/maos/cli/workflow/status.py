"""`maos workflow list` and `show`: workflow runs in a line, on a page, and as notes while they run.

`maos workflow validate`, `graph` and `schema` are about plan files, before they are run.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from maos.app import Maos
from maos.cli import documents, remote, render, words
from maos.cli.commands import LazyCommand, json_command
from maos.cli.database import DatabaseTarget
from maos.cli.failures import FAILED, note
from maos.cli.render import Column, Listing, clean, shorten
from maos.cli.runs import page as run_page
from maos.cli.runs import plans
from maos.cli.workflow.page import WORKFLOWS
from maos.clock import SystemClock
from maos.errors import InvalidInput, NotFound
from maos.model.events.workflow import StepStarted, StepUnknown
from maos.model.plan import BadPlan, Problem, batches
from maos.model.plan_file import origin
from maos.model.read_models import WorkflowInfo
from maos.model.run import Run
from maos.model.workflow import Step, WorkflowRun
from maos.plans import graph as graphs
from maos.plans.parser import parse
from maos.plans.parser import schema as plan_schema
from maos.runs.status import RECENT_US, RunView
from maos.views import workflows as views
from maos.views.workflows import describe
from maos.workflows import Handle
from maos.workflows.status import STATUSES, Status

if TYPE_CHECKING:
    from maos.web.client import Client
    from maos.web.documents import WorkflowDetails

STEPS_SHOWN_MAX = 40
RESULT_CHARS = 80
STYLES = {"completed": "green", "failed": "red", "cancelled": "red", "changed": "yellow"}
OUTCOMES = "done --value JSON | failed --why TEXT | again"


def _outcome(step: Step) -> str:
    if step.error and step.status != "done":
        return f"{step.error.get('type', '')}: {step.error.get('message', '')}{words.by(step.by)}"
    return f"{shorten(render.compact(step.result), RESULT_CHARS)}{words.by(step.by)}" if step.result is not None else ""


STEPS: Listing[tuple[str, Step]] = Listing(
    "steps",
    (
        Column("step", lambda each: each[0]),
        Column("what", lambda each: describe(each[1]), yields=1),
        Column("status", lambda each: each[1].status),
        Column("tries", lambda each: str(each[1].tries), right=True),
        Column("outcome", lambda each: _outcome(each[1]), style="dim", yields=2),
    ),
)


async def find(m: Maos, id: str) -> WorkflowRun | Run:
    """The workflow run of an id or a unique prefix of one: of a function, or a run that was made from a file."""
    found = await m.ids.find(id, "workflow", "run")
    if found.kind == "workflow":
        return await m.workflows.get(found.id)
    run = await m.runs.get(found.id)
    if origin(run) is None:
        raise InvalidInput(
            f"{run.id} is a run that was made from no plan file",
            hint=f"`maos status {run.id}` shows it, `maos resume {run.id}` resumes it",
        )
    return run


@json_command("maos workflow list", "maos workflow list --all", "maos workflow list --status running --json")
@click.option("--all", "-a", "everything", is_flag=True, help="Also those that ended more than a week ago.")
@click.option("--status", type=click.Choice(STATUSES), help="Only those, however old.")
def list_(database: DatabaseTarget, everything: bool, status: str | None, as_json: bool) -> None:
    """List workflow runs, of functions and of files; open ones first."""

    async def read(m: Maos) -> list[WorkflowInfo]:
        since_us = None if everything or status else m.clock.now_us() - RECENT_US
        return await views.list_all(m.views.runs, m.views.workflows, status or "", since_us=since_us)

    async def read_remotely(client: Client) -> list[WorkflowInfo]:
        found = await remote.all_of(
            lambda cursor: client.workflows(status=status or "", limit=remote.PAGE, cursor=cursor), "workflows"
        )
        since_us = 0 if everything or status else SystemClock().now_us() - RECENT_US
        return [each for each in found if each.is_open or each.changed_us >= since_us]

    found = remote.call(read_remotely) if database.is_remote else database.read(read)
    WORKFLOWS.show(found, as_json=as_json, empty=f"no workflow is {status}" if status else "")


@json_command("maos workflow show nightly-1", "maos workflow show nightly-1 --all --json")
@click.argument("id", metavar="ID")
@click.option("--all", "everything", is_flag=True, help="All steps, however many.")
def show(database: DatabaseTarget, id: str, everything: bool, as_json: bool) -> None:
    """Show a workflow run: its steps, their outcomes, and what it waits for.

    A step whose outcome is unknown stands with the command that resolves it. The run of a plan file is shown as `maos
    status` shows it.
    """

    async def work(m: Maos) -> WorkflowRun | RunView:
        found = await find(m, id)
        return await m.runs.status_of(found) if isinstance(found, Run) else found

    if database.is_remote:
        _show_remote(id, everything=everything, as_json=as_json)
        return
    found = database.read(work)
    if isinstance(found, WorkflowRun):
        if as_json:
            documents.show(document(found))
        else:
            _show_page(found, everything=everything)
    elif as_json:
        made_from = origin(found.run)
        assert made_from is not None
        info = documents.of(views.of_file(found, made_from))
        documents.show({**run_page.document(found, tasks=True), **info})
    else:
        run_page.show(found, tasks=True, messages=None)


def _show_remote(id: str, *, everything: bool, as_json: bool) -> None:
    """Print a workflow run of a server: of a function with its steps, of a file as `maos status` prints it."""

    async def work(client: Client) -> WorkflowDetails | None:
        found = await remote.find_workflow(client, id)
        try:
            return await client.workflow(found)
        except NotFound:
            return None  # the run of a plan file

    found = remote.call(work)
    if found is None:
        remote.status(id, as_json=as_json)
        return
    if as_json:
        documents.show(found)
        return
    state = (run_page.STATES.get(found.state, found.state), STYLES.get(found.status, "cyan"))
    render.line((clean(found.id), "bold"), f"  {clean(found.workflow)}  ", state)
    if found.why:
        render.line(f"  {clean(found.why)}")
    names = ("kind", "name", "status", "tries", "result", "error", "at_us", "ended_us")
    steps = [
        (each.id, Step(**{name: getattr(each, name) for name in names}, about={"given": each.given}))
        for each in found.step_list
    ]
    _show_steps(steps, everything=everything)
    for step_id in found.unknown:
        _show_unknown(found.id, step_id)
    for step_id, step in steps:
        if step.status == "started":
            _show_wait(found.id, step_id, step)
    if found.status == "completed":
        render.line(("result: ", "bold green"), render.compact(found.result))


def document(run: WorkflowRun) -> documents.Document:
    """All that is known of a workflow run of a function."""
    names = (
        "arguments", "options", "result", "error", "published", "checkpoints", "steps", "started_by", "stopped_by",
    )  # fmt: skip
    return {**documents.of(views.of_function(run)), **{name: msgspec.to_builtins(getattr(run, name)) for name in names}}


def spoken(run: WorkflowRun) -> str:
    """The status of a workflow run as people say it."""
    state = views.of_function(run).state
    return run_page.STATES.get(state, state)


def _show_page(run: WorkflowRun, *, everything: bool) -> None:
    version = f" {clean(run.definition)}" if run.definition else ""
    status = (spoken(run), STYLES.get(run.status, "cyan"))
    render.line((clean(run.id), "bold"), f"  {clean(run.name)}{version}  ", status)
    if run.why:
        render.line(f"  {clean(run.why)}{words.by(run.stopped_by)}")
    for name, value in run.published.items():
        render.line((f"  {clean(name)}: ", "dim"), render.compact(value))
    _show_steps(list(run.steps.items()), everything=everything)
    for step_id in run.unknown:
        _show_unknown(run.id, step_id)
    for step_id, step in run.waiting.items():
        _show_wait(run.id, step_id, step)
    show_traceback(run)
    if run.status == "completed":
        show_end(run)
    elif run.status in ("failed", "cancelled"):
        _show_retry(run)
    elif Status.of(run).needs_resume or run.status == "paused":
        render.line(f"resume with: maos workflow resume {run.id}")


def _show_steps(steps: list[tuple[str, Step]], *, everything: bool) -> None:
    shown = steps if everything else steps[-STEPS_SHOWN_MAX:]
    if len(shown) < len(steps):
        render.line((f"  … {len(steps) - len(shown)} earlier steps; --all shows them", "dim"))
    if shown:
        STEPS.table(shown)


def _show_unknown(id: str, step_id: str) -> None:
    render.line(("unknown: ", "bold red"), f"step {step_id} may or may not have taken effect; look, then")
    render.line(f"  maos workflow resolve {id} {step_id} {OUTCOMES}")


def _show_wait(id: str, step_id: str, step: Step) -> None:
    if step.kind == "gate":
        render.line(("asks: ", "bold yellow"), clean(step.name))
        render.line(f"  maos answer {id}/{step_id} ANSWER")
    elif step.kind == "signal":
        render.line(("waits: ", "bold yellow"), f"maos workflow signal {id} {clean(step.name)} [JSON]")


def show_end(run: WorkflowRun) -> None:
    """Print the result of a workflow run, or why it has none and how to resume it."""
    if run.status == "completed":
        render.line(("result: ", "bold green"), render.compact(run.result))
        return
    style = STYLES.get(run.status, "cyan")
    show_traceback(run)
    render.line((f"{run.id} is {spoken(run)}", style), f": {clean(run.why)}" if run.why else "")
    if run.is_open:
        render.line(f"resume with: maos workflow resume {run.id}")
    elif run.status == "failed":
        _show_retry(run)


def show_traceback(run: WorkflowRun) -> None:
    """Print where a workflow run failed: the traceback of the step that ended it, else that of its own code."""
    render.traceback((run.cause or {}).get("traceback", ""))


def _show_retry(run: WorkflowRun) -> None:
    render.line(("retry with: ", "dim"), (f"maos retry {run.id}", "bold"), ("; finished steps are kept", "dim"))


async def narrate(m: Maos, handle: Handle[Any]) -> None:
    """Print what a person should know while a workflow run is executed."""
    id = handle.id
    async for each in m.workflows.notices(id, after=max(0, handle.run.version - 1)):
        if isinstance(each, StepStarted):
            gate, signal = f"answer {id}/{each.step_id} ANSWER", f"workflow signal {id} {each.name} [JSON]"
            note(f"waits for {clean(each.name)!r}: maos {gate if each.kind == 'gate' else signal}")
        elif isinstance(each, StepUnknown):
            resolve = f"maos workflow resolve {id} {each.step_id} done|failed|again"
            note(f"step {each.step_id} may or may not have taken effect: {resolve}")
        else:
            note(f"step {each.step_id} failed and is retried: {clean(each.error['message'] if each.error else '')}")


# --- plan files ---------------------------------------------------------------------------------------------------

variables_option = click.option(
    "--var", "variables", multiple=True, metavar="NAME=VALUE", help="A variable of the file. Can be repeated."
)


@json_command("maos workflow validate release.yaml", "maos workflow validate *.yaml --json")
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@variables_option
def validate(_database: DatabaseTarget, files: tuple[str, ...], variables: tuple[str, ...], as_json: bool) -> int:
    """Check plan files; problems are named by line and column."""
    found: list[documents.Document] = []
    tasks = 0
    for name in files:
        try:
            tasks += len(parse(plans.read(name, variables)).plan.tasks)
        except BadPlan as error:
            found += [_problem(name, each) for each in error.problems]
        except InvalidInput as error:
            found.append(_problem(name, Problem(name, error.what, error.hint)))
    if as_json:
        documents.show({"ok": not found, "problems": found})
    elif not found:
        render.line(f"ok: {render.many(tasks, 'task')}")
    for each in found if not as_json else ():
        hint = f" ({each['hint']})" if each["hint"] else ""
        click.echo(clean(f"{each['file']}:{each['line']}:{each['column']}: {each['what']}{hint}"), err=True)
    return FAILED if found else 0


def _problem(file: str, problem: Problem) -> documents.Document:
    line, column = problem.position or (1, 1)
    return {"file": file, "line": line, "column": column, "what": problem.what, "hint": problem.hint or None}


@json_command("maos workflow graph release.yaml --svg out.svg")
@click.argument("file", metavar="FILE")
@variables_option
@click.option("--svg", "picture", metavar="FILE", help="Draw it into a file instead; - is standard output.")
def graph(_database: DatabaseTarget, file: str, variables: tuple[str, ...], picture: str | None, as_json: bool) -> None:
    """Show which tasks of a plan file can run together.

    Each stands with the tasks that it needs.
    """
    plan = parse(plans.read(file, variables)).plan
    if as_json:
        documents.show({"batches": batches(plan), "needs": {task.name: task.needs for task in plan.tasks}})
    elif picture is None:
        for line in graphs.lines(plan):
            render.line(clean(line))
    elif picture == "-":
        sys.stdout.write(graphs.svg(plan))
    else:
        try:
            Path(picture).write_text(graphs.svg(plan), encoding="utf-8")
        except OSError as error:
            raise InvalidInput(
                f"{picture} cannot be written: {error.strerror}", hint="name a file in a folder that exists"
            ) from error


@click.command(cls=LazyCommand, examples=["maos workflow schema > plan.schema.json"])
def schema() -> None:
    """Print the JSON Schema of plan files, for editors."""
    documents.show(plan_schema())
