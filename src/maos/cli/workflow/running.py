"""`maos workflow run`, and a workflow in the foreground."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING, Any

import click

from maos.cli import documents as shared
from maos.cli.commands import LazyCommand, json_lines_option
from maos.cli.database import DatabaseTarget
from maos.cli.failures import FAILED, note
from maos.cli.runs.options import current, new_run, notify_option, summary_option
from maos.cli.workflow.arguments import named_value, value
from maos.errors import InvalidInput

if TYPE_CHECKING:
    from maos.app import Maos
    from maos.workflows.handle import Handle

INTERRUPTED = 130


@click.command(
    cls=LazyCommand,
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
    help="How often outcomes of idempotent steps are made safe.  [default: checkpoint.frequency of the settings]",
)  # fmt: skip
@click.option("--every", type=click.IntRange(min=1), help="For every_n_steps.  [default: checkpoint.steps]")
@click.option(
    "--interval", type=click.FloatRange(min=0.1), help="For time_based, in s.  [default: checkpoint.interval_s]"
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
    frequency: str | None,
    every: int | None,
    interval: float | None,
    variables: tuple[str, ...],
    auto: bool,
    summary: str,
    notify: tuple[str, ...],
    as_json: bool,
    **given: Any,
) -> None:
    """Run a workflow: a plan file (.yaml, .toml, .json), or a function as FILE.py:FUNCTION or MODULE:FUNCTION.

    Agents execute a plan file as with `maos run`, with the same options. A function is given ARGUMENT and
    --arg, as JSON where they are JSON, else as text; Ctrl+C pauses it when the steps that run have ended, and `maos
    workflow resume` goes on.
    """
    from maos.cli.workflow import files
    from maos.plans.source import is_plan_file

    if is_plan_file(target):
        if args or named:
            raise InvalidInput("a plan file takes no arguments", hint="use --var NAME=VALUE")
        if id:
            raise InvalidInput("a plan file cannot be given an id", hint="leave --id out; it is told one")
        if frequency or every or interval:
            raise InvalidInput(
                "--checkpoint, --every and --interval are for functions",
                hint="`maos admin config show checkpoint.frequency` tells when the files of agents are saved",
            )
        files.execute(ctx, target, variables, auto=auto, summary=summary, notify=notify, as_json=as_json, given=given)
    if variables:
        raise InvalidInput("a function has no variables", hint="use --arg NAME=VALUE")
    from maos.workflows import loader

    definition = loader.load(target)
    words = [value(each) for each in args]
    by_name = dict(named_value(each) for each in named)
    options = _options(frequency, every, interval)

    async def work(m: Maos) -> int:
        handle = await m.workflows.start_with(definition, words, by_name, id=id, options=options)
        return await until_ended(m, handle, as_json=as_json)

    database: DatabaseTarget = ctx.obj
    ctx.exit(database.write(work, create=True, in_memory=True))


def _options(frequency: str | None, every: int | None, interval_s: float | None) -> dict[str, Any]:
    """What is to be otherwise than the settings say."""
    flags = {"frequency": frequency, "steps": every, "interval_s": interval_s, "enabled": True if frequency else None}
    given = {name: said for name, said in flags.items() if said is not None}
    if not given:
        return {}
    import msgspec

    from maos.workflows.policy import CheckpointPolicy

    return {"checkpoints": CheckpointPolicy.as_set(msgspec.structs.replace(current().values.checkpoint, **given))}


async def until_ended(m: Maos, handle: Handle[Any], *, as_json: bool) -> int:
    """Until it has ended or is paused, telling what happens; the exit code."""
    from maos.cli.signals import heard
    from maos.cli.workflow import showing

    interrupted = False

    def stop(_why: signal.Signals | None = None) -> None:
        nonlocal interrupted
        if interrupted:
            task.cancel()
            return
        interrupted = True
        handle.leave("paused", "Ctrl+C")
        note(f"{handle.id} is paused when the steps that run have ended; Ctrl+C once more does not wait for them")

    task = asyncio.create_task(handle.wait())
    watching = asyncio.create_task(showing.narrate(m, handle)) if not as_json else None
    try:
        with heard(interrupted=stop, sent_away=stop):
            flow = await task
    except asyncio.CancelledError:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # no step in a thread can be stopped: a third one ends the process
        note(f"interrupted; `maos workflow resume {handle.id}` goes on")
        return INTERRUPTED
    finally:
        if watching is not None:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
    if as_json:
        shared.show(showing.document(flow))
    else:
        showing.ending(flow)
    if flow.status == "completed":
        return 0
    return INTERRUPTED if interrupted else FAILED
