"""`maos import`: a run that was exported elsewhere, or the runs of the database of the original."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from maos.cli import documents
from maos.cli.commands import LazyCommand, dry_run_option, json_option
from maos.cli.database import DatabaseTarget
from maos.cli.plain import clean
from maos.errors import InvalidInput

if TYPE_CHECKING:
    from pathlib import Path

    from maos.app import Maos
    from maos.legacy.legacy_import import LegacyImport
    from maos.legacy.parser import LegacyContents

WORDS = {"new": "imported", "more": "brought up to date", "same": "already here", "moved_on": "carried on here since"}


@click.command(
    "import",
    cls=LazyCommand,
    examples=[
        "maos import r-1a2b3c.maos --dry-run",
        "maos import r-1a2b3c.maos --cwd ~/project",
        "maos --db runs.db import maos.db --dry-run",
        "maos --db runs.db import ~/project/maos.db --orchestration 7a0d8a68 --json",
    ],
)
@click.argument("source", metavar="FILE")
@click.option(
    "--orchestration", "wanted", metavar="ID", default="",
    help="Only this one, of a maos.db; the beginning of its id will do.",
)  # fmt: skip
@click.option("--cwd", type=click.Path(exists=True, file_okay=False), metavar="DIRECTORY",
              help="The folder that its agents work in: in a git repository, if their files were in one.  "
              "[default: the current one; that of FILE for a maos.db]")  # fmt: skip
@dry_run_option
@json_option
@click.pass_obj
def import_(database: DatabaseTarget, source: str, wanted: str, cwd: str | None, dry_run: bool, as_json: bool) -> None:
    """Import a run from another machine, or the orchestrations of the original.

    FILE is what `maos export` wrote, or - for standard input; or the maos.db of the original, maos-cli 0.8.9 to 0.9.4.
    It is only read, and may be a stranger's: nothing that it brings is carried out before you agree to it, in `maos
    resume`. Finished tasks are finished here too, and those that were interrupted go on in their own conversations.
    Importing it again brings what is new in it, and is harmless otherwise; what was carried on here stays as it is.
    """
    from pathlib import Path

    from maos.legacy import legacy_import
    from maos.transfer.file import is_bundle

    if source == "-" or is_bundle(Path(source).expanduser()):
        from maos.cli.orchestrate import bundles

        if wanted:
            raise InvalidInput("a bundle has one run", hint="leave out --orchestration")
        bundles.bring(database, source, cwd or ".", dry_run=dry_run, as_json=as_json)
        return
    path = Path(source).expanduser()
    _check_target(database, path)
    found = legacy_import.read(path)
    folder = Path(cwd).absolute() if cwd else path.absolute().parent

    async def work(m: Maos) -> list[LegacyImport]:
        return await _bring(m, found, folder, wanted=wanted, dry_run=dry_run)

    if dry_run:
        brought = database.foresee(work)
    else:
        brought = database.write(work, create=True)
    if as_json:
        documents.show(_document(path, found, brought, dry_run=dry_run))
    else:
        _show(path, found, brought, dry_run=dry_run)


async def _bring(m: Maos, found: LegacyContents, folder: Path, *, wanted: str, dry_run: bool) -> list[LegacyImport]:
    from maos import settings
    from maos.clock import SystemClock
    from maos.engine import agent_types
    from maos.legacy import legacy_import
    from maos.legacy.builder import ImportTarget

    place = ImportTarget(folder, m.attempts.folder, agent_types.known(folder, settings.config_folder()))
    importer = legacy_import.LegacyImporter(m.journal, SystemClock(), place, claude=legacy_import.claude_folder())
    return [each async for each in importer.bring(found, wanted=wanted, dry_run=dry_run)]


def _check_target(database: DatabaseTarget, path: Path) -> None:
    """Refuse to import a file into itself: both programs call theirs maos.db."""
    from pathlib import Path as Path_

    target = Path_(database.name)
    if "://" in database.name or not target.exists() or not path.exists() or not target.samefile(path):
        return
    raise InvalidInput(
        f"{path} is also the database to import into",
        hint=f"name another one, which will be made: `maos --db runs.db import {path}`; or rename the original's first",
    )


# --- showing -----------------------------------------------------------------------------------------------------


def _document(path: Path, found: LegacyContents, brought: list[LegacyImport], *, dry_run: bool) -> dict[str, Any]:
    return {
        "file": str(path),
        "dry_run": dry_run,
        "orchestrations": [_row(each) for each in brought],
        "left_out": found.left_out,
    }


def _row(each: LegacyImport) -> dict[str, Any]:
    run, before = each.run, each.orchestration
    return {
        "id": run.id,
        "original_id": before.id,
        "original_status": before.said_status or None,
        "what": each.what,
        "status": run.status,
        "request": run.request,
        "created_us": run.created_us,
        "tasks": len(run.tasks),
        "done": run.done,
        "interrupted": each.unfinished,
        "sessions": each.sessions,
        "messages": each.messages,
        "messages_waiting": each.waiting,
        "cost_usd": run.cost_usd,
    }


def _show(path: Path, found: LegacyContents, brought: list[LegacyImport], *, dry_run: bool) -> None:
    from maos.cli import render
    from maos.cli.agent import words

    if not brought:
        render.line(f"{clean(str(path))} has no orchestrations")
    else:
        columns = (
            render.Column("id", style="bold"),
            render.Column("status"),
            render.Column("tasks", right=True),
            render.Column("messages", right=True),
            render.Column("waiting", right=True),
            render.Column("cost", right=True),
            render.Column("begun"),
            render.Column("request", yields=2),
            render.Column("now", style="dim", yields=1),
        )
        rows = [
            (
                each.run.id,
                each.run.status,
                f"{each.run.done}/{len(each.run.tasks)}",
                str(each.messages),
                str(each.waiting),
                words.money(each.run.cost_usd) if each.run.cost_usd else "",
                render.when(each.run.created_us),
                words.one_line(each.run.request, 60),
                f"would be {WORDS[each.what]}" if dry_run and each.what in ("new", "more") else WORDS[each.what],
            )
            for each in brought
        ]
        render.table(columns, rows)
    for what, count in found.left_out.items():
        render.line((f"left out: {what} ({count})", "dim"))
    _show_what_next(brought, dry_run=dry_run)


def _show_what_next(brought: list[LegacyImport], *, dry_run: bool) -> None:
    from maos.cli import render

    open_ones = [each for each in brought if each.run.status != "completed" and each.what != "moved_on"]
    if not open_ones:
        return
    begun = sum(each.unfinished for each in open_ones)
    if begun:
        kept = sum(each.sessions for each in open_ones)
        render.line(
            f"{render.many(begun, 'agent')} can go on: {kept} in their conversations, which are on this machine; "
            f"{begun - kept} with what is known of their work"
        )
    if not dry_run:
        render.line(f"`maos resume {open_ones[0].run.id} --dry-run` shows what going on would mean")
