"""What going on with a run would do: shown, and not done."""

from __future__ import annotations

from typing import TYPE_CHECKING

from maos.cli import documents as shared
from maos.cli.agent import words
from maos.cli.plain import clean

if TYPE_CHECKING:
    from maos.app import Maos
    from maos.engine.orchestration import NextAction
    from maos.model.plan import Plan
    from maos.model.run import Run

SAID = {
    "kept": "done, and not run again",
    "taken_up": "its agent still works, and is taken up",
    "recorded": "its agent has finished; only that is left to record",
    "resumed": "goes on",
    "checked": "its checks are next",
    "begun": "has not begun",
}


async def show(m: Maos, run: Run, added: Plan | None, on_change: str, *, as_json: bool) -> int:
    """What would continue, what would not run again, what is unknown, and what each agent would be told."""
    from maos.cli.orchestrate import bundles, interrupted
    from maos.cli.workflow import changes
    from maos.engine import orchestration

    found = await orchestration.preview(m.attempts, run)
    new = [] if added is None else added.tasks
    held = interrupted.is_carried_out(run)
    foreign = await m.transfer.starts(run.id) if await m.transfer.waits(run.id) else None
    if as_json:
        tasks = [{**each._asdict(), "unknown": list(each.unknown)} for each in found]
        more = [{"task": task.name, "what": "added", "words": task.task, "needs": task.needs} for task in new]
        starts = {} if foreign is None else {"agreed": False, "starts": [bundles.act(each) for each in foreign]}
        document = {"kind": "dry_run", "run": run.id, "carried_out": held, "tasks": [*tasks, *more], **starts,
                    **changes.document(run, on_change)}  # fmt: skip
        shared.show_line(document)
        return 0
    from maos.cli import render

    status = "interrupted" if interrupted.is_interrupted(run) else run.status
    render.line((clean(run.id), "bold"), f" is {status}, {run.done} of {len(run.tasks)} tasks are done")
    if held:
        render.line(f"  process {run.owner.get('pid')} on {clean(str(run.owner.get('host')))} carries it out")
    width = max(len(name) for name in run.tasks)
    for each in found:
        _show(each, width)
    for task in new:
        render.line("  ", (clean(task.name).ljust(width), "bold"), "  is added: ", words.one_line(task.task, 80))
    changes.show(run, on_change)
    if foreign is not None:
        render.line(("it came with a file, and nobody has agreed to it yet", "yellow"))
        bundles.show_acts(run, foreign)
    return 0


def _show(each: NextAction, width: int) -> None:
    from maos.cli import render

    why = f" ({words.one_line(each.why, 100)})" if each.why and each.what != "begun" else ""
    style = "dim" if each.what in ("kept", "begun") else ""
    render.line("  ", (clean(each.task).ljust(width), "bold"), "  ", (f"{SAID[each.what]}{why}", style))
    for tool in each.unknown:
        render.line((f"    unknown whether it took effect: {words.tool(tool['name'], tool['input'])}", "yellow"))
    if each.what == "resumed" and each.words:
        render.line(("    and is told:", "dim"))
        for line in each.words.splitlines():
            render.line(("    │ ", "dim"), clean(line))
