"""`maos workflow run`, `resume`, schedules, and commands to workflow runs: signal, resolve, pause, cancel."""

from __future__ import annotations

import asyncio
import json
import math
import signal as signals
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click
import msgspec

from maos.app import Maos
from maos.cli import commands, documents, remote, render
from maos.cli.commands import (
    JSON,
    LINES,
    FiniteRange,
    consent_options,
    detach_option,
    dry_run_option,
    forward,
    json_command,
    named_text,
    options,
)
from maos.cli.database import DatabaseTarget, ask, need_yes
from maos.cli.failures import FAILED, INTERRUPTED, note
from maos.cli.input import heard
from maos.cli.render import Column, Listing, clean
from maos.cli.runs.start import new_run, notify_option, on_change_option, start, summary_option
from maos.cli.workflow import status
from maos.clock import to_us
from maos.errors import InvalidInput, NotFound
from maos.model.run import Run
from maos.model.workflow import Schedule, WorkflowRun
from maos.plans.source import is_plan_file
from maos.views import workflows as views
from maos.views.workflows import describe
from maos.workflows import Handle, loader
from maos.workflows.record import FREQUENCIES, CheckpointPolicy
from maos.workflows.status import Status, WorkflowPreview

if TYPE_CHECKING:
    from maos.web.client import Client
    from maos.web.system_documents import Accepted

DAY_S = 86_400
NAMES_SHOWN_MAX = 20
POLICY = ("frequency", "steps", "interval_s")
"""Settings of checkpoints that flags can replace."""

id_argument = click.argument("id", metavar="ID")
target_arguments = options(
    click.argument("target", metavar="TARGET"),
    click.argument("args", metavar="[ARGUMENT]...", nargs=-1),
    click.option("--arg", "named", multiple=True, metavar="NAME=VALUE", help="An argument by name. Can be repeated."),
)
why_option = click.option("--why", default="", help="A reason, as shown with it.")


def arguments(args: tuple[str, ...], named: tuple[str, ...]) -> tuple[list[Any], dict[str, Any]]:
    """The arguments of a function as a person typed them: JSON where they are JSON, else text."""
    by_name = (named_text(each, "--arg") for each in named)
    return list(map(_value, args)), {name: _value(text) for name, text in by_name}


def _value(text: str) -> Any:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return text if found.__class__ is float and not math.isfinite(found) else found  # such as 12e4567


