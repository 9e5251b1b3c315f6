"""What going on with a function would do: shown, and not done."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from maos.cli import documents as shared
from maos.cli.plain import clean
from maos.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from maos.app import Maos
    from maos.model.workflow import Step, WorkflowRun
    from maos.workflows.definition import StepDefinition, Workflow

SAID = {
    "again": "was interrupted, and is called again: it is idempotent",
    "probe": "was interrupted: its probe is asked what became of it",
    "unknown": "nobody knows whether it took effect, and you are asked",
    "interrupted": "was interrupted: called again if it is idempotent, else its probe or you are asked",
    "later": "failed, and is tried again",
    "settled": "goes on as you have settled it",
    "waits": "is waited for",
    "taken_up": "is taken up",
}


class NextStep(NamedTuple):
    """A call that has begun and has no outcome."""

    step_id: str
    call: Step
    what: str


async def settled(m: Maos, flow: WorkflowRun) -> set[str]:
    """Places of steps that somebody has settled, and nobody has taken note of."""
    from maos.model.attempt import inbox

    waiting = m.journal.read(inbox(flow.id), after=flow.inbox_cursor)
    return {str(each.data["step_id"]) async for each in waiting if each.type == "resolve_requested"}


def show(flow: WorkflowRun, on_change: str, known: set[str], where: Mapping[str, Any], *, as_json: bool) -> None:
    """Whether the definition is the same, which calls are not made again, and what becomes of those under way.

    `known` are places of steps that somebody has settled; `where` is the file that the definition may be loaded from.
    """
    definition, state = _definition(flow, where)
    open_ = [(step_id, call) for step_id, call in flow.steps.items() if _is_open(call)]
    found = [NextStep(*each, "settled") if each[0] in known else _next(*each, definition) for each in open_]
    unknown = [each.step_id for each in found if each.what == "unknown"]
    refused = flow.is_open and (state == "gone" or (state == "changed" and on_change == "refuse"))
    if as_json:
        calls = [
            {"call": each.step_id, "kind": each.call.kind, "name": each.call.name, "next": each.what,
             "given": each.call.about.get("given")}
            for each in found
        ]  # fmt: skip
        shared.show(
            {"kind": "dry_run", "id": flow.id, "status": flow.status, "definition": state, "on_change": on_change,
             "refused": refused, "calls_done": flow.done, "calls": calls, "unknown": unknown}
        )  # fmt: skip
        return
    from maos.cli import render
    from maos.cli.workflow import showing

    render.line((clean(flow.id), "bold"), f" is {showing.spoken(flow)}, {render.many(flow.done, 'call')} done")
    if not flow.is_open:
        render.line("  it has ended, and only tells its result")
        return
    if state == "gone":
        render.line(
            ("  its definition is not there: ", "yellow"),
            clean(str(where.get("file", ""))) or "it came from elsewhere",
            "; name it with --from",
        )
    elif state == "changed":
        meant = "it is refused; --on-change replay goes on with it if it makes the same calls"
        if on_change == "replay":
            meant = "it goes on with the new code as long as that makes the calls that were made"
        render.line(("  its code has changed since: ", "yellow"), meant)
    for each in found:
        style = "yellow" if each.what in ("unknown", "interrupted") else ""
        render.line(f"  {each.step_id}  ", (clean(showing.what(each.call)), "bold"), "  ", (SAID[each.what], style))
        if each.what == "unknown":
            render.line(f"     maos workflow settle {flow.id} {each.step_id} done --value JSON | failed | again")


def _definition(flow: WorkflowRun, where: Mapping[str, Any]) -> tuple[Workflow[..., Any] | None, str]:
    """The definition as it is now, and whether it is the same, changed, or gone."""
    from maos.cli.workflow import loading

    try:
        found = loading.recorded(flow.name, flow.definition, where)
    except (NotFound, InvalidInput):
        return None, "gone"
    return found, "same" if found.code == flow.code else "changed"


def _is_open(call: Step) -> bool:
    return call.status in ("started", "unknown")


def _next(step_id: str, call: Step, definition: Workflow[..., Any] | None) -> NextStep:
    if call.status == "unknown":
        return NextStep(step_id, call, "unknown")
    if call.kind == "step":
        if call.until_us:
            return NextStep(step_id, call, "later")
        step = _step(call.name, definition)
        if step is None:
            return NextStep(step_id, call, "interrupted")
        return NextStep(step_id, call, "again" if step.idempotent else "unknown" if step.probe is None else "probe")
    return NextStep(step_id, call, "taken_up" if call.kind in ("child", "agent") else "waits")


def _step(name: str, definition: Workflow[..., Any] | None) -> StepDefinition[..., Any] | None:
    """The step of a name that a workflow's function can see; None when there is not exactly one."""
    from maos.workflows.definition import StepDefinition

    if definition is None:
        return None
    found = {id(each): each for each in definition.function.__globals__.values() if isinstance(each, StepDefinition)}
    named = [each for each in found.values() if each.name == name]
    return named[0] if len(named) == 1 else None
