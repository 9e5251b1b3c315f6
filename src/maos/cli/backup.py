"""`maos backup`: write backups of the database, look at them, and restore them."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

import maos
from maos.backup import service
from maos.backup.archive import BackupHead
from maos.cli import documents, remote, render, words
from maos.cli.commands import LINES, WHEN, dry_run_option, json_command, yes_option
from maos.cli.database import DatabaseTarget, ask, need_yes
from maos.cli.failures import FAILED, note
from maos.cli.render import Column, Listing, clean
from maos.clock import SystemClock
from maos.errors import InvalidInput, NotFound
from maos.settings import DatabaseName

if TYPE_CHECKING:
    from maos.app import Maos
    from maos.backup.shipper import Progress
    from maos.model.events.records import BackupTested
    from maos.web.system_documents import BackupInfo

SHOW_S = 0.2
"""How often the line with the progress is printed anew."""

BACKUPS: Listing[BackupHead | BackupInfo] = Listing(
    "backups",
    (
        Column("store", lambda each: each.store[:12], style="bold"),
        Column("database", lambda each: f"{each.place} of {each.host}", yields=1),
        Column("position", lambda each: f"{each.position:,}", right=True),
        Column("recorded", lambda each: render.when(each.recorded_us)),
        Column("size", lambda each: render.size(each.bytes), right=True),
    ),
    "there is no backup",
)

location_argument = click.argument("location", metavar="[LOCATION]", default="")
store_option = click.option("--store", default="", metavar="ID", help="Which database, if the location has several.")


@json_command(
    "maos backup start", "maos backup start s3://bucket/maos", "maos backup start /mnt/disk --once", json=LINES
)
@location_argument
@click.option("--once", is_flag=True, help="Write what is recorded now, and exit.")
def start(database: DatabaseTarget, location: str, once: bool, as_json: bool) -> int:
    """Write what is recorded to a backup, and keep it up to date.

    LOCATION is a folder, or the URL of a bucket: s3://BUCKET/PATH, gs://…, az://…; by default that of the settings
    (backup.to). Credentials come from the variables of the provider, such as AWS_ACCESS_KEY_ID. Agents never wait for a
    backup; while the location cannot be reached it falls behind, and catches up afterwards. Ctrl+C ends it.
    """
    where, every_s = find_location(database, location), database.settings.values.backup.every_s
    bar = ProgressLine(as_json=as_json)

    def report(progress: Progress) -> None:
        if as_json:
            documents.show_line({"kind": "progress", **progress._asdict()})
        else:
            bar.show(progress)

    async def work(m: Maos) -> None:
        head = await m.backups.ship(where, report)
        bar.end()
        if as_json:
            documents.show_line({"kind": "backup", **documents.of(head)})
        else:
            render.line(f"{clean(where)} has everything up to position {head.position} ({render.size(head.bytes)})")
        if not once:
            if not as_json:
                render.line(("it is kept up to date; Ctrl+C ends it, and the database is not affected", "dim"))
            sys.stdout.flush()
            await m.backups.follow(where, report, every_s=every_s)

    try:
        database.write(work, waits=True)
    except KeyboardInterrupt:
        bar.end()
        note("the backup is no longer kept up to date")
        return 130
    return 0


@json_command("maos backup status", "maos backup status s3://bucket/maos --json")
@location_argument
def status(database: DatabaseTarget, location: str, as_json: bool) -> int:
    """Compare the backup with the database: what would be lost now.

    Exits with 1 when there is no backup yet.
    """
    if _is_of_server(database, location):
        return remote.backup_status(as_json=as_json)
    where = find_location(database, location)
    found = database.read(lambda m: m.backups.status(where))
    if as_json:
        documents.show({**documents.of(found), "missing": found.missing})
    elif found.head is None:
        render.line(f"nothing was backed up to {clean(found.location)} yet; `maos backup start` does")
    else:
        render.line(f"{clean(found.location)}: {render.size(found.head.bytes)}, up to position {found.head.position}")
        behind = words.duration(found.behind_s)
        lost = f"{render.many(found.missing, 'position')} behind, for {behind}" if found.missing else "up to date"
        render.line((f"  {lost}; written {render.when(found.head.written_us)}", "yellow" if found.missing else "green"))
        if found.tested is None:
            render.line(("  never restored for a test: `maos backup test`", "dim"))
        else:
            outcome = clean(found.tested.problem) or _spoken(found.tested)
            render.line(f"  restored for a test {render.when(found.tested.at_us)}: {outcome}")
    return 0 if found.head is not None else FAILED


@json_command("maos backup list /mnt/disk", "maos backup list s3://bucket/maos --json")
@location_argument
def list_(database: DatabaseTarget, location: str, as_json: bool) -> None:
    """List the backups at a location, of all databases."""
    if _is_of_server(database, location):
        BACKUPS.show(remote.call(lambda client: client.backups()).backups, as_json=as_json)
        return
    BACKUPS.show(asyncio.run(service.find(find_location(database, location))), as_json=as_json)


@json_command("maos backup verify", "maos backup verify s3://bucket/maos --store 4f2a --json")
@location_argument
@store_option
def verify(database: DatabaseTarget, location: str, store: str, as_json: bool) -> int:
    """Read a whole backup, and check every event of it.

    Exits with 1 if anything is not as it was written, and says up to which position the backup can be restored.
    """
    bar = ProgressLine(as_json=as_json)
    if not store and _is_of_server(database, location):
        return remote.check_backup("verify", bar.count, bar.end, as_json=as_json)
    where = find_location(database, location)
    check = asyncio.run(service.verify(where, store, bar.count))
    bar.end()
    if as_json:
        documents.show({**documents.of(check), "ok": not check.damage})
    elif check.damage:
        render.line((clean(check.damage), "bold red"))
        render.line(
            f"it can be restored up to position {check.intact} of {check.head.position}: --position {check.intact}"
        )
    else:
        total = f"{render.many(check.events, 'event')} in {render.many(check.segments, 'segment')}"
        render.line(f"everything up to position {check.intact} is as it was written: {total}")
    return FAILED if check.damage else 0


@json_command("maos backup test", "maos backup test s3://bucket/maos --json")
@location_argument
def test(database: DatabaseTarget, location: str, as_json: bool) -> int:
    """Restore the backup to a temporary database, check it, and record the result.

    `maos serve` does it by itself (backup.test_hours). Exits with 1 when the backup cannot be restored.
    """
    bar = ProgressLine(as_json=as_json)
    if _is_of_server(database, location):
        return remote.check_backup("test", bar.count, bar.end, as_json=as_json)
    where = find_location(database, location)
    tested = database.write(lambda m: m.backups.test(where, bar.count))
    bar.end()
    if as_json:
        documents.show({**documents.of(tested), "ok": not tested.problem})
    elif tested.problem:
        render.line((f"it cannot be restored: {clean(tested.problem)}", "bold red"))
    else:
        render.line(("it can be restored: ", "green"), _spoken(tested))
    return FAILED if tested.problem else 0


@json_command(
    "maos backup restore s3://bucket/maos restored.db",
    "maos backup restore /mnt/disk before.db --at 2h",
    "maos backup restore /mnt/disk maos.db --replace",
    "maos backup restore /mnt/disk postgresql://maos@db/maos --json",
)
@click.argument("location", metavar="LOCATION")
@click.argument("target", metavar="DATABASE")
@store_option
@click.option("--at", "time_us", type=WHEN, help="As of a time: ISO 8601, or 2h, 3d ago.")
@click.option(
    "--repository",
    multiple=True,
    metavar="[OLD=]FOLDER",
    help="A clone that takes the agents' commits; OLD= if the backup has several repositories.",
)
@click.option("--position", type=click.IntRange(min=1), metavar="N", help="As of a position of the journal.")
@click.option("--replace", is_flag=True, help="Take the place of a database file; that one is kept beside it.")
def restore(
    database: DatabaseTarget,
    location: str,
    target: str,
    store: str,
    time_us: int | None,
    repository: tuple[str, ...],
    position: int | None,
    replace: bool,
    as_json: bool,
) -> None:
    """Restore a backup to a new database: a file, or a PostgreSQL URL.

    Every event is checked before it is written, and a file gets its name when it is complete. Nothing of the new
    database is executed until you have agreed to it: `maos --db DATABASE admin trust`.

    With --replace the new database takes the place of a file that no process has open, once all of it was verified. The
    file before it is kept beside it.

    The files of agents are commits of a git repository. On another machine, clone the repository, name the clone with
    --repository, and resume a run there: `maos --db DATABASE resume RUN --cwd FOLDER`.
    """
    if time_us is not None and position is not None:
        raise InvalidInput("--at and --position exclude each other", hint="give one of them")
    bar, name, into = ProgressLine(as_json=as_json), DatabaseName(target), _repositories(repository)
    done = asyncio.run(
        maos.restore(location, name, store=store, position=position, time_us=time_us, replace=replace, report=bar.count)
    )
    bar.end()
    files = asyncio.run(maos.restore_files(location, store=done.store, into=into))
    if as_json:
        documents.show({**documents.of(done), "database": str(name), "files": documents.of(files)})
        return
    until = f"up to position {done.position}, recorded {render.when(done.recorded_us)}"
    render.line(f"restored {render.many(done.events, 'event')} to {clean(str(name))}, {until}")
    if done.replaced:
        render.line(f"the database that was there is kept as {clean(done.replaced)}")
    for each in files:
        if each.into:
            render.line(f"{clean(each.into)} has the commits of {clean(each.repository)}: {each.refs} new")
        else:
            render.line((f"the files of agents in {clean(each.repository)} were not taken: --repository CLONE", "dim"))
    render.line((f"to use it: maos --db {clean(str(name))} admin trust", "dim"))


@json_command(
    "maos backup rm /mnt/disk 4f2a --dry-run", "maos backup rm s3://bucket/maos 4f2a91c05be24f7fa6e0b1d2c3a4f596 --yes"
)
@click.argument("location", metavar="LOCATION")
@click.argument("store", metavar="ID")
@dry_run_option
@yes_option
def rm(database: DatabaseTarget, location: str, store: str, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Remove the backup of a database that is no longer needed.

    ID is the whole identity of the database, which --dry-run shows for the beginning of one. A process that still
    writes this backup is refused from then on. Nothing else ever removes what a backup can restore.
    """
    where = find_location(database, location)
    fitting = [head for head in asyncio.run(service.find(where)) if head.store.startswith(store)]
    if len(fitting) != 1:
        what = f"{clean(where)} has {render.many(len(fitting), 'backup')} of databases whose ids begin with {store!r}"
        raise NotFound(what, hint="`maos backup list LOCATION` lists what is there")
    [head] = fitting
    if not as_json:
        until = f"position {head.position}, written {render.when(head.written_us)}"
        render.line(f"{head.store}: {clean(head.place)} of {clean(head.host)}, up to {until}")
    deleted = 0
    if not dry_run:
        if store != head.store:
            raise InvalidInput("a backup is removed by its whole id", hint=f"if you mean this one, name {head.store}")
        need_yes(f"removing {store} cannot be undone", yes=yes, as_json=as_json)
        if not yes:
            ask(f"Remove this backup, with {render.size(head.bytes)}? It cannot be undone.")
        deleted = asyncio.run(service.remove(where, store, now_us=SystemClock().now_us()))
    done = "it would be removed" if dry_run else f"removed, with {render.many(deleted, 'object')}"
    found = {"store": head.store, "position": head.position, "dry_run": dry_run, "deleted": deleted}
    render.show(found, done, as_json=as_json)