@json_command(
    "maos workflow run release.yaml --var version=1.2 --auto",
    "maos workflow run nightly.py:nightly Berlin",
    "maos workflow run nightly.py --arg city=Berlin --arg days=3 --id nightly-1",
    "maos workflow run jobs.billing:bill order-7 --checkpoint every_n_steps --every 50",
    json=LINES,
)
@target_arguments
@click.option("--id", default="", help="The id of the workflow run; one that exists is resumed.")
@click.option(
    "--checkpoint", "frequency", type=click.Choice(FREQUENCIES),
    help="How often outcomes of idempotent steps are written.  [default: checkpoint.frequency of the settings]",
)  # fmt: skip
@click.option("--every", "steps", type=click.IntRange(min=1), help="For every_n_steps.  [default: checkpoint.steps]")
@click.option(
    "--interval", "interval_s", type=FiniteRange(min=0.1),
    help="For time_based, in s.  [default: checkpoint.interval_s]",
)  # fmt: skip
@status.variables_option
@click.option("--auto", is_flag=True, help="Run a plan file without asking.")
@detach_option
@new_run
@summary_option
@notify_option
def run(database: DatabaseTarget, /, target: str, as_json: bool, **given: Any) -> int:
    """Run a workflow: a plan file, or a function as FILE.py:FUNCTION.

    Agents execute a plan file (.yaml, .toml, .json) as with `maos run`, with the same options. A function, which can be
    MODULE:FUNCTION too, gets ARGUMENT and --arg, as JSON where they are JSON, else as text. Ctrl+C pauses it after its
    current steps finish, and `maos workflow resume` resumes it. With --detach the server (`maos serve`) executes it.
    """
    id, args, named, variables = (given.pop(name) for name in ("id", "args", "named", "variables"))
    policy = {name: value for name in POLICY if (value := given.pop(name)) is not None}
    if is_plan_file(target):
        if args or named:
            raise InvalidInput("a plan file takes no arguments", hint="use --var NAME=VALUE")
        if id:
            raise InvalidInput("a plan file cannot be given an id", hint="leave --id out; the run gets one")
        if policy:
            raise InvalidInput(
                "--checkpoint, --every and --interval are for functions",
                hint="`maos admin config show checkpoint.frequency` shows when the files of agents are saved",
            )
        return start(database, {**given, "as_json": as_json}, file=target, variables=variables)
    if variables:
        raise InvalidInput("a function has no variables", hint="use --arg NAME=VALUE")
    definition = loader.load(target)
    recorded = {}
    if policy:
        known = database.settings.values.checkpoint
        wanted = msgspec.structs.replace(known, enabled=known.enabled or "frequency" in policy, **policy)
        recorded["checkpoints"] = CheckpointPolicy.as_set(wanted)

    async def hand_over(m: Maos) -> int:
        server = await m.supervisor.check_server()
        made = await m.workflows.create_with(definition, *arguments(args, named), id=id, options=recorded)
        document = {"kind": "handed_over", "workflow": made, "server": server.url}
        commands.show_handed_over(document, made, f"maos workflow show {made}", as_json=as_json)
        return 0

    if given["detach"]:
        return database.write(hand_over)

    async def work(m: Maos) -> int:
        handle = await m.workflows.start_with(definition, *arguments(args, named), id=id, options=recorded)
        return await _until_ended(m, handle, as_json=as_json)

    return database.write(work, create=True, in_memory=True, waits=True)


async def _until_ended(m: Maos, handle: Handle[Any], *, as_json: bool) -> int:
    """Execute a workflow run in the foreground until it has ended or is paused; the exit code."""
    interrupted = False

    def stop(_why: signals.Signals | None = None) -> None:
        nonlocal interrupted
        if interrupted:
            task.cancel()
            return
        interrupted = True
        handle.stop("paused", "Ctrl+C")
        note(f"pausing {handle.id} after its current steps finish; Ctrl+C again does not wait for them")

    task = asyncio.create_task(handle.wait())
    narration = asyncio.create_task(status.narrate(m, handle)) if not as_json else None
    try:
        with heard(interrupted=stop, sent_away=stop):
            ended = await task
    except asyncio.CancelledError:
        # no step in a thread can be stopped: a third Ctrl+C ends the process
        signals.signal(signals.SIGINT, signals.SIG_DFL)
        note(f"interrupted; resume with: maos workflow resume {handle.id}")
        return INTERRUPTED
    finally:
        if narration is not None:
            narration.cancel()
            await asyncio.gather(narration, return_exceptions=True)
    if as_json:
        documents.show(status.document(ended))
    else:
        status.show_end(ended)
    if ended.status == "completed":
        return 0
    return INTERRUPTED if interrupted else FAILED


@json_command(
    "maos workflow resume",
    "maos workflow resume nightly-1 --dry-run",
    "maos workflow resume r-1a2b3c --on-change replay",
)
@click.argument("id", metavar="[ID]", required=False, default="")
@click.option("--workflow-id", default="", help="The same as ID.")
@click.option("--from", "file", default="", metavar="FILE.py", help="Where its definition is now, if it was moved.")
@on_change_option
@click.option("--trust", is_flag=True, help="Agree to resume a workflow that was imported from a file.")
@dry_run_option
def resume(database: DatabaseTarget, /, id: str, workflow_id: str, file: str, **how: Any) -> int:
    """Resume a paused or interrupted workflow run.

    Without ID, the latest that has not ended; the run of a plan file also when it has failed. Steps with an outcome are
    not called again. A step that was interrupted is called again if it is idempotent; else you are asked whether it
    took effect.

    A run keeps its plan, so it is finished with the file as it was, and a note says that the file has changed. With
    --on-change replay it is resumed with the new file, if every step that was done or begun is the same in it. Of a
    function only results are recorded: one that has changed is refused, unless it makes the same calls (replay).
    """
    if id and workflow_id and id != workflow_id:
        raise InvalidInput(f"{id} and {workflow_id} are two workflows", hint="name one")
    id, on_change = id or workflow_id, how.pop("on_change")
    found = database.read(lambda m: status.find(m, id) if id else views.latest(m.runs, m.workflows))
    if isinstance(found, WorkflowRun):
        return _resume_function(database, found, file, on_change or "refuse", **how)
    if file:
        raise InvalidInput(f"{found.id} was made from a file", hint="--from is for functions")
    return forward("maos.cli.runs.start:resume", found.id, on_change=on_change, **how)


