"""`maos audit`: who read or did what over HTTP, and whether that was altered."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from maos.cli import documents, render
from maos.cli.commands import LINES, WHEN, LazyGroup, json_command
from maos.cli.database import DatabaseTarget
from maos.cli.render import Column, Listing, clean

if TYPE_CHECKING:
    from maos.model.events.audit import AuditEntry

OUTCOMES = ("allowed", "denied", "unauthenticated")


@click.group(
    cls=LazyGroup,
    lazy={
        "list": ("maos.cli.audit:list_", "List who read or did what, from where, and with what outcome."),
        "verify": ("maos.cli.audit:verify", "Check the audit, also against signed heads beside a backup."),
        "export": ("maos.cli.audit:export", "Print the whole audit as lines of JSON."),
        "sign": ("maos.cli.audit:sign", "Sign how far the audit reaches, and write that beside a backup."),
    },
    examples=["maos audit list --outcome denied", "maos audit verify", "maos audit export --since 4w > audit.jsonl"],
)
def audit() -> None:
    """See who read or did what over HTTP, and verify that.

    An act is recorded before it is executed, and the first read of an agent's output before it is answered. `maos
    serve` signs how far the audit reaches every minute, beside the backup (backup.to).
    """


def _document(each: AuditEntry) -> documents.Document:
    names = ("principal", "verb", "on", "what", "outcome", "address", "client", "count", "first_us", "last_us")
    found: documents.Document = documents.of(each, *names)
    return found


ENTRIES: Listing[AuditEntry] = Listing(
    "entries",
    (
        Column("when", lambda each: render.when(each.last_us)),
        Column("principal", lambda each: each.principal or "-", style="bold", yields=1),
        Column("outcome", lambda each: each.outcome),
        Column("verb", lambda each: each.verb),
        Column("on", lambda each: each.on, yields=2),
        Column("what", lambda each: each.what, yields=3),
        Column("times", lambda each: str(each.count)),
        Column("from", lambda each: each.address, style="dim", yields=4),
    ),
    empty="no entries; `maos serve` records who uses it",
    of=_document,
)


location_argument = click.argument("location", metavar="[LOCATION]", default="")


@json_command("maos audit list", "maos audit list --principal token:phone --since 2d", "maos audit list --on run/r-1")
@click.option("--principal", default="", help="Only of a principal, such as token:phone.")
@click.option("--on", default="", metavar="WHAT", help="Only on something, such as run/r-1.")
@click.option("--outcome", type=click.Choice(OUTCOMES), default=None, help="Only with an outcome.")
@click.option("--since", type=WHEN, help="Only at or after a time: ISO 8601, or 15m, 2h, 3d ago.")
@click.option("--last", type=click.IntRange(1), default=100, show_default=True, help="How many at most.")
def list_(
    database: DatabaseTarget,
    /,
    principal: str,
    on: str,
    outcome: str | None,
    since: int | None,
    last: int,
    as_json: bool,
) -> None:
    """List who read or did what, from where, and with what outcome.

    The oldest is first.
    """
    found = database.read(
        lambda m: m.audit.entries(principal=principal, on=on, outcome=outcome or "", since_us=since or 0, last=last)
    )
    ENTRIES.show(found, as_json=as_json)


@json_command("maos audit export --since 4w", json=LINES)
@click.option("--since", type=WHEN, help="Only at or after a time: ISO 8601, or 15m, 2h, 3d ago.")
def export(database: DatabaseTarget, since: int | None, as_json: bool) -> None:
    """Print the whole audit as lines of JSON.

    The oldest entry is first.
    """
    for each in database.read(lambda m: m.audit.entries(since_us=since or 0)):
        documents.show_line(_document(each))


@json_command("maos audit verify", "maos audit verify /mnt/backups")
@location_argument
def verify(database: DatabaseTarget, location: str, as_json: bool) -> int:
    """Check the audit, also against signed heads beside a backup.

    LOCATION is that of the backup, by default the one of the settings (backup.to). The command names what is missing or
    was altered; the exit code is 1 then. Without the heads, entries that were removed from the end cannot be noticed.
    """
    from maos.cli.backup import find_location

    is_witnessed = location or database.settings.values.backup.to
    where = find_location(database, location) if is_witnessed else ""
    found = database.read(lambda m: m.audit.verify(where))
    text = f"{found.entries:,} entries, {render.many(found.heads, 'signed head')}: " + (
        "as recorded" if not found.problems else ""
    )
    lines = [text, *(f"  {clean(each)}" for each in found.problems)]
    render.show(found._asdict(), "\n".join(lines), as_json=as_json)
    return 1 if found.problems else 0


@json_command("maos audit sign", "maos audit sign /mnt/backups")
@location_argument
def sign(database: DatabaseTarget, location: str, as_json: bool) -> None:
    """Sign how far the audit reaches, and write that beside a backup.

    LOCATION is that of the backup, by default the one of the settings (backup.to). `maos serve` does so every minute
    when backup.to is set. The key is a file in the state folder that only you can read; keep a copy of it. It needs
    `pip install 'maos[encrypt]'`.
    """
    from maos.cli.backup import find_location

    where = find_location(database, location)
    head = database.write(lambda m: m.audit.witness(where))
    position = head.position if head is not None else None
    said = f"signed up to position {position}" if position is not None else "it was signed already"
    render.show({"position": position}, said, as_json=as_json)
