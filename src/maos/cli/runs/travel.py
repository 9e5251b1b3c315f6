"""`maos checkpoint`, `rollback`, `fork` and `join`: points in time of a run, and two runs of one origin."""

from __future__ import annotations

from collections import defaultdict
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from maos.cli import commands, documents, remote, render, words
from maos.cli.commands import VERSION, WHEN, Version, dry_run_option, json_command, run_argument, yes_option
from maos.cli.database import DatabaseTarget, ask, need_yes
from maos.cli.failures import CONFLICT
from maos.cli.render import Column, Listing, clean
from maos.clock import to_datetime
from maos.errors import InvalidInput
from maos.tuples import NamedTuple

if TYPE_CHECKING:
    from maos.app import Maos
    from maos.model.attempt import AttemptCheckpoint
    from maos.model.read_models import PlannedStep
    from maos.model.run import Run, RunCheckpoint
    from maos.travel.join import JoinPlan
    from maos.travel.points_in_time import PointInTime, When
    from maos.travel.service import TravelPlan
    from maos.web.client import Client
    from maos.web.documents import PointInfo, RunDetails, TravelInfo

POINT = "a checkpoint's name, a version such as 12 or -1, @POSITION, or a time such as 10m or 2026-03-01T14:30"

without_files_option = click.option(
    "--without-files", is_flag=True, help="Continue although the files of agents that work in place stay as they are."
)


@json_command(
    "maos checkpoint r-1a2b3c --name before-refactoring",
    "maos checkpoint r-1a2b3c --list",
    "maos checkpoint r-1a2b3c --list --all",
)
@run_argument
@click.option("--name", default="", help="The name.  [default: manual-VERSION]")
@click.option("--list", "only_list", is_flag=True, help="List checkpoints instead: of the run and its agents' files.")
@click.option("--all", "everything", is_flag=True, help="With --list: every version of the run, and what happened.")
def checkpoint(database: DatabaseTarget, id: str, name: str, only_list: bool, everything: bool, as_json: bool) -> None:
    """Name the state of a run, or list its checkpoints.

    The files of its agents are saved with it. Nothing is lost without one: every version of a run is kept, `maos
    rollback` and `maos fork` accept any of them, and files are saved every few minutes. If no engine executes the run,
    the files are those that were saved last.
    """

    async def listed(m: Maos) -> tuple[Run, list[Any]]:
        run = await m.runs.find(id)
        return run, await (m.runs.versions(run.id) if everything else _checkpoints(m, run))

    if everything or only_list:
        run, rows = database.read(listed)
        (VERSIONS if everything else CHECKPOINTS).show(rows, as_json=as_json, id=run.id)
        return

    async def work(m: Maos) -> tuple[Run, CheckpointRow]:
        run = await m.runs.find(id)
        called = name or f"manual-{run.version}"
        await m.travel.checkpoint(run.id, called)
        run = await m.runs.get(run.id)
        return run, next(row for row in map(CheckpointRow, run.checkpoints) if row.made.name == called)

    run, row = database.write(work)
    where = f" of {run.id}, at version {row.made.version}"
    found = {"id": run.id, **_checkpoint(row)}
    render.show(found, "checkpoint ", (clean(row.made.name), "bold"), where, as_json=as_json)


class CheckpointRow(NamedTuple):
    """A checkpoint of a run, or of the files of one of its agents."""

    made: RunCheckpoint | AttemptCheckpoint
    agent: str | None = None
    attempt: int | None = None


def _checkpoint(row: CheckpointRow) -> documents.Document:
    made = documents.of(row.made, "name", "version", "trigger")
    return {**documents.of(row, "agent", "attempt"), **made, "commit": row.made.commit or None,
            **documents.time(row.made.at_us)}  # fmt: skip


CHECKPOINTS: Listing[CheckpointRow] = Listing(
    "checkpoints",
    (
        Column("made", lambda each: render.when(each.made.at_us)),
        Column("name", lambda each: each.made.name, style="bold", yields=1),
        Column("of", lambda each: each.agent or "the run", yields=2),
        Column("why", lambda each: each.made.trigger),
        Column("version", lambda each: str(each.made.version), right=True),
        Column("files", lambda each: (each.made.commit or "")[:12]),
    ),
    empty="no checkpoints; `maos checkpoint ID --name NAME` makes one",
    of=_checkpoint,
)


async def _checkpoints(m: Maos, run: Run) -> list[CheckpointRow]:
    """The checkpoints of a run and of its agents' files, the oldest first."""
    found = [CheckpointRow(made) for made in run.checkpoints]
    for each in await m.runs.attempts_of(run):
        found += [CheckpointRow(made, each.agent, each.number) for made in each.checkpoints]
    return sorted(found, key=lambda row: row.made.at_us)