def _resume_function(
    database: DatabaseTarget, known: WorkflowRun, file: str, on_change: str, trust: bool, dry_run: bool, as_json: bool
) -> int:
    id = known.id
    if on_change == "keep":
        raise InvalidInput(
            f"{id} is a function, and its code as it was is not kept",
            hint="put the old one beside the new one, each with a version=; or use replay",
        )
    database.read(lambda m: m.check_own())  # before any code that the database names is loaded
    refuse = known.is_open and not (trust or dry_run)
    is_foreign = database.read(lambda m: m.workflows.needs_consent(id, refuse=refuse))
    if file:
        loader.load(file)
    # code that an imported file names is loaded only when the person agrees
    where = {} if is_foreign and not trust else known.options.get("where", {})
    try:
        definition = loader.load_recorded(known.name, known.definition, where)
    except (NotFound, InvalidInput):
        if not dry_run:
            raise
        definition = None
    if dry_run:
        found = database.read(lambda m: m.workflows.preview(id, workflow=definition, on_change=on_change))
        _show_preview(found, on_change, str(where.get("file", "")), as_json=as_json)
        return 0

    async def work(m: Maos) -> int:
        handle = await m.workflows.resume(id, workflow=definition, on_change=on_change, trust=trust)
        return await _until_ended(m, handle, as_json=as_json)

    return database.write(work, waits=True)


NEXT = {
    "again": "was interrupted, and is called again: it is idempotent",
    "probe": "was interrupted: its probe is called to find out whether it took effect",
    "unknown": "may or may not have taken effect: you are asked",
    "interrupted": "was interrupted: called again if it is idempotent, else its probe is called, or you are asked",
    "later": "failed, and is retried",
    "resolved": "continues as you have resolved it",
    "waits": "keeps waiting",
    "resumed": "is resumed",
}


def _show_preview(found: WorkflowPreview, on_change: str, file: str, *, as_json: bool) -> None:
    """Print whether the definition is the same, and what happens to the steps that have no outcome."""
    run = found.status.run
    if as_json:
        steps = [
            {"step": each.step_id, "kind": each.step.kind, "name": each.step.name, "next": each.next,
             "given": each.step.about.get("given")}
            for each in found.pending
        ]  # fmt: skip
        documents.show(
            {"kind": "dry_run", "id": run.id, "status": found.status.name, "definition": found.definition,
             "on_change": on_change, "refused": found.is_refused, "steps_done": run.done, "steps": steps,
             "unknown": found.unknown}
        )  # fmt: skip
        return
    render.line((clean(run.id), "bold"), f" is {status.spoken(run)}, {render.many(run.done, 'step')} done")
    if not run.is_open:
        render.line("  it has ended: a resume only prints its result")
        return
    if found.definition == "gone":
        where = clean(file) or "it was imported from a file"
        render.line(("  its definition is not there: ", "yellow"), where, "; name it with --from")
    elif found.definition == "changed":
        meant = "it is refused; --on-change replay resumes it if it makes the same calls"
        if on_change == "replay":
            meant = "it is resumed with the new code as long as that makes the calls that were made"
        render.line(("  its code has changed since: ", "yellow"), meant)
    for each in found.pending:
        style = "yellow" if each.next in ("unknown", "interrupted") else ""
        render.line(f"  {each.step_id}  ", (clean(describe(each.step)), "bold"), "  ", (NEXT[each.next], style))
        if each.next == "unknown":
            render.line(f"     maos workflow resolve {run.id} {each.step_id} {status.OUTCOMES}")


