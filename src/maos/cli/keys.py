"""`maos key`, `maos erase` and `maos data`: encryption of the database, erasure, and what is recorded of a person."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import click

import maos
from maos import settings
from maos.cli import documents, render
from maos.cli.backup import ProgressLine
from maos.cli.commands import LINES, dry_run_option, json_command, yes_option
from maos.cli.database import DatabaseTarget, ask, need_yes
from maos.cli.failures import FAILED, note
from maos.cli.render import Column, Listing, clean
from maos.errors import InvalidInput
from maos.files import private_folder
from maos.keys import sources
from maos.ops.encryption import ScopeKeys

if TYPE_CHECKING:
    from maos.app import Maos
    from maos.ops.erasure import ErasureReceipt

SCOPES: Listing[ScopeKeys] = Listing(
    "scopes",
    (
        Column("run or agent", lambda each: each.scope or "(everything else)", style="bold", yields=1),
        Column("keys", lambda each: f"{each.keys}", right=True),
        Column("newest", lambda each: render.when(each.made_us)),
        Column("erased", lambda each: render.when(each.erased_us) if each.erased_us else ""),
    ),
    "there are no data keys yet",
)
source_argument = click.argument("source", metavar="[SOURCE]", default="")


@json_command("maos key generate", "maos key generate file:/media/stick/maos.key", "maos key generate keyring:maos")
@source_argument
def generate(_database: DatabaseTarget, source: str, as_json: bool) -> None:
    """Generate a key that databases can be encrypted with.

    SOURCE is file:PATH, age:PATH (a new age identity) or keyring:NAME (an entry of the keyring of the operating
    system); by default the file `key` in the folder of your settings. An existing key is never overwritten. Keep a copy
    of the key elsewhere: without it an encrypted database cannot be read by anyone.
    """
    if not source:
        source = f"file:{private_folder(settings.config_folder()) / 'key'}"
    sources.generate(source)
    if as_json:
        documents.show({"source": source})
        return
    render.line(f"generated {clean(source)}; keep a copy of it elsewhere: nothing else opens what it seals")
    render.line(("new databases are encrypted with it by: ", "dim"), _setting(source))
    render.line(("one that exists is encrypted by: ", "dim"), "maos key encrypt")


@json_command("maos key list", "maos key list --json")
def list_(database: DatabaseTarget, as_json: bool) -> None:
    """List the keys of an encrypted database, without their content."""
    found = database.read(lambda m: m.keys.list())
    if as_json:
        documents.show(found)
        return
    state = "unlocked" if found.is_unlocked else "locked: the setting encryption.source does not name its key"
    render.line(f"a key of the kind {found.source}, made {render.when(found.made_us)}; {state}")
    if found.is_rotating:
        render.line(("a rotation was interrupted: ", "yellow"), "`maos key rotate` finishes it")
    SCOPES.show(found.scopes, as_json=False)


@json_command("maos key encrypt", "maos --db old.db key encrypt file:/media/stick/maos.key --yes --json")
@source_argument
@yes_option
def encrypt(database: DatabaseTarget, source: str, yes: bool, as_json: bool) -> None:
    """Encrypt a SQLite database that exists.

    No other process may have it open. SOURCE is where the key comes from, by default the setting encryption.source. A
    new database is made beside the old one, verified, and takes its place; killed before that, the old one is there as
    it was. Backups of the old one are not continued and stay as they are: delete them, and `maos backup start` begins a
    new one.
    """
    source = _source(database, source)
    database.check()
    need_yes(f"encrypting {database.name} replaces it", yes=yes, as_json=as_json, flags="--yes")
    if not yes:
        ask(f"Encrypt {database.name}? Without the key ({source}) it can then be read by no one.")
    bar = ProgressLine(as_json=as_json)
    position = asyncio.run(maos.encrypt(database.name, source, report=bar.count))
    bar.end()
    if as_json:
        documents.show({"database": str(database.name), "source": source, "position": position})
        return
    render.line(f"{clean(str(database.name))} is encrypted, up to position {position}")
    render.line(("to use it: ", "dim"), _setting(source))
    render.line(("not reached: backups and copies from before, and blocks of the disk that the old file had", "dim"))


@json_command("maos key rotate", "maos key rotate --to file:/media/stick/new.key", "maos key rotate --json")
@click.option("--to", "source", default="", metavar="SOURCE", help="Where the key comes from afterwards.")
def rotate(database: DatabaseTarget, source: str, as_json: bool) -> None:
    """Have a new key wrap all data keys.

    New events are sealed with new data keys. Events that are recorded already are not written again. It can be
    interrupted at any time: everything stays readable, and the next `maos key rotate` finishes it. Processes that have
    the database open must be started again.
    """
    source, bar = _source(database, source), ProgressLine(as_json=as_json)
    done = database.write(lambda m: m.keys.rotate(source, bar.count))
    bar.end()
    if as_json:
        documents.show(done)
        return
    what = "finished the interrupted rotation" if done.finished else "rotated the key"
    render.line(f"{what}: {render.many(done.keys, 'data key')}")
    if source != database.settings.values.encryption.source:
        render.line(("from now on the database needs: ", "dim"), _setting(source))


@json_command("maos key export keys.json", "maos key export /media/stick/keys.json --json")
@click.argument("path", metavar="FILE", type=click.Path(path_type=Path))
def export(database: DatabaseTarget, path: Path, as_json: bool) -> None:
    """Write the wrapped keys to a new file, for safekeeping.

    They are of no use without the key that unlocks the database. With it, they open also what is erased later: delete
    the file after an erasure, and export it again.
    """
    count = database.read(lambda m: m.keys.export(path))
    wrote = f"wrote {render.many(count, 'wrapped key')} to {clean(str(path))}"
    render.show({"path": str(path), "keys": count}, wrote, as_json=as_json)


@json_command("maos erase r-1a2b3c --dry-run", "maos erase r-1a2b3c --yes --json", "maos erase reviewer --why 'asked'")
@click.argument("name", metavar="RUN|AGENT")
@click.option("--why", default="", metavar="TEXT", help="The reason; recorded with the erasure.")
@dry_run_option
@yes_option
def erase(database: DatabaseTarget, name: str, why: str, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Erase a run or an agent from an encrypted database, for good.

    An agent of a run is erased with its run. The keys are destroyed, so that events, states and messages can no longer
    be read, also in backups that are restored later. The run must have ended; its id is given in full. Its worktrees,
    and the homes and spools of its agents, are removed. The receipt says what an erasure does not reach.
    """

    async def work(m: Maos, *, dry_run: bool) -> ErasureReceipt:
        return await m.erasures.erase(name, why=why, dry_run=dry_run)

    if not dry_run:
        need_yes(f"{name} would be erased for good", yes=yes, as_json=as_json)
    found = database.read(lambda m: work(m, dry_run=True))
    if not dry_run:
        if not yes:
            _show_receipt(found, is_done=False)
            if click.prompt(clean(f"Type {name} to erase it"), default="", show_default=False, err=True) != name:
                note("nothing was changed")
                raise click.exceptions.Exit(FAILED)
        found = database.write(lambda m: work(m, dry_run=False))
    if as_json:
        documents.show({"dry_run": dry_run, **documents.of(found)})
    else:
        _show_receipt(found, is_done=not dry_run)


