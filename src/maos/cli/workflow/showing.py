"""How a workflow stands: in a line, on a page, and as it happens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from maos.cli import documents as shared
from maos.cli.commands import LazyCommand, json_option
from maos.cli.database import DatabaseTarget
from maos.cli.documents import Document, time
from maos.cli.plain import clean, shorten

if TYPE_CHECKING:
    from maos.app import Maos
    from maos.model.workflow import Step, WorkflowRun
    from maos.runs.status import RunView
    from maos.workflows.handle import Handle
    from maos.workflows.status import Status

CALLS_SHOWN_MAX = 40


@click.command(cls=LazyCommand, examples=["maos workflow show nightly-1", "maos workflow show nightly-1 --all --json"])
@click.argument("id", metavar="ID")
@click.option("--all", "everything", is_flag=True, help="All calls, however many.")
@json_option
@click.pass_obj
def show(database: DatabaseTarget, id: str, everything: bool, as_json: bool) -> None:
    """Show a workflow: its calls with their outcomes, what it waits for, and what nobody knows.

    One that was made from a file is shown as `maos orchestration status` does.
    """

    async def work(m: Maos) -> WorkflowRun | RunView:
        from maos.cli.workflow import finding
        from maos.model.run import Run

        found = await finding.by_id(m, id)
        return await m.runs.status_of(found) if isinstance(found, Run) else found

    from maos.runs.status import RunView

    found = database.read(work)
    if isinstance(found, RunView):
        from maos.cli.runs import page as pages
        from maos.cli.runs import status as showing

        if as_json:
            shared.show({**showing.document(found, tasks=True, said=None), **file_summary(found)})
        else:
            pages.show(found, tasks=True, messages=None)
    elif as_json:
        shared.show(document(found))
    else:
        page(found, everything=everything)


def page(flow: WorkflowRun, *, everything: bool = False) -> None:
    """A workflow for a person."""
    from maos.cli import render

    render.line(
        (clean(flow.id), "bold"), f"  {clean(flow.name)} {clean(flow.definition)}".rstrip() + "  ",
        (spoken(flow), _colour(flow)),
    )  # fmt: skip
    if flow.why:
        render.line(f"  {clean(flow.why)}")
    for name, value in flow.published.items():
        render.line((f"  {clean(name)}: ", "dim"), render.compact(value))
    calls = list(flow.steps.items())
    shown = calls if everything else calls[-CALLS_SHOWN_MAX:]
    if len(shown) < len(calls):
        render.line((f"  … {len(calls) - len(shown)} earlier calls; --all shows them", "dim"))
    columns = (
        render.Column("call"), render.Column("what", yields=1), render.Column("status"),
        render.Column("tries", right=True), render.Column("outcome", style="dim", yields=2),
    )  # fmt: skip
    if shown:
        render.table(
            columns, [(step_id, what(call), call.status, str(call.tries), _said(call)) for step_id, call in shown]
        )
    for step_id in flow.unknown:
        render.line(("unknown: ", "bold red"), f"nobody knows whether call {step_id} took effect; look, then")
        render.line(f"  maos workflow settle {flow.id} {step_id} done --value JSON | failed --why TEXT | again")
    for step_id, call in flow.waiting.items():
        if call.kind == "gate":
            render.line(("asks: ", "bold yellow"), clean(call.name))
            render.line(f"  maos answer {flow.id}/{step_id} ANSWER")
        elif call.kind == "signal":
            render.line(("waits: ", "bold yellow"), f"maos workflow signal {flow.id} {clean(call.name)} [JSON]")
    ending(flow, brief=True)


def ending(flow: WorkflowRun, *, brief: bool = False) -> None:
    """What became of a workflow, with what to do next."""
    from maos.cli import render

    if flow.status == "completed":
        render.line(("result: ", "bold green"), render.compact(flow.result))
    elif not brief:
        render.line((f"{flow.id} is {spoken(flow)}", _colour(flow)), f": {clean(flow.why)}" if flow.why else "")
        if flow.is_open:
            render.line(f"go on with it: maos workflow resume {flow.id}")


def go_on(flow: WorkflowRun) -> str:
    """The command that resumes a workflow that stopped by itself; empty when it runs, is paused or has ended."""
    return f"maos workflow resume {flow.id}" if _status(flow).needs_resume else ""


def _status(flow: WorkflowRun) -> Status:
    from maos.workflows.status import Status

    return Status.of(flow)


def trouble(flow: WorkflowRun) -> None:
    """A workflow that does not go on by itself, and what to do."""
    from maos.cli import render

    state = "changed" if flow.status == "changed" else "interrupted"
    why = f": {clean(flow.why)}" if flow.why else ""
    render.line(("! ", "bold red"), (clean(flow.id), "bold"), " is ", (state, "bold red"), why)
    render.line(("  to go on: ", "dim"), (go_on(flow), "bold"))


async def narrate(m: Maos, handle: Handle[Any]) -> None:
    """Print what a person should know while a workflow runs."""
    from maos.cli.failures import note

    async for each in m.workflows.notices(handle.id, after=max(0, handle.flow.version - 1)):
        if each.what == "waits":
            how = f"maos answer {handle.id}/{each.step_id} ANSWER" if each.kind == "gate" else (
                f"maos workflow signal {handle.id} {each.name} [JSON]")  # fmt: skip
            note(f"waits for {clean(each.name)!r}: {how}")
        elif each.what == "unknown":
            note(f"nobody knows whether call {each.step_id} took effect: maos workflow settle {handle.id} "
                 f"{each.step_id} done|failed|again")  # fmt: skip
        else:
            note(f"call {each.step_id} failed and is tried again: {clean(each.message)}")


def summary(flow: WorkflowRun) -> Document:
    """A workflow in a list."""
    return {
        "id": flow.id,
        "of": "function",
        "workflow": flow.name,
        "version": flow.definition,
        "status": _status(flow).name,
        "why": flow.why or None,
        "parent": flow.parent or None,
        "calls": len(flow.steps),
        "calls_done": flow.done,
        "waiting": list(flow.waiting),
        "unknown": list(flow.unknown),
        **time(flow.started_us, "started"),
        **time(flow.changed_us, "changed"),
        **time(flow.ended_us or None, "ended"),
    }


def file_summary(standing: RunView) -> Document:
    """The run of a plan file in the same list."""
    from maos.workflows.file_changes import origin
    from maos.workflows.status import unfinished_tools

    run = standing.run
    made_from = origin(run)
    assert made_from is not None
    return {
        "id": run.id,
        "of": "file",
        "workflow": made_from.name,
        "version": made_from.digest[:12],
        "status": file_status(standing),
        "why": standing.now.error or run.why or None,
        "parent": None,
        "calls": len(run.tasks),
        "calls_done": run.done,
        "waiting": [each.ref for each in standing.questions],
        "unknown": unfinished_tools(standing.attempts.values()),
        "file": made_from.file,
        **time(run.created_us, "started"),
        **time(run.updated_us, "changed"),
        **time(run.ended_us or None, "ended"),
    }


def file_status(standing: RunView) -> str:
    """The status of the run of a plan file, including whether a process executes it."""
    return "interrupted" if standing.now.state == "interrupted" else standing.run.status


def document(flow: WorkflowRun) -> Document:
    """All that is known of a workflow."""
    import msgspec

    calls: Any = {step_id: msgspec.to_builtins(call) for step_id, call in flow.steps.items()}
    return {
        **summary(flow),
        "arguments": flow.arguments,
        "options": flow.options,
        "result": flow.result,
        "error": flow.error,
        "published": flow.published,
        "checkpoints": [msgspec.to_builtins(each) for each in flow.checkpoints],
        "calls": calls,
    }


def spoken(flow: WorkflowRun) -> str:
    """The status as a person would say it."""
    status = _status(flow)
    if status.name == "interrupted":
        return status.name
    return {"resolve": "waits for you", "answer": "asks you"}.get(status.needs_person, status.name)


def doing(flow: WorkflowRun) -> str:
    """What it does now, or what is wrong."""
    if flow.why:
        return flow.why
    begun = [call for call in flow.steps.values() if call.status == "started"]
    return ", ".join(what(call) for call in begun[:3])


def _colour(flow: WorkflowRun) -> str:
    return {"completed": "green", "failed": "red", "cancelled": "red", "changed": "yellow"}.get(flow.status, "cyan")


def what(call: Step) -> str:
    """What a call does, as a person would say it."""
    given = f"({call.about['given']})" if call.about.get("given") else ""
    return f"{call.name}{given}" if call.kind == "step" else f"{call.kind} {call.name}"


def _said(call: Step) -> str:
    from maos.cli import render

    if call.error and call.status != "done":
        return f"{call.error.get('type', '')}: {call.error.get('message', '')}"
    return shorten(render.compact(call.result), 80) if call.result is not None else ""