def _spoken(tested: BackupTested) -> str:
    return f"{render.size(tested.bytes)} in {words.duration(tested.took_us / 1e6)}, up to position {tested.position}"


def _repositories(given: tuple[str, ...]) -> dict[str, Path] | Path | None:
    """The repositories that take commits: one, one for each of the backup, or none."""
    if len(given) == 1 and "=" not in given[0]:
        return Path(given[0])
    pairs = [each.rpartition("=") for each in given]
    if any(not old for old, _separator, _new in pairs):
        raise InvalidInput("--repository is given several times", hint="name each as OLD=FOLDER")
    return {old: Path(new) for old, _separator, new in pairs} or None


def _is_of_server(database: DatabaseTarget, location: str) -> bool:
    """Whether the backup of the server that MAOS_URL names is meant, and not a location."""
    return database.is_remote and not location


def find_location(database: DatabaseTarget, given: str) -> str:
    """The location that was given, or that of the settings."""
    found = given or database.settings.values.backup.to
    if not found:
        raise InvalidInput(
            "no location of a backup is given", hint="name a folder or a bucket, or set backup.to in the settings"
        )
    return found if "://" in found else str(Path(found).expanduser())


class ProgressLine:
    """A line on standard error with the progress of long work, on a terminal only."""

    def __init__(self, *, as_json: bool) -> None:
        self._is_shown = not as_json and sys.stderr.isatty()
        self._shown_s = 0.0
        self._trouble = ""
        self._written = False

    def show(self, progress: Progress) -> None:
        """Show how far a backup is, and say once when its location cannot be reached."""
        if progress.trouble and not self._trouble:
            self.end()
            note(f"{progress.trouble}; trying again")
        elif self._trouble and not progress.trouble:
            self.end()
            note("the backup can be written again")
        self._trouble = progress.trouble
        if not progress.trouble and progress.position < progress.of:
            self.count(progress.position, progress.of)

    def count(self, done: int, of: int) -> None:
        """Show a part of a whole."""
        if self._is_shown and time.monotonic() - self._shown_s > SHOW_S:
            self._shown_s = time.monotonic()
            self._written = True
            click.echo(f"\r{done * 100 // max(of, 1):>3} %  position {done:,} of {of:,}\x1b[K", err=True, nl=False)

    def end(self) -> None:
        """Remove the line."""
        if self._written:
            self._written = False
            click.echo("\r\x1b[K", err=True, nl=False)