HAPPENED = {
    "run_checkpointed": "checkpoint {name}",
    "run_rolled_back": "rolled back to version {to}",
    "run_joined": "joined with {other[run]}",
    "run_moved": "moved to {folder}",
    "run_changed": "uses the new {file}",
    "run_ended": "{status}",
    "question_asked": "asked: {question}",
    "question_answered": "answered: {answer}",
}
"""What happened, of the fields of an event; others are said by their names."""


def _happened(version: Any) -> str:
    """What happened in a version of a run, on one line."""
    data, type_ = version.data, version.type
    if type_ == "run_created" and data.get("origin"):
        text = "forked from {run}, version {version}".format_map(data["origin"])
    elif type_ == "run_planned":
        text = f"planned {', '.join(str(each.get('name', '')) for each in data['tasks'])}"
    elif type_ in HAPPENED:
        text = HAPPENED[type_].format_map(defaultdict(str, data))
    else:
        text = f"{data.get('task', '')} {type_.removeprefix('run_').removeprefix('task_')}".strip()
    why = data.get("why") or (data.get("result", "") if type_ == "task_finished" else "")
    return words.one_line(f"{text}: {why}" if why else text, 120)


VERSIONS: Listing[Any] = Listing(
    "versions",
    (
        Column("version", lambda each: str(each.version), right=True, style="bold"),
        Column("time", lambda each: render.when(each.time_us)),
        Column("what", _happened, yields=1),
    ),
    of=lambda each: {"version": each.version, "position": each.position, "event": each.type,
                     "what": _happened(each), **documents.time(each.time_us)},
)  # fmt: skip


@json_command(
    "maos rollback r-1a2b3c --to before-refactoring --dry-run",
    "maos rollback r-1a2b3c --to 12 --yes",
    "maos rollback r-1a2b3c --to 30m",
)
@run_argument
@click.option("--to", metavar="POINT", help="The point in time.  [default: the newest checkpoint]")
@without_files_option
@dry_run_option
@yes_option
def rollback(
    database: DatabaseTarget, id: str, to: str | None, without_files: bool, dry_run: bool, yes: bool, as_json: bool
) -> None:
    """Roll a run back to an earlier point in time.

    Tasks, results, questions, the agents' conversations, messages and files are rolled back together. POINT is a
    checkpoint's name, a version such as 12 or -1 (one before the newest), @POSITION, or a time such as 10m (ago).

    A run that is executed is paused first, and its agents are stopped. Nothing is rewritten: what came after stays in
    the journal and in git, and can be returned to in the same way. Agents resume from the files that were saved last
    before that point.
    """
    if not dry_run:
        need_yes(f"a rollback changes {id}", yes=yes, as_json=as_json)

    async def look(m: Maos) -> TravelPlan:
        run = await m.runs.find(id)
        moment = await point(m, run, to) if to else None
        return await m.travel.rollback(run.id, moment, dry_run=True)

    if database.is_remote:
        _roll_back_remotely(id, to, without_files=without_files, dry_run=dry_run, yes=yes, as_json=as_json)
        return
    plan = database.read(look)
    if dry_run or not yes:
        _show(plan, None, as_json=as_json)
        if dry_run:
            return
        ask(f"Roll {plan.run} back to {plan.point.spoken}?")

    async def work(m: Maos) -> tuple[Run, TravelPlan]:
        await _paused(m, await m.runs.get(plan.run))
        done = await m.travel.rollback(plan.run, plan.point, without_files=without_files)
        return await m.runs.get(plan.run), done

    run, done = database.write(work)
    _show_rolled_back(done, run, shown=yes, as_json=as_json)


def _show_rolled_back(done: TravelPlan | TravelInfo, run: Run | RunDetails, *, shown: bool, as_json: bool) -> None:
    """Print what a rollback did, with its plan if that was not shown before, and how to undo it."""
    if shown:
        _show(done, run, as_json=as_json)
    if as_json:
        return
    render.line((run.id, "bold"), f" is now at version {run.version}, with the state of {spoken(done.point)}")
    _on(run)
    render.line(("to undo this: ", "dim"), f"maos rollback {run.id} --to {done.undo}")