@json_command("maos data export alice", "maos data export alice@build-3 --json", json=LINES)
@click.argument("person", metavar="PERSON")
def export_data(database: DatabaseTarget, person: str, as_json: bool) -> None:
    """Print everything that is recorded by or about a person.

    Each event is a JSON document on a line of its own. PERSON is a user, or USER@HOST, as events record who acted.
    """

    async def work(m: Maos) -> int:
        count = 0
        async for record in m.records_of(person):
            documents.show_line({"kind": "event", **record})
            count += 1
        return count

    count = database.read(work)
    if not as_json:
        note(f"{render.many(count, 'event')} of {person}")


def _source(database: DatabaseTarget, given: str) -> str:
    found = given or database.settings.values.encryption.source
    if not found:
        hint = "give one, such as file:PATH, or set encryption.source; `maos key generate` makes one"
        raise InvalidInput("no key is named", hint=hint)
    return found


def _setting(source: str) -> str:
    return f"encryption.source = '{clean(source)}' in your settings (`maos admin config edit`)"


def _show_receipt(found: ErasureReceipt, *, is_done: bool) -> None:
    render.line((found.scope, "bold"), " was erased" if is_done else " would be erased", ":")
    render.line(f"  {render.many(found.events, 'event')}, sealed with {render.many(found.keys, 'key')}")
    render.line(f"  {render.many(found.documents, 'stored fold or snapshot', 'stored folds and snapshots')}")
    for folder in found.folders:
        render.line(f"  folder {clean(folder)}")
    if found.backup:
        render.line(f"  its keys in the backup at {clean(found.backup)}")
    render.line(("not reached:", "yellow"))
    for each in found.unreachable:
        render.line(f"  {clean(each)}")
