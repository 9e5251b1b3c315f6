"""`maos checkpoint` and `maos admin save-interval`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from maos.cli import documents as shared
from maos.cli import render
from maos.cli.agent import words
from maos.cli.commands import LazyCommand, json_option
from maos.cli.completion import run_argument
from maos.cli.database import DatabaseTarget
from maos.cli.render import Column, Listing, clean

if TYPE_CHECKING:
    from maos.app import Maos
    from maos.model.run import Run, RunCheckpoint


class CheckpointRow(NamedTuple):
    """A checkpoint of a run, or of the files of one of its agents."""

    name: str
    agent: str | None
    attempt: int | None
    version: int
    trigger: str
    commit: str | None
    time_us: int


CHECKPOINTS: Listing[CheckpointRow] = Listing(
    "checkpoints",
    (
        Column("made", lambda each: render.when(each.time_us)),
        Column("name", lambda each: each.name, style="bold", yields=1),
        Column("of", lambda each: each.agent or "the run", yields=2),
        Column("why", lambda each: each.trigger),
        Column("version", lambda each: str(each.version), right=True),
        Column("files", lambda each: (each.commit or "")[:12]),
    ),
    empty="no checkpoints; `maos checkpoint ID --name NAME` makes one",
)


class VersionInfo(NamedTuple):
    """A version of a run, and what happened then."""

    version: int
    position: int
    event: str
    what: str
    time_us: int


VERSIONS: Listing[VersionInfo] = Listing(
    "versions",
    (
        Column("version", lambda each: str(each.version), right=True, style="bold"),
        Column("time", lambda each: render.when(each.time_us)),
        Column("what", lambda each: each.what, yields=1),
    ),
)


@click.command(
    cls=LazyCommand,
    examples=[
        "maos checkpoint r-1a2b3c --name before-refactoring",
        "maos checkpoint r-1a2b3c --list",
        "maos checkpoint r-1a2b3c --list --all",
    ],
)
@run_argument
@click.option("--name", default="", help="The name.  [default: manual-VERSION]")
@click.option("--list", "only_list", is_flag=True, help="List checkpoints instead: of the run and its agents' files.")
@click.option("--all", "everything", is_flag=True, help="With --list: every version of the run, and what happened.")
@json_option
@click.pass_obj
def checkpoint(database: DatabaseTarget, id: str, name: str, only_list: bool, everything: bool, as_json: bool) -> None:
    """Name the state of a run, or list its checkpoints.

    The files of its agents are saved with it. Nothing is lost without one: every version of a run is kept, `maos
    rollback` and `maos fork` accept any of them, and files are saved every few minutes. If no engine executes the run,
    the files are those that were saved last.
    """
    if only_list or everything:
        _list(database, id, everything=everything, as_json=as_json)
        return

    async def work(m: Maos) -> tuple[Run, CheckpointRow]:
        run = await m.runs.find(id)
        called = name or f"manual-{run.version}"
        await m.travel.checkpoint(run.id, called)
        run = await m.runs.get(run.id)
        return run, next(each for each in map(_of_run, run.checkpoints) if each.name == called)

    run, made = database.write(work)
    if as_json:
        shared.show({"id": run.id, **shared.of(made)})
        return
    render.line("checkpoint ", (clean(made.name), "bold"), f" of {run.id}, at version {made.version}")


def _list(database: DatabaseTarget, id: str, *, everything: bool, as_json: bool) -> None:
    """Print the checkpoints or the versions of a run, the oldest first."""

    async def checkpoints(m: Maos) -> tuple[Run, list[CheckpointRow]]:
        run = await m.runs.find(id)
        found = [_of_run(each) for each in run.checkpoints]
        found += [
            CheckpointRow(made.name, each.agent, each.number, made.version, made.trigger, made.commit, made.at_us)
            for each in await m.runs.attempts_of(run)
            for made in each.checkpoints
        ]
        return run, sorted(found, key=lambda each: each.time_us)

    async def versions(m: Maos) -> tuple[Run, list[VersionInfo]]:
        run = await m.runs.find(id)
        return run, [
            VersionInfo(each.version, each.position, each.type, said(each.type, each.data), each.time_us)
            for each in await m.runs.versions(run.id)
        ]

    if everything:
        run, passed = database.read(versions)
        VERSIONS.show(passed, as_json=as_json, id=run.id)
    else:
        run, made = database.read(checkpoints)
        CHECKPOINTS.show(made, as_json=as_json, id=run.id)


def _of_run(each: RunCheckpoint) -> CheckpointRow:
    return CheckpointRow(each.name, None, None, each.version, each.trigger, each.commit or None, each.at_us)


@click.command(
    "save-interval",
    cls=LazyCommand,
    examples=["maos admin save-interval 60", "maos admin save-interval"],
)
@click.argument("seconds", metavar="[SECONDS]", type=float, required=False)
@json_option
@click.pass_obj
def save_interval(database: DatabaseTarget, seconds: float | None, as_json: bool) -> None:
    """Set or show how often files are saved.

    The interval is kept in the database and counts for all its runs; engines notice a change within seconds. Output,
    messages and decisions are saved at once in any case.
    """

    async def work(m: Maos) -> float:
        return await m.runs.save_interval_s(seconds)

    now = database.read(work) if seconds is None else database.write(work, create=True)
    if as_json:
        shared.show({"save_interval_s": now})
        return

    render.line(f"files of running agents are saved every {now:g} s")


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
            text = f"uses the new {data.get('file', '')}"
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