def _roll_back_remotely(
    id: str, to: str | None, *, without_files: bool, dry_run: bool, yes: bool, as_json: bool
) -> None:
    """`maos rollback` of a run of a server, which is paused first if an engine executes it."""

    async def look(client: Client) -> tuple[RunDetails, TravelInfo]:
        run = await remote.find_run(client, id)
        return run, await client.rollback(run.id, remote.point_text(to), dry_run=True)

    run, plan = remote.call(look)
    if dry_run or not yes:
        _show(plan, None, as_json=as_json)
        if dry_run:
            return
        ask(f"Roll {plan.run} back to {spoken(plan.point)}?")

    async def work(client: Client) -> tuple[RunDetails, TravelInfo]:
        if run.engine is not None and run.engine.alive:
            await client.pause(run.id)
        done = await client.rollback(run.id, str(plan.point.version), without_files=without_files)
        return await client.run(run.id), done

    run, done = remote.call(work)
    _show_rolled_back(done, run, shown=yes, as_json=as_json)


@json_command(
    "maos fork r-1a2b3c --at before-refactoring",
    "maos fork r-1a2b3c --at 12 --id r-try-b --json",
    "maos fork r-1a2b3c --dry-run",
)
@run_argument
@click.option("--at", metavar="POINT", help="The point in time to start from.  [default: now]")
@click.option("--id", "into", metavar="NEW", default="", help="The id of the new run; with the same it is made once.")
@without_files_option
@dry_run_option
def fork(
    database: DatabaseTarget, id: str, at: str | None, into: str, without_files: bool, dry_run: bool, as_json: bool
) -> None:
    """Start a second run from any point in time of a run.

    It has what the first one had then: tasks, results, questions, conversations, messages, and files in worktrees of
    its own. The first run is not changed, and may be running. POINT is a checkpoint's name, a version such as 12 or -1,
    @POSITION, or a time such as 10m (ago). `maos resume NEW` executes the new run.
    """

    async def work(m: Maos) -> tuple[Run | None, TravelPlan]:
        run = await m.runs.find(id)
        moment = await point(m, run, at)
        done = await m.travel.fork(run.id, moment, into=into, without_files=without_files, dry_run=dry_run)
        return None if dry_run else await m.runs.get(done.run), done

    async def work_remotely(client: Client) -> tuple[RunDetails | None, TravelInfo]:
        run = await remote.find_run(client, id)
        given = {"into": into, "without_files": without_files, "dry_run": dry_run}
        done = await client.fork(run.id, remote.point_text(at), **given)  # type: ignore[arg-type]  # as named
        return None if dry_run else await client.run(done.run), done

    run: Run | RunDetails | None
    done: TravelPlan | TravelInfo
    if database.is_remote:
        run, done = remote.call(work_remotely)
    else:
        run, done = database.read(work) if dry_run else database.write(work)
    _show(done, run, as_json=as_json)
    if run is not None and not as_json:
        origin = f"{done.point.run}, {spoken(done.point)}"
        render.line((run.id, "bold"), f" starts with the state of {clean(origin)}")
        _on(run)


async def _paused(m: Maos, run: Run) -> None:
    """Pause a run that an engine executes, and wait until it has stopped."""
    from maos.runs.status import is_executing

    if is_executing(run):
        await m.runs.pause_and_wait(run.id)


def spoken(point: PointInTime | PointInfo) -> str:
    """A point in time as messages name it."""
    return f"checkpoint {clean(point.name)}, version {point.version}" if point.name else f"version {point.version}"


def _on(run: Run | RunDetails) -> None:
    if run.status != "completed":
        render.line(("resume with: ", "dim"), (f"maos resume {run.id}", "bold"))


def _next(step: PlannedStep) -> str:
    """What the task does after the rollback or in the fork."""
    if step.what != "continues":
        return {"kept": "is done", "begins": "has not started", "given up": "was planned later"}[step.what]
    found = f"resumes from {step.checkpoint or 'its start'} ({render.when(step.saved_us)})"
    found += ", in its conversation" if step.remembers else ""
    return found + (f", gets {render.many(step.messages, 'message')} again" if step.messages else "")


STEPS: Listing[PlannedStep] = Listing(
    "steps",
    (
        Column("task", lambda each: each.task, style="bold", yields=1),
        Column("now", lambda each: each.now),
        Column("then", lambda each: each.then),
        Column("", _next, yields=2),
        Column("agent", lambda each: each.agent, style="dim", yields=3),
    ),
)


def _show(plan: TravelPlan | TravelInfo, run: Run | RunDetails | None, *, as_json: bool) -> None:
    """Print what a rollback or a fork does to each task; `run` is the run afterwards, None for a dry run."""
    if as_json:
        after = {} if run is None else {"version": run.version, "status": run.status}
        documents.show({"dry_run": run is None, **documents.of(plan), "undo": plan.undo, **after})
        return
    STEPS.table(plan.steps)
    if plan.commit:
        render.line((f"merged work: commit {plan.commit[:12]}", "dim"))
    for each in plan.questions:
        render.line(("asked again: ", "dim"), clean(each))
    if plan.stopped:
        render.line(("stopped: ", "dim"), clean(", ".join(plan.stopped)))
    for note in plan.notes:
        render.line((f"note: {clean(note)}", "yellow"))


