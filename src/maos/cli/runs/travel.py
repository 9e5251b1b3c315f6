"""`maos orchestration rollback`, `fork`, `diff` and `join`: runs at other points in time, and two of one origin."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from maos.cli import completing, render
from maos.cli import documents as shared
from maos.cli.agent import words
from maos.cli.arguments import VERSION, WHEN
from maos.cli.commands import LazyCommand, dry_run_option, json_option, yes_option
from maos.cli.database import DatabaseTarget, ask, need_yes
from maos.cli.failures import CONFLICT
from maos.cli.plain import clean
from maos.cli.runs.options import id_argument
from maos.clock import to_datetime
from maos.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from maos.app import Maos
    from maos.cli.documents import Document
    from maos.model.run import Run
    from maos.travel.comparison import ChangedField, Difference, Side
    from maos.travel.join import JoinPlan
    from maos.travel.points_in_time import PointInTime, When
    from maos.travel.rollback import PlannedStep, TravelPlan
    from maos.travel.service import Comparison

POINT = "a checkpoint's name, a version such as 12 or -1, @POSITION, or a time such as 10m or 2026-03-01T14:30"
_POSITION = re.compile(r"@([0-9]{1,18})")
_VERSION = re.compile(r"[0-9]{1,18}|(newest)?(-[0-9]{1,18})?")
CHANGES_SHOWN_MAX = 50

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
        moment = await point(m, run, to) if to else None
        return await m.travel.rollback(run.id, moment, dry_run=True)

    plan = database.read(look)
    if dry_run or not yes:
        if as_json:
            shared.show(document(plan, dry_run=True))
            return
        show(plan)
        if dry_run:
            return
        ask(f"Take {plan.run} back to {plan.point.spoken}?")

    async def work(m: Maos) -> tuple[Run, TravelPlan]:
        from maos.runs.status import is_executing

        run = await m.runs.find(plan.run)
        if is_executing(run):
            await m.runs.pause_and_wait(run.id)
        done = await m.travel.rollback(plan.run, plan.point, without_files=without_files)
        return await m.runs.get(plan.run), done

    run, done = database.write(work)
    if as_json:
        shared.show({**document(done, dry_run=False), "version": run.version, "status": run.status})
        return

    if yes:
        show(done)
    render.line((run.id, "bold"), f" is now at version {run.version}, with the state of {done.point.spoken}")
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
        moment = await point(m, run, at)
        done = await m.travel.fork(run.id, moment, into=into, without_files=without_files, dry_run=dry_run)
        return None if dry_run else await m.runs.get(done.run), done

    run, done = database.read(work) if dry_run else database.write(work)
    if as_json:
        more = {} if run is None else {"version": run.version, "status": run.status}
        shared.show({**document(done, dry_run=dry_run), **more})
        return
    show(done)
    if run is not None:
        origin = f"{done.point.run}, {done.point.spoken}"
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

    if step.what != "continues":
        return {"kept": "is done", "begins": "has not begun", "given up": "was planned later"}[step.what]
    found = f"goes on from {step.saved or 'its beginning'} ({render.when(step.saved_us)})"
    if step.remembers:
        found += ", in its conversation"
    return found + (f", gets {render.many(step.messages, 'message')} again" if step.messages else "")


def document(journey: TravelPlan, *, dry_run: bool) -> Document:
    """What becomes of each task, for programs."""
    moment = journey.point
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


async def point(m: Maos, run: Run, text: str | None) -> PointInTime:
    """The point in time that a person means; now, if the text is empty."""
    return await m.travel.point(run.id, _when(run, text))


def _when(run: Run, text: str | None) -> When:
    if not text:
        return None
    if any(each.name == text for each in run.checkpoints) or _POSITION.fullmatch(text):
        return text
    if _VERSION.fullmatch(text):
        found = VERSION.convert(text, None, None)
        if not found.number and not found.from_newest:
            raise InvalidInput(f"{run.id} has no version 0", hint=f"its versions are 1 to {run.version}")
        return -found.number if found.from_newest else found.number
    try:
        return to_datetime(WHEN.convert(text, None, None))
    except click.BadParameter:
        hint = f"give {POINT}; `maos orchestration checkpoints {run.id}` lists checkpoints"
        raise InvalidInput(f"{run.id} has no moment {text!r}", hint=hint) from None


# --- diff --------------------------------------------------------------------------------------------------------


@click.command(
    cls=LazyCommand,
    examples=[
        "maos orchestration diff r-1a2b3c before-refactoring",
        "maos orchestration diff r-1a2b3c 12 20 --patch",
        "maos orchestration diff r-1a2b3c r-4d5e6f",
    ],
)
@id_argument
@click.argument("first", metavar="A")
@click.argument("second", metavar="[B]", required=False)
@click.option("--patch", is_flag=True, help="Also the changes of files, line by line.")
@json_option
@click.pass_obj
def diff(database: DatabaseTarget, id: str, first: str, second: str | None, patch: bool, as_json: bool) -> None:
    """Show how a run differs between two moments, or from another run.

    Tasks and their results, questions, findings, messages, and merged files. A and B are moments: a checkpoint's name,
    a version, @POSITION or a time; without B, now is meant. A can also be another run, and then this shows what is
    different in that one.
    """

    async def work(m: Maos) -> Comparison:
        run = await m.runs.find(id)
        one, other = await _moments(m, run, first, second)
        return await m.travel.diff(run.id, one, other, other=other.run, patch=patch)

    one, other, found = database.read(work)
    if as_json:
        shared.show(_difference(one, other, found))
        return
    _show_difference(one, other, found)


async def _moments(m: Maos, run: Run, first: str, second: str | None) -> tuple[PointInTime, PointInTime]:

    if second is not None:
        return await point(m, run, first), await point(m, run, second)
    now = await m.travel.point(run.id)
    try:
        return await point(m, run, first), now
    except (InvalidInput, NotFound):
        try:
            other = await m.runs.find(first)
        except NotFound:
            other = None
        if other is None:
            raise
        return now, await m.travel.point(other.id)


def _show_difference(one: Side, other: Side, found: Difference) -> None:

    render.line((f"{_name(one)} → {_name(other)}", "bold"))
    nothing = True
    for title, changed in (("tasks", found.tasks), ("questions", found.questions)):
        if changed:
            nothing = False
            _table(title, changed)
    for title, (gone, new) in (("findings", found.findings), ("messages", _told(found))):
        for sign, style, rows in (("-", "red", gone), ("+", "green", new)):
            for who, text in rows[:CHANGES_SHOWN_MAX]:
                nothing = False
                render.line((f"{sign} {title[:-1]} ", style), f"{clean(who)}: {_short(text)}")
            if len(rows) > CHANGES_SHOWN_MAX:
                render.line((f"… and {len(rows) - CHANGES_SHOWN_MAX} more (--json shows all)", "dim"))
    for each in found.files or ():
        nothing = False
        counts = "" if each.added is None else f"  +{each.added} -{each.removed}"
        render.line((f"{each.kind:<12} ", "dim"), clean(each.path), (counts, "dim"))
    if found.patch:
        click.echo(clean(found.patch, lines=True), nl=False)
    if nothing:
        render.line("no difference")


def _table(title: str, changed: Sequence[ChangedField]) -> None:
    columns = (
        render.Column(title[:-1], style="bold", yields=1), render.Column("before"), render.Column("after"),
        render.Column("said before", style="dim", yields=3), render.Column("says after", style="dim", yields=2),
    )  # fmt: skip
    rows = [
        (each.name, each.before or "-", each.after or "-", _short(each.said_before), _short(each.said_after))
        for each in changed[:CHANGES_SHOWN_MAX]
    ]
    render.table(columns, rows)


def _told(found: Difference) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    gone, new = found.messages
    return [(each.sender, each.text) for each in gone], [(each.sender, each.text) for each in new]


def _short(text: str) -> str:

    return words.one_line(text, 80)


def _name(side: Side) -> str:
    return f"{side.run.id}, {side.point.spoken}"


def _difference(one: Side, other: Side, found: Difference) -> Document:
    return {
        "before": _side(one, found.commits[0]),
        "after": _side(other, found.commits[1]),
        "tasks": [each._asdict() for each in found.tasks],
        "questions": [each._asdict() for each in found.questions],
        "messages": {
            "removed": [{"id": each.id, "from": each.sender, "text": each.text} for each in found.messages[0]],
            "added": [{"id": each.id, "from": each.sender, "text": each.text} for each in found.messages[1]],
        },
        "findings": {
            "removed": [{"task": task, "text": text} for task, text in found.findings[0]],
            "added": [{"task": task, "text": text} for task, text in found.findings[1]],
        },
        "files": None if found.files is None else [each._asdict() for each in found.files],
        "patch": found.patch or None,
    }


def _side(side: Side, commit: str) -> Document:
    from maos.model.branch import digest

    moment = side.point
    return {"id": moment.run, "version": moment.version, "position": moment.position, "commit": commit or None,
            "checkpoint": moment.name or None, "state": digest(side.run), **shared.time(moment.time_us)}  # fmt: skip


# --- join --------------------------------------------------------------------------------------------------------


@click.command(
    cls=LazyCommand,
    examples=[
        "maos orchestration join r-1a2b3c r-4d5e6f --dry-run",
        "maos orchestration join r-1a2b3c r-4d5e6f",
        "maos orchestration join r-1a2b3c r-4d5e6f --theirs",
    ],
)
@id_argument
@click.argument("other", metavar="OTHER", shell_complete=completing.runs)
@click.option("--ours", "policy", flag_value="ours", help="Where both changed something, take it from ID.")
@click.option("--theirs", "policy", flag_value="theirs", help="Take it from OTHER.")
@click.option("--newest", "policy", flag_value="newest", help="Take what came last.")
@dry_run_option
@json_option
@click.pass_context
def join(ctx: click.Context, id: str, other: str, policy: str | None, dry_run: bool, as_json: bool) -> None:
    """Bring what a fork has done into a run, or the other way round.

    Both come from one run. Tasks that only OTHER has done or planned become part of ID, and the files are merged from
    where the two parted. OTHER is not touched. Where both changed the same, --ours, --theirs or --newest decides;
    without one of them you are asked, by questions like those of any run, and nothing is joined before `maos answer`
    has settled them and this is repeated. (`maos orchestration merge` is another thing: it brings a run's files into
    your branch.)
    """

    async def work(m: Maos) -> JoinPlan:
        from maos.runs.status import is_executing

        run, theirs = await m.runs.find(id), await m.runs.find(other)
        if not dry_run and is_executing(run):
            await m.runs.pause_and_wait(run.id)
        return await m.travel.join(run.id, theirs.id, policy=policy or "", dry_run=dry_run)

    done: JoinPlan = ctx.obj.read(work) if dry_run else ctx.obj.write(work)
    if as_json:
        shared.show(
            {
                "dry_run": dry_run,
                "id": done.run,
                "other": done.other,
                "base": done.base._asdict(),
                "joined": not (done.open or dry_run),
                "undo": done.undo,
                "taken": list(done.taken),
                "added": list(done.added),
                "conflicts": [
                    {"id": each.id, "kind": each.kind, "name": each.name or None, "ours": each.ours,
                     "theirs": each.theirs, "files": list(each.files), "chosen": done.chosen.get(each.id)}
                    for each in done.conflicts
                ],
                "questions": [each.ref for each in done.asked],
                "commit": done.commit or None,
            }
        )  # fmt: skip
    else:
        _show_union(done, dry_run=dry_run)
    if done.open and not dry_run:
        ctx.exit(CONFLICT)


def _show_union(done: JoinPlan, *, dry_run: bool) -> None:

    render.line((f"{done.run} and {done.other} parted at version {done.base.version} of {done.base.run}", "dim"))
    for title, names in (("taken from it: ", done.taken), ("new: ", done.added)):
        if names:
            render.line((title, "dim"), clean(", ".join(names)))
    for each in done.conflicts:
        chosen = done.chosen.get(each.id)
        render.line(("conflict: ", "yellow"), clean(each.id), f", {chosen} counts" if chosen else "")
        render.line(("  ours    ", "dim"), words.one_line(each.ours, render.room_for_value(10)))
        render.line(("  theirs  ", "dim"), words.one_line(each.theirs, render.room_for_value(10)))
    if dry_run:
        return
    if done.open:
        render.line((f"nothing was joined: {render.many(len(done.open), 'conflict')} left", "bold red"))
        for question in done.asked:
            render.line(("answer with: ", "dim"), (f"maos answer {clean(question.ref)} ours|theirs", "bold"))
        render.line(("then: ", "dim"), f"maos orchestration join {done.run} {done.other}")
        return
    files = f", merged as commit {done.commit[:12]}" if done.commit else ""
    render.line((clean(done.run), "bold"), f" has what {clean(done.other)} has done{files}")
    render.line(("to undo this: ", "dim"), f"maos orchestration rollback {done.run} --to {done.undo}")
