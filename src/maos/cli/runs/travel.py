"""`maos orchestration rollback` and `fork`: make a run what it was, or begin a second one from there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from maos.cli import documents as shared
from maos.cli import render
from maos.cli.commands import LazyCommand, dry_run_option, json_option, yes_option
from maos.cli.database import DatabaseTarget, ask, need_yes
from maos.cli.plain import clean
from maos.cli.runs import points
from maos.cli.runs.status import id_argument

if TYPE_CHECKING:
    from maos.app import Maos
    from maos.cli.documents import Document
    from maos.model.run import Run
    from maos.travel.rollback import PlannedStep, TravelPlan

without_files_option = click.option(
    "--without-files", is_flag=True, help="Go on though the files of agents that work in place stay as they are."
)


@click.command(
    cls=LazyCommand,
    examples=[
        "maos orchestration rollback r-1a2b3c --to before-refactoring --dry-run",
        "maos orchestration rollback r-1a2b3c --to 12 --yes",
        "maos orchestration rollback r-1a2b3c --to 30m",
    ],
)
@id_argument
@click.option("--to", metavar="MOMENT", help="Where to go.  [default: the newest checkpoint]")
@without_files_option
@dry_run_option
@yes_option
@json_option
@click.pass_obj
def rollback(
    database: DatabaseTarget, id: str, to: str | None, without_files: bool, dry_run: bool, yes: bool, as_json: bool
) -> None:
    """Make a run what it was at an earlier moment.

    Tasks, results, questions, the agents' conversations, their mail and their files go back together. MOMENT is a
    checkpoint's name, a version such as 12 or -1 (one before the newest), @POSITION, or a time such as 10m (ago).

    A run that is carried out is paused first, and agents that work are stopped. Nothing is rewritten: what came after
    stays in the journal and in git, and can be gone back to in the same way. Agents go on from where their files were
    last saved by then.
    """
    if not dry_run:
        need_yes(f"a rollback changes {id}", yes=yes, as_json=as_json)

    async def look(m: Maos) -> TravelPlan:
        run = await m.runs.find(id)
        moment = await points.moment(m, run, to) if to else None
        return await m.travel.rollback(run.id, moment, dry_run=True)

    plan = database.read(look)
    if dry_run or not yes:
        if as_json:
            shared.show(document(plan, dry_run=True))
            return
        show(plan)
        if dry_run:
            return
        ask(f"Take {plan.run} back to {plan.moment.spoken}?")

    async def work(m: Maos) -> tuple[Run, TravelPlan]:
        from maos.runs.status import is_executing

        run = await m.runs.find(plan.run)
        if is_executing(run):
            await m.runs.pause_and_wait(run.id)
        done = await m.travel.rollback(plan.run, plan.moment, without_files=without_files)
        return await m.runs.get(plan.run), done

    run, done = database.write(work)
    if as_json:
        shared.show({**document(done, dry_run=False), "version": run.version, "status": run.status})
        return

    if yes:
        show(done)
    render.line((run.id, "bold"), f" is now at version {run.version}, with the state of {done.moment.spoken}")
    _on(run)
    render.line(("to undo this: ", "dim"), f"maos orchestration rollback {run.id} --to {done.undo}")


@click.command(
    cls=LazyCommand,
    examples=[
        "maos orchestration fork r-1a2b3c --at before-refactoring",
        "maos orchestration fork r-1a2b3c --at 12 --id r-try-b --json",
        "maos orchestration fork r-1a2b3c --dry-run",
    ],
)
@id_argument
@click.option("--at", metavar="MOMENT", help="Where it begins.  [default: now]")
@click.option("--id", "into", metavar="NEW", default="", help="The id of the new run; with the same it is made once.")
@without_files_option
@dry_run_option
@json_option
@click.pass_obj
def fork(
    database: DatabaseTarget, id: str, at: str | None, into: str, without_files: bool, dry_run: bool, as_json: bool
) -> None:
    """Begin a second run from any moment of a run.

    It has what the first one had then: tasks, results, questions, conversations, mail, and files in worktrees of its
    own. The first run is not touched, and may be going on. MOMENT is a checkpoint's name, a version such as 12 or -1,
    @POSITION, or a time such as 10m (ago). `maos resume NEW` goes on with the new run.
    """

    async def work(m: Maos) -> tuple[Run | None, TravelPlan]:
        run = await m.runs.find(id)
        moment = await points.moment(m, run, at)
        done = await m.travel.fork(run.id, moment, into=into, without_files=without_files, dry_run=dry_run)
        return None if dry_run else await m.runs.get(done.run), done

    run, done = database.read(work) if dry_run else database.write(work)
    if as_json:
        more = {} if run is None else {"version": run.version, "status": run.status}
        shared.show({**document(done, dry_run=dry_run), **more})
        return
    show(done)
    if run is not None:
        origin = f"{done.moment.run}, {done.moment.spoken}"
        render.line((run.id, "bold"), f" begins with the state of {clean(origin)}")
        _on(run)


def _on(run: Run) -> None:

    if run.status != "completed":
        render.line(("to go on: ", "dim"), (f"maos resume {run.id}", "bold"))


def show(journey: TravelPlan) -> None:
    """What becomes of each task, for people."""

    columns = (
        render.Column("task", style="bold", yields=1), render.Column("now"), render.Column("then"),
        render.Column("", yields=2), render.Column("agent", style="dim", yields=3),
    )  # fmt: skip
    render.table(columns, [(each.task, each.now, each.then, _said(each), each.agent) for each in journey.steps])
    if journey.commit:
        render.line((f"merged work: commit {journey.commit[:12]}", "dim"))
    for each in journey.questions:
        render.line(("asked again: ", "dim"), clean(each))
    if journey.stopped:
        render.line(("stopped: ", "dim"), clean(", ".join(journey.stopped)))
    for note in journey.notes:
        render.line((f"note: {clean(note)}", "yellow"))


def _said(step: PlannedStep) -> str:

    if step.what != "goes on":
        return {"kept": "is done", "begins": "has not begun", "given up": "was planned later"}[step.what]
    found = f"goes on from {step.saved or 'its beginning'} ({render.when(step.saved_us)})"
    if step.remembers:
        found += ", in its conversation"
    return found + (f", gets {render.many(step.messages, 'message')} again" if step.messages else "")


def document(journey: TravelPlan, *, dry_run: bool) -> Document:
    """What becomes of each task, for programs."""
    moment = journey.moment
    return {
        "dry_run": dry_run,
        "id": journey.run,
        "from": moment.run,
        "to": {"version": moment.version, "position": moment.position, "checkpoint": moment.name or None,
               **shared.time(moment.time_us)},
        "undo": journey.undo,
        "tasks": [
            {"task": each.task, "what": each.what, "now": each.now or None, "then": each.then or None,
             "agent": each.agent, "checkpoint": each.saved or None, "messages": each.messages,
             "remembers": each.remembers, **shared.time(each.saved_us or None, "saved")}
            for each in journey.steps
        ],
        "commit": journey.commit or None,
        "questions": list(journey.questions),
        "stopped": list(journey.stopped),
        "cost_since_usd": journey.cost_usd,
        "state": journey.digest,
        "notes": list(journey.notes),
    }  # fmt: skip
