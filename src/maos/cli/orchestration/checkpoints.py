"""`maos orchestration checkpoint`, `checkpoints` and `save-interval`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from maos.cli import documents as shared
from maos.cli.commands import LazyCommand, json_option
from maos.cli.database import DatabaseTarget
from maos.cli.orchestration.showing import id_argument

if TYPE_CHECKING:
    from maos.app import Maos
    from maos.model.attempt import Attempt
    from maos.model.run import Run


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
        from maos.cli.orchestration import standing

        run = await standing.find(m, id)
        await m.travel.checkpoint(run.id, name)
        return await m.runs.get(run.id)

    run = database.write(work)
    made = next(each for each in run.checkpoints if each["name"] == name)
    if as_json:
        shared.show({"id": run.id, **_document(made)})
        return
    from maos.cli import render

    render.line("checkpoint ", (name, "bold"), f" of {run.id}, at version {made['version']}")


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
        from maos.cli.orchestration import versions

        versions.show(database, id, as_json=as_json)
        return

    async def work(m: Maos) -> tuple[Run, list[Attempt]]:
        from maos.cli.orchestration import standing

        run = await standing.find(m, id)
        return run, await _attempts(m, run)

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
    from maos.cli import render

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


async def _attempts(m: Maos, run: Run) -> list[Attempt]:
    """All attempts of the agents of a run."""
    from maos.errors import NotFound

    found: list[Attempt] = []
    for task in run.tasks.values():
        if task.attempts:
            try:
                found += await m.attempts.history(run.agent(task.name))
            except NotFound:
                pass  # recorded as begun, and not begun yet
    return found


def _document(each: dict[str, Any]) -> shared.Document:
    return {
        "name": each.get("name", ""),
        "agent": None,
        "attempt": None,
        "version": each["version"],
        "trigger": each.get("trigger", ""),
        "commit": each.get("commit") or None,
        **shared.time(each["at_us"]),
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
        from maos.clock import SystemClock
        from maos.engine import saving

        if seconds is not None:
            await saving.set_interval(m.journal, SystemClock(), seconds)
        return await saving.interval_s(m.journal, m.settings.values.checkpoint.interval_s)

    now = database.read(work) if seconds is None else database.write(work, create=True)
    if as_json:
        shared.show({"save_interval_s": now})
        return
    from maos.cli import render

    render.line(f"files of agents that run are saved every {now:g} s")
