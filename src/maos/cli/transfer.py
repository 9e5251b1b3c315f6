"""`maos admin copy`, `export` and `import`: backups, and runs that move between machines."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from maos.cli import completion, documents, render
from maos.cli.agent import words
from maos.cli.commands import LazyCommand, dry_run_option, json_option
from maos.cli.console import Field, Listing
from maos.cli.database import DatabaseTarget
from maos.cli.failures import note
from maos.cli.plain import clean
from maos.cli.runs import bundles
from maos.errors import InvalidInput

if TYPE_CHECKING:
    from maos.app import Maos
    from maos.transfer.importers import ImportedRun, RunSource
    from maos.transfer.service import Exported

SUFFIX = ".maos"


@click.command(
    cls=LazyCommand, examples=["maos admin copy backup.db", "maos --db /srv/agents.db admin copy backup.db --json"]
)
@click.argument("target", metavar="TARGET")
@json_option
@click.pass_obj
def copy(database: DatabaseTarget, target: str, as_json: bool) -> None:
    """Copy the database to a new file while it is in use.

    The copy is of one point in time, and complete or not there at all. A SQLite database becomes another SQLite
    database that maos can open; a PostgreSQL database becomes one line of JSON for each row. TARGET must not exist yet.
    """
    path = Path(target)
    if path.exists() or path.is_symlink():
        raise InvalidInput(f"{target} exists already", hint="name a file that does not, or move that one away")
    if not path.parent.is_dir():
        raise InvalidInput(f"there is no folder {path.parent}", hint="create it first")

    async def work(m: Maos) -> int:
        return await m.copy_to(path)

    position = database.read(work)
    size = path.stat().st_size
    if as_json:
        documents.show({"target": target, "position": position, "bytes": size})
        return
    render.line(f"copied everything up to position {position} to {clean(target)} ({render.size(size)})")


@click.command(
    cls=LazyCommand,
    examples=[
        "maos admin export r-1a2b3c",
        "maos admin export r-1a -o parser.maos --json",
        "maos admin export r-1a -o - | ssh other 'cd project && maos admin import -'",
    ],
)
@click.argument("id", metavar="ID", shell_complete=completion.runs)
@click.option("-o", "--output", metavar="FILE", default="", help="The file; - is standard output.  [default: ID.maos]")
@click.option("--to-stdout", is_flag=True, help="The same as -o -.")
@click.option("--without-files", is_flag=True, help="Without the commits of its files: only what is in the journal.")
@json_option
@click.pass_obj
def export(database: DatabaseTarget, id: str, output: str, to_stdout: bool, without_files: bool, as_json: bool) -> None:
    """Export a run or a workflow run to one file.

    The file holds the events of the run and its agents, their messages and conversations, and the commits of their
    files with the history that these need, all as of one point in time; the run may continue meanwhile. Keep the file
    and its copies private: it holds what agents said and did, without keys and passwords. `maos admin import` reads it.
    """
    is_piped = to_stdout or output == "-"
    if is_piped and (as_json or output not in ("", "-")):
        raise InvalidInput("standard output is for the bundle itself", hint="give one of -o FILE, --to-stdout, --json")
    if is_piped and sys.stdout.isatty():
        raise InvalidInput("a terminal cannot show a bundle", hint="send it to a file or a program: `… > FILE`")

    async def work(m: Maos) -> tuple[str, Exported]:
        found = (await m.find(id, "run", "workflow")).id
        if is_piped:
            made = await m.transfer.export(found, sys.stdout.buffer, files=not without_files)
            sys.stdout.buffer.flush()
            return "-", made
        path = Path(output or f"{found}{SUFFIX}")
        return str(path), await m.transfer.export(found, path, files=not without_files)

    target, made = database.read(work)
    if as_json:
        counts = {"streams": len(made.manifest.streams), "refs": len(made.manifest.refs)}
        document = {**documents.of(made.manifest), **counts, "events": made.events, "bytes": made.bytes}
        documents.show({"file": target, **document, "sha256": made.sha256})
    elif not is_piped:
        _show_exported(target, made)
    for text in made.manifest.left_out:
        note(f"left out: {clean(text)}")
    if made.manifest.carried_out:
        note(f"an engine executes {made.manifest.id}: what it does from now on is not in the file; pause it to move it")


def _show_exported(target: str, made: Exported) -> None:
    manifest = made.manifest
    commits = f", {render.many(len(manifest.refs), 'commit')}" if manifest.refs else ""
    render.line(
        (clean(manifest.id), "bold"),
        f": {render.many(made.events, 'event')} of {render.many(len(manifest.streams), 'stream')}{commits} "
        f"→ {clean(target)} ({render.size(made.bytes)})",
    )


@click.command(
    "import",
    cls=LazyCommand,
    examples=[
        "maos admin import r-1a2b3c.maos --dry-run",
        "maos admin import r-1a2b3c.maos --cwd ~/project",
        "maos --db runs.db admin import maos.db --dry-run",
        "maos --db runs.db admin import ~/project/maos.db --orchestration 7a0d8a68 --json",
    ],
)
@click.argument("source", metavar="FILE")
@click.option(
    "--orchestration", "wanted", metavar="ID", default="",
    help="Only this one, of a maos.db; a unique prefix of its id is enough.",
)  # fmt: skip
@click.option("--cwd", type=click.Path(exists=True, file_okay=False), metavar="DIRECTORY",
              help="The folder that its agents work in: in a git repository, if their files were in one.  "
              "[default: the current one; that of FILE for a maos.db]")  # fmt: skip
@dry_run_option
@json_option
@click.pass_obj
def import_(database: DatabaseTarget, source: str, wanted: str, cwd: str | None, dry_run: bool, as_json: bool) -> None:
    """Import a run from another machine, or the runs of maos-cli.

    FILE is what `maos admin export` wrote, or - for standard input; or a maos.db of maos-cli 0.8.9 to 0.9.4. It is only
    read, and need not be trusted: nothing that it brings is executed before you agree to it, in `maos resume`. Finished
    tasks are finished here too, and interrupted ones resume their own conversations. Importing it again adds what is
    new in it, and is harmless otherwise; a run that was resumed here stays as it is.
    """
    from maos.transfer import importers
    from maos.transfer.bundle import is_bundle

    if source == "-" or is_bundle(Path(source).expanduser()):
        if wanted:
            raise InvalidInput("a bundle has one run", hint="leave out --orchestration")
        bundles.bring(database, source, cwd or ".", dry_run=dry_run, as_json=as_json)
        return
    path = Path(source).expanduser()
    _check_target(database, path)
    found = importers.read(path)
    folder = Path(cwd).absolute() if cwd else path.absolute().parent

    async def work(m: Maos) -> list[ImportedRun]:
        return await m.transfer.import_runs(found, folder=folder, wanted=wanted, dry_run=dry_run)

    if dry_run:
        brought = database.preview(work)
    else:
        brought = database.write(work, create=True)
    if as_json:
        documents.show(
            {
                "file": str(path),
                "dry_run": dry_run,
                "orchestrations": [_row(each) for each in brought],
                "left_out": found.left_out,
            }
        )
    else:
        _show_imported(path, found, brought, dry_run=dry_run)


def _check_target(database: DatabaseTarget, path: Path) -> None:
    """Refuse to import a database into itself: both programs call theirs maos.db."""
    target = Path(database.name)
    if "://" in database.name or not target.exists() or not path.exists() or not target.samefile(path):
        return
    raise InvalidInput(
        f"{path} is also the database to import into",
        hint=f"name another one, which will be created: `maos --db runs.db admin import {path}`; or rename the first",
    )


def _row(each: ImportedRun) -> documents.Document:
    run = each.run
    return {
        "id": run.id,
        "original_id": each.original_id,
        "original_status": each.original_status or None,
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


def _imported(*, dry_run: bool) -> Listing[ImportedRun]:
    def now(each: ImportedRun) -> str:
        return (
            f"would be {bundles.WORDS[each.what]}"
            if dry_run and each.what in ("new", "more")
            else bundles.WORDS[each.what]
        )

    return Listing(
        "orchestrations",
        (
            Field("id", lambda each: each.run.id, style="bold"),
            Field("status", lambda each: each.run.status),
            Field("tasks", lambda each: f"{each.run.done}/{len(each.run.tasks)}", right=True),
            Field("messages", lambda each: str(each.messages), right=True),
            Field("waiting", lambda each: str(each.waiting), right=True),
            Field("cost", lambda each: words.money(each.run.cost_usd) if each.run.cost_usd else "", right=True),
            Field("begun", lambda each: render.when(each.run.created_us)),
            Field("request", lambda each: words.one_line(each.run.request, 60), yields=2),
            Field("now", now, style="dim", yields=1),
        ),
    )


def _show_imported(path: Path, found: RunSource, brought: list[ImportedRun], *, dry_run: bool) -> None:
    if not brought:
        render.line(f"{clean(str(path))} has no orchestrations")
    else:
        _imported(dry_run=dry_run).table(brought)
    for what, count in found.left_out.items():
        render.line((f"left out: {what} ({count})", "dim"))
    _show_what_next(brought, dry_run=dry_run)


def _show_what_next(brought: list[ImportedRun], *, dry_run: bool) -> None:
    open_ones = [each for each in brought if each.run.status != "completed" and each.what != "moved_on"]
    if not open_ones:
        return
    begun = sum(each.unfinished for each in open_ones)
    if begun:
        kept = sum(each.sessions for each in open_ones)
        render.line(
            f"{render.many(begun, 'agent')} can resume: {kept} in their conversations, which are on this machine; "
            f"{begun - kept} with what is known of their work"
        )
    if not dry_run:
        render.line(f"`maos resume {open_ones[0].run.id} --dry-run` shows what resuming it would do")