# --- commands to workflow runs -----------------------------------------------------------------------------------


@json_command("maos workflow signal order-7 paid '{\"amount\": 7}'", "maos workflow signal order-7 go --key go-1")
@id_argument
@click.argument("name")
@click.argument("value", metavar="[JSON]", type=JSON, required=False)
@click.option("--key", help="Repeating the command with the same key sends nothing more.")
def signal(database: DatabaseTarget, id: str, name: str, value: Any, key: str | None, as_json: bool) -> None:
    """Send a workflow run a signal that it waits for, or will."""
    if database.is_remote:

        async def work(client: Client) -> Accepted:
            return await client.signal(await remote.find_workflow(client, id), name, value, key=key or "")

        sent = remote.call(work)
        render.show({"id": sent.id, "done": sent.done}, f"{clean(sent.id)}: sent {name!r}", as_json=as_json)
        return
    _send(database, id, lambda m, found: m.workflows.signal(found, name, value, key=key), f"sent {name!r}", as_json)


@json_command(
    "maos workflow resolve order-7 3 done --value '{\"receipt\": 12}'",
    "maos workflow resolve order-7 3 again",
    "maos workflow resolve order-7 3 failed --why 'the card was not charged'",
)
@id_argument
@click.argument("step")
@click.argument("outcome", type=click.Choice(["done", "failed", "again"]))
@click.option("--value", metavar="JSON", type=JSON, help="With done: what the step returned.")
@why_option
def resolve(database: DatabaseTarget, id: str, step: str, outcome: str, value: Any, why: str, as_json: bool) -> None:
    """Resolve a step whose outcome is unknown.

    It was interrupted, and may or may not have taken effect: look, then say that it is done, that it failed, or that
    it is to be called again.
    """

    async def work(m: Maos, found: str) -> None:
        unknown = (await m.workflows.status(found)).unknown
        if step not in unknown:
            hint = f"unknown are: {', '.join(unknown)}" if unknown else "no step of it is unknown"
            raise InvalidInput(f"the outcome of step {step!r} of {found} is not unknown", hint=hint)
        await m.workflows.resolve(found, step, outcome, value=value, why=why)

    _send(database, id, work, f"resolved step {step}: {outcome}", as_json)


@json_command("maos workflow pause order-7")
@id_argument
@why_option
def pause(database: DatabaseTarget, id: str, why: str, as_json: bool) -> None:
    """Pause a workflow run after its current steps finish."""
    _send(database, id, lambda m, found: m.workflows.pause(found, why=why), "pause requested", as_json)


@json_command("maos workflow cancel order-7 --why 'not needed any more'")
@id_argument
@why_option
def cancel(database: DatabaseTarget, id: str, why: str, as_json: bool) -> None:
    """Cancel a workflow run after its current steps finish.

    If no process runs it, it is cancelled at once. Its code is not needed: it may have changed, or be missing.
    """
    _send(database, id, lambda m, found: m.workflows.cancel(found, why=why), "cancel requested", as_json)


def _send(
    database: DatabaseTarget, id: str, command: Callable[[Maos, str], Awaitable[None]], done: str, as_json: bool
) -> None:
    """Send a command to a workflow run of a function, and print what comes of it."""

    async def work(m: Maos) -> Status:
        found = await status.find(m, id)
        if isinstance(found, Run):
            raise InvalidInput(
                f"{found.id} is the run of a plan file, and takes the commands of runs",
                hint=f"`maos pause {found.id}`, `maos answer`, `maos agent send`",
            )
        await command(m, found.id)
        return await m.workflows.status(found.id)

    now = database.write(work)
    run, is_running = now.run, now.name == "running"
    next_ = f"not running; resume with: maos workflow resume {run.id}" if run.is_open else f"it is {run.status}"
    text = f"{run.id}: {done}" + ("" if is_running else f"; {next_}")
    render.show({"id": run.id, "done": done, "running": is_running}, text, as_json=as_json)


