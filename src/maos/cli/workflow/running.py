"""`maos workflow run` and `maos workflow resume`."""

from __future__ import annotations

import asyncio
import json
import signal
from typing import TYPE_CHECKING, Any

import click

from maos.cli import documents as shared
from maos.cli.commands import Command, json_lines_option, json_option
from maos.cli.database import Target
from maos.cli.failures import FAILED, note
from maos.cli.orchestrate.options import new_run, notify_option, summary_option
from maos.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from maos.app import Maos
    from maos.model.flow import Flow
    from maos.workflows.workflows import Handle

INTERRUPTED = 130


@click.command(
    cls=Command,
    examples=[
        "maos workflow run release.yaml --var version=1.2 --auto",
        "maos workflow run nightly.py:nightly Berlin",
        "maos workflow run nightly.py --arg city=Berlin --arg days=3 --id nightly-1",
        "maos workflow run jobs.billing:bill order-7 --checkpoint every_n_steps --every 50",
    ],
)
@click.argument("target", metavar="TARGET")
@click.argument("args", metavar="[ARGUMENT]...", nargs=-1)
@click.option("--arg", "named", multiple=True, metavar="NAME=VALUE", help="An argument by name. Can be repeated.")
@click.option("--id", default="", help="What it is called; one that exists is gone on with.")
@click.option(
    "--checkpoint", "frequency", type=click.Choice(["every_step", "every_n_steps", "on_gates", "time_based", "manual"]),
    default="every_step", show_default=True, help="How often outcomes of idempotent steps are made safe.",
)  # fmt: skip
@click.option("--every", type=click.IntRange(min=1), default=10, show_default=True, help="For every_n_steps.")
@click.option(
    "--interval", type=click.FloatRange(min=0.1), default=30.0, show_default=True, help="For time_based, in s."
)
@click.option("--var", "variables", multiple=True, metavar="NAME=VALUE", help="A variable of a file. Can be repeated.")
@click.option("--auto", is_flag=True, help="Carry a file out without asking.")
@new_run
@summary_option
@notify_option
@json_lines_option
@click.pass_context
def run(
    ctx: click.Context,
    /,
    target: str,
    args: tuple[str, ...],
    named: tuple[str, ...],
    id: str,
    frequency: str,
    every: int,
    interval: float,
    variables: tuple[str, ...],
    auto: bool,
    summary: str,
    notify: tuple[str, ...],
    as_json: bool,
    **given: Any,
) -> None:
    """Run a workflow: a FILE.yaml, or a function as FILE.py:FUNCTION or MODULE:FUNCTION.

    A file is carried out by agents as `maos orchestrate` does, and takes its options. A function is given ARGUMENT and
    --arg, as JSON where they are JSON, else as text; Ctrl+C pauses it when the steps that run have ended, and `maos
    workflow resume` goes on.
    """
    from maos.cli.workflow import files

    if files.is_file(target):
        if args or named or id:
            raise InvalidInput("a workflow file takes no arguments", hint="use --var NAME=VALUE")
        files.carry_out(ctx, target, variables, auto=auto, summary=summary, notify=notify, as_json=as_json, given=given)
    if variables:
        raise InvalidInput("a function has no variables", hint="use --arg NAME=VALUE")
    from maos.cli.workflow import loading

    definition = loading.by_name(target)
    words = [value(each) for each in args]
    by_name = dict(named_value(each) for each in named)
    checkpoints = {"frequency": frequency, "every": every, "interval_s": interval}
    options = {} if frequency == "every_step" else {"checkpoints": checkpoints}

    async def work(m: Maos) -> int:
        handle = await m.workflows.start(definition, *words, id=id, options=options, **by_name)
        return await _until_ended(handle, as_json=as_json)

    database: Target = ctx.obj
    ctx.exit(database.write(work, create=True))


@click.command(
    cls=Command,
    examples=[
        "maos workflow resume",
        "maos workflow resume nightly-1",
        "maos workflow resume nightly-1 --on-change replay",
    ],
)
@click.argument("id", metavar="[ID]", required=False, default="")
@click.option("--workflow-id", default="", help="The same as ID.")
@click.option("--from", "place", default="", metavar="FILE.py", help="Where its definition is now, if it was moved.")
@click.option(
    "--on-change", type=click.Choice(["refuse", "replay"]), default="refuse", show_default=True,
    help="When its code has changed since: refuse, or go on with the new code if that makes the same calls.",
)  # fmt: skip
@click.option("--trust", is_flag=True, help="Agree to go on with a workflow that came with a file.")
@json_option
@click.pass_context
def resume(
    ctx: click.Context, id: str, workflow_id: str, place: str, on_change: str, trust: bool, as_json: bool
) -> None:
    """Go on with a workflow that was paused or interrupted.

    Without ID, the latest that has not ended. Steps with an outcome are not called again. A step that was interrupted
    is called again if it is idempotent; else you are asked what became of it.
    """
    from maos.cli.workflow import loading

    async def work(m: Maos) -> int:
        flow = await m.workflows.get(id or workflow_id) if id or workflow_id else await _latest(m)
        if place:
            loading.by_name(place)
        definition = loading.recorded(flow.name, flow.definition, flow.options.get("where", {}))
        if trust:
            from maos.clock import SystemClock
            from maos.engine import consent

            await consent.agree(m.journal, SystemClock(), flow.id)
        handle = await m.workflows.resume(flow.id, workflow=definition, on_change=on_change)
        return await _until_ended(handle, as_json=as_json)

    database: Target = ctx.obj
    ctx.exit(database.write(work))


async def _latest(m: Maos) -> Flow:
    found = [flow async for flow in m.workflows.all() if flow.is_open and not flow.parent]
    if not found:
        raise NotFound("there is no workflow to go on with", hint="`maos workflow list` shows all")
    return max(found, key=lambda each: each.changed_us)


async def _until_ended(handle: Handle, *, as_json: bool) -> int:
    from maos.cli.signals import heard
    from maos.cli.workflow import showing

    interrupted = False

    def stop(_why: signal.Signals | None = None) -> None:
        nonlocal interrupted
        if interrupted:
            task.cancel()
        interrupted = True
        pausing.append(asyncio.create_task(handle.pause("Ctrl+C")))

    pausing: list[asyncio.Task[Any]] = []
    task = asyncio.create_task(handle.wait())
    watching = asyncio.create_task(showing.narrate(handle)) if not as_json else None
    with heard(interrupted=stop, sent_away=stop):
        try:
            flow = await task
        except asyncio.CancelledError:
            note(f"interrupted; `maos workflow resume {handle.id}` goes on")
            return INTERRUPTED
        finally:
            if watching is not None:
                watching.cancel()
            await asyncio.gather(*pausing, *([watching] if watching else []), return_exceptions=True)
    if as_json:
        shared.show(showing.document(flow))
    else:
        showing.ending(flow)
    if flow.status == "completed":
        return 0
    return INTERRUPTED if interrupted else FAILED


def value(text: str) -> Any:
    """An argument as a person typed it: JSON, or text."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def named_value(text: str) -> tuple[str, Any]:
    """An argument with its name."""
    name, equals, rest = text.partition("=")
    if not equals or not name.isidentifier():
        raise InvalidInput(f"{text!r} is no argument", hint="use --arg NAME=VALUE")
    return name, value(rest)
