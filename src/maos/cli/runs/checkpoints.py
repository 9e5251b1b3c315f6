"""`maos orchestration checkpoint`, `checkpoints` and `save-interval`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from maos.cli import documents as shared
from maos.cli import render
from maos.cli.agent import words
from maos.cli.commands import LazyCommand, json_option
from maos.cli.database import DatabaseTarget
from maos.cli.runs.options import id_argument

if TYPE_CHECKING:
    from maos.app import Maos
    from maos.model.attempt import Attempt
    from maos.model.run import Run, RunCheckpoint


@click.command(cls=LazyCommand, examples=["maos orchestration checkpoint r-1a2b3c --name before-refactoring"])
@id_argument
@click.option("--name", required=True, help="What it is called.")
@json_option
@click.pass_obj
def checkpoint(database: DatabaseTarget, id: str, name: str, as_json: bool) -> None:
    """Give the present state of a run a name.

    The files of its agents are saved under it. Nothing is lost without one: everything that happens is kept, and
    files are saved every few minutes. If nobody carries the run out, the files are as they were when last saved.
    """

    async def work(m: Maos) -> Run:
        run = await m.runs.find(id)
        await m.travel.checkpoint(run.id, name)
        return await m.runs.get(run.id)

    run = database.write(work)
    made = next(each for each in run.checkpoints if each.name == name)
    if as_json:
        shared.show({"id": run.id, **_document(made)})
        return

    render.line("checkpoint ", (name, "bold"), f" of {run.id}, at version {made.version}")


@click.command(
    cls=LazyCommand,
    examples=["maos orchestration checkpoints r-1a2b3c", "maos orchestration checkpoints r-1a2b3c --all"],
)
@id_argument
@click.option("--all", "everything", is_flag=True, help="Every version of the run instead, and what happened then.")
@json_option
@click.pass_obj
def checkpoints(database: DatabaseTarget, id: str, everything: bool, as_json: bool) -> None:
    """List the checkpoints of a run.

    Those of the run itself and those of its agents' files, the oldest first. A run can go back to any of its versions
    (`maos orchestration rollback`, `fork`), with a checkpoint or without.
    """
    if everything:
        _show_versions(database, id, as_json=as_json)
        return

    async def work(m: Maos) -> tuple[Run, list[Attempt]]:
        run = await m.runs.find(id)
        return run, await m.runs.attempts_of(run)

    run, attempts = database.read(work)
    found = [_document(each) for each in run.checkpoints]
    found += [
        {"name": each.name, "agent": attempt.agent, "attempt": attempt.number, "version": each.version,
         "trigger": each.trigger, "commit": each.commit, **shared.time(each.at_us)}
        for attempt in attempts for each in attempt.checkpoints
    ]  # fmt: skip
    found.sort(key=lambda each: int(each["time_us"]))
    if as_json:
        shared.show({"id": run.id, "checkpoints": found})
        return

    if not found:
        render.line(f"{run.id} has no checkpoints; `maos orchestration checkpoint {run.id} --name NAME` makes one")
        return
    columns = (
        render.Column("made"), render.Column("name", style="bold", yields=1), render.Column("of", yields=2),
        render.Column("why"), render.Column("version", right=True), render.Column("files"),
    )  # fmt: skip
    rows = [
        (
            render.when(each["time_us"]),
            each["name"],
            each["agent"] or run.id,
            each["trigger"],
            str(each["version"]),
            (each["commit"] or "")[:12],
        )
        for each in found
    ]
    render.table(columns, rows)


def _document(each: RunCheckpoint) -> shared.Document:
    return {
        "name": each.name,
        "agent": None,
        "attempt": None,
        "version": each.version,
        "trigger": each.trigger,
        "commit": each.commit or None,
        **shared.time(each.at_us),
    }


@click.command(
    "save-interval",
    cls=LazyCommand,
    examples=["maos orchestration save-interval 60", "maos orchestration save-interval"],
)
@click.argument("seconds", metavar="[SECONDS]", type=float, required=False)
@json_option
@click.pass_obj
def save_interval(database: DatabaseTarget, seconds: float | None, as_json: bool) -> None:
    """Set or show how often files are saved.

    Those of agents that run, that is. It is kept in the database and counts for all runs on it; engines that run
    notice within seconds. Output, messages and decisions are saved at once in any case.
    """

    async def work(m: Maos) -> float:
        return await m.runs.save_interval_s(seconds)

    now = database.read(work) if seconds is None else database.write(work, create=True)
    if as_json:
        shared.show({"save_interval_s": now})
        return

    render.line(f"files of agents that run are saved every {now:g} s")


def _show_versions(database: DatabaseTarget, id: str, *, as_json: bool) -> None:
    """All versions of a run, the oldest first, each with what happened then."""

    async def work(m: Maos) -> tuple[Run, Sequence[Any]]:
        run = await m.runs.find(id)
        return run, await m.runs.versions(run.id)

    run, found = database.read(work)
    if as_json:
        rows = [
            {"version": each.version, "position": each.position, "event": each.type, "what": said(each.type, each.data),
             **shared.time(each.time_us)}
            for each in found
        ]  # fmt: skip
        shared.show({"id": run.id, "versions": rows})
        return

    columns = (
        render.Column("version", right=True, style="bold"), render.Column("time"), render.Column("what", yields=1),
    )  # fmt: skip
    render.table(
        columns, [(str(each.version), render.when(each.time_us), said(each.type, each.data)) for each in found]
    )


def said(type_: str, data: Mapping[str, Any]) -> str:
    """What happened, on one line."""
    task = data.get("task", "")
    match type_:
        case "run_created" if data.get("origin"):
            text = f"forked from {data['origin']['run']}, version {data['origin']['version']}"
        case "run_planned":
            text = f"planned {', '.join(str(each.get('name', '')) for each in data['tasks'])}"
        case "run_checkpointed":
            text = f"checkpoint {data.get('name', '')}"
        case "run_rolled_back":
            text = f"rolled back to version {data['to']}"
        case "run_joined":
            text = f"joined with {data['other']['run']}"
        case "run_moved":
            text = f"moved to {data['folder']}"
        case "run_changed":
            text = f"goes on with the new {data.get('file', '')}"
        case "run_ended":
            text = str(data["status"])
        case "question_asked":
            text = f"asked: {data['question']}"
        case "question_answered":
            text = f"answered: {data['answer']}"
        case _:
            text = type_.removeprefix("run_").removeprefix("task_")
            text = f"{task} {text}" if task else text
    why = data.get("why") or (data.get("result", "") if type_ == "task_finished" else "")
    return words.one_line(f"{text}: {why}" if why else text, 120)