@json_command("maos workflow state cleanup --retention-days 30")
@click.option(
    "--retention-days", type=FiniteRange(min=0), default=30.0, show_default=True,
    help="Those that ended so many days ago.",
)  # fmt: skip
@consent_options
def cleanup(database: DatabaseTarget, retention_days: float, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Remove the steps of workflow runs that ended long ago; results stay.

    The worktrees of agents, which runs of plan files have too, are removed by `maos admin cleanup`.
    """
    found = database.read(lambda m: m.workflows.old(retention_days * DAY_S))
    many = render.many(len(found), "workflow")
    if dry_run or not found:
        names = f"{', '.join(found[:NAMES_SHOWN_MAX])}{', …' if len(found) > NAMES_SHOWN_MAX else ''}"
        text = f"would clean up {many}: {names}" if found else "nothing is that old"
        render.show({"removed": [], "would_remove": found}, text, as_json=as_json)
        return
    need_yes(f"{many} would be cleaned up", yes=yes, as_json=as_json)
    if not yes:
        ask(f"clean up {many}?")
    events = database.write(lambda m: m.workflows.forget(found))
    text = f"cleaned up {many}, {render.many(events, 'event')}"
    render.show({"removed": found, "events": events}, text, as_json=as_json)


# --- schedules ---------------------------------------------------------------------------------------------------

Upcoming = tuple[Schedule, datetime | None]


def _schedule(each: Upcoming) -> documents.Document:
    known, due = each
    said = {name: getattr(known, name) for name in ("name", "cron", "zone", "workflow", "arguments")}
    return {**said, "version": known.definition, **documents.time(to_us(due) if due else None, "next")}


SCHEDULES: Listing[Upcoming] = Listing(
    "schedules",
    (
        Column("name", lambda each: each[0].name, style="bold"),
        Column("when", lambda each: each[0].cron),
        Column("zone", lambda each: each[0].zone),
        Column("workflow", lambda each: each[0].workflow),
        Column("next", lambda each: render.when(to_us(each[1])) if each[1] else ""),
    ),
    empty="no schedules; `maos workflow schedule add` makes one",
    of=_schedule,
)


@json_command(
    "maos workflow schedule add nightly '0 3 * * *' nightly.py:nightly Berlin --zone Europe/Berlin",
    "maos workflow schedule add bills @monthly jobs.billing:bill",
)
@click.argument("name")
@click.argument("cron")
@target_arguments
@click.option("--zone", default="UTC", show_default=True, help="The time zone that CRON is meant in.")
def add(database: DatabaseTarget, /, name: str, cron: str, target: str, zone: str, as_json: bool, **given: Any) -> None:
    """Start a workflow at times that a cron expression gives.

    CRON is minute, hour, day of the month, month, day of the week. A schedule of that NAME is replaced.
    """
    definition = loader.load(target)

    async def work(m: Maos) -> list[Upcoming]:
        await m.workflows.schedule_with(name, cron, definition, *arguments(**given), zone=zone)
        return [each for each in await m.workflows.upcoming() if each[0].name == name]

    SCHEDULES.show(database.write(work, create=True), as_json=as_json)


@json_command("maos workflow schedule list")
def list_schedules(database: DatabaseTarget, as_json: bool) -> None:
    """List schedules and their next run times."""
    SCHEDULES.show(database.read(lambda m: m.workflows.upcoming()), as_json=as_json)


@json_command("maos workflow schedule remove nightly", "maos workflow schedule remove nightly --dry-run")
@click.argument("name")
@dry_run_option
def remove(database: DatabaseTarget, name: str, dry_run: bool, as_json: bool) -> None:
    """Remove a schedule; workflow runs that it started continue."""
    database.write(lambda m: m.workflows.unschedule(name, dry_run=dry_run), dry_run=dry_run)
    found = {"removed": name, "dry_run": dry_run}
    render.show(found, f"{'would remove' if dry_run else 'removed'} {name}", as_json=as_json)