async def point(m: Maos, run: Run, text: str | None) -> PointInTime:
    """The point in time that a person means; now, if the text is empty."""
    return await m.travel.point(run.id, _when(run, text))


def _when(run: Run, text: str | None) -> When:
    if not text:
        return None
    if any(each.name == text for each in run.checkpoints) or text.startswith("@"):
        return text
    with suppress(click.BadParameter):
        found: Version = VERSION.convert(text, None, None)
        if not found.number and not found.from_newest:
            raise InvalidInput(f"{run.id} has no version 0", hint=f"its versions are 1 to {run.version}")
        return -found.number if found.from_newest else found.number
    try:
        return to_datetime(WHEN.convert(text, None, None))
    except click.BadParameter:
        hint = f"give {POINT}; `maos checkpoint {run.id} --list` lists checkpoints"
        raise InvalidInput(f"{run.id} has no point in time {text!r}", hint=hint) from None


@json_command(
    "maos join r-1a2b3c r-4d5e6f --dry-run", "maos join r-1a2b3c r-4d5e6f", "maos join r-1a2b3c r-4d5e6f --theirs"
)
@run_argument
@click.argument("other", metavar="OTHER", shell_complete=commands.complete_runs)
@click.option("--ours", "policy", flag_value="ours", help="Where both changed something, take it from ID.")
@click.option("--theirs", "policy", flag_value="theirs", help="Take it from OTHER.")
@click.option("--newest", "policy", flag_value="newest", help="Take what came last.")
@dry_run_option
def join(database: DatabaseTarget, id: str, other: str, policy: str | None, dry_run: bool, as_json: bool) -> int:
    """Merge what a fork has done into a run, or vice versa.

    Both come from one run. Tasks that only OTHER has done or planned become part of ID, and the files are merged from
    where the two diverged. OTHER is not changed. Where both changed the same thing, --ours, --theirs or --newest
    decides; without one of them you are asked, and nothing is joined before you have answered with `maos answer` and
    repeated this. (`maos merge` is different: it merges a run's files into your branch.)
    """

    async def work(m: Maos) -> JoinPlan:
        run, theirs = await m.runs.find(id), await m.runs.find(other)
        if not dry_run:
            await _paused(m, run)
        return await m.travel.join(run.id, theirs.id, policy=policy or "", dry_run=dry_run)

    done = database.read(work) if dry_run else database.write(work)
    if as_json:
        chosen = done.chosen
        conflicts = [{"id": each.id, **documents.of(each), "chosen": chosen.get(each.id)} for each in done.conflicts]
        found = {"dry_run": dry_run, **documents.of(done, "run", "other", "base", "undo", "taken", "added")}
        found |= {"joined": not (done.open or dry_run), "questions": [each.ref for each in done.asked]}
        documents.show({**found, "conflicts": conflicts, "commit": done.commit or None})
    else:
        _show_union(done, dry_run=dry_run)
    return CONFLICT if done.open and not dry_run else 0


def _show_union(done: JoinPlan, *, dry_run: bool) -> None:
    render.line((f"{done.run} and {done.other} diverged at version {done.base.version} of {done.base.run}", "dim"))
    for title, names in (("taken from it: ", done.taken), ("new: ", done.added)):
        if names:
            render.line((title, "dim"), clean(", ".join(names)))
    for each in done.conflicts:
        chosen = done.chosen.get(each.id)
        render.line(("conflict: ", "yellow"), clean(each.id), f", {chosen} is used" if chosen else "")
        render.line(("  ours    ", "dim"), words.one_line(each.ours, render.room_for_value(10)))
        render.line(("  theirs  ", "dim"), words.one_line(each.theirs, render.room_for_value(10)))
    if dry_run:
        return
    if done.open:
        render.line((f"nothing was joined: {render.many(len(done.open), 'conflict')} left", "bold red"))
        for question in done.asked:
            render.line(("answer with: ", "dim"), (f"maos answer {clean(question.ref)} <ours|theirs>", "bold"))
        render.line(("then: ", "dim"), f"maos join {done.run} {done.other}")
        return
    files = f", merged as commit {done.commit[:12]}" if done.commit else ""
    render.line((clean(done.run), "bold"), f" has what {clean(done.other)} has done{files}")
    render.line(("to undo this: ", "dim"), f"maos rollback {done.run} --to {done.undo}")
