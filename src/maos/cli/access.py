"""`maos access`: who may do what with the store, a project, a run or an agent."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from maos.cli import commands, documents, render
from maos.cli.commands import WHEN, LazyGroup, dry_run_option, json_command, seconds
from maos.cli.database import DatabaseTarget
from maos.cli.render import Column, Listing, clean

if TYPE_CHECKING:
    from maos.app import Maos
    from maos.model.access import AccessVerdict, Grant

ROLES = ("viewer", "answerer", "operator", "admin", "auditor")
VERBS = (
    "read", "read_output", "answer", "steer", "start", "stop", "rollback", "erase", "export", "grant", "audit",
)  # fmt: skip
ON = "store, project/FOLDER, run/ID or agent/NAME"


@click.group(
    cls=LazyGroup,
    lazy={
        "grant": ("maos.cli.access:grant", "Grant a token or an agent a role, or verbs, on something."),
        "revoke": ("maos.cli.access:revoke", "Revoke a grant."),
        "check": ("maos.cli.access:check", "Say whether a token or an agent may do something, and why."),
        "list": ("maos.cli.access:list_", "List who may do what."),
    },
    examples=[
        "maos access grant token:phone --role answerer --on run/r-1",
        "maos access check token:phone answer run/r-2",
        "maos access list --at 2026-03-03",
    ],
)
def access() -> None:
    """Decide who may do what with projects, runs and agents.

    What is not granted is denied. A token has what it was created with (`maos token create --role ROLE --on WHAT`), and
    what it was granted since. An agent has its own run, by its tools. A person who opens the database itself has all of
    it. Roles are viewer (read, read_output), answerer (also answer), operator (also steer, start, stop, rollback,
    export), admin (also erase, grant, audit), and auditor (read, audit).
    """


def _document(each: Grant) -> documents.Document:
    found = documents.of(each, "id", "principal", "role", "on", "by", "created_us", "expires_us")
    return {**found, "verbs": sorted(each.verbs)}


GRANTS: Listing[Grant] = Listing(
    "grants",
    (
        Column("id", lambda each: each.id, style="bold"),
        Column("principal", lambda each: each.principal, yields=2),
        Column("may", lambda each: each.words.removesuffix(f" on {each.on}"), yields=3),
        Column("on", lambda each: each.on, yields=1),
        Column("since", lambda each: render.when(each.created_us)),
        Column("until", lambda each: render.when(each.expires_us) if each.expires_us else ""),
        Column("by", lambda each: each.by, style="dim", yields=4),
    ),
    empty="no grants; `maos token create NAME` creates a token, `maos access grant` gives it more",
    of=_document,
)


@json_command(
    "maos access grant token:phone --role answerer --on run/r-1",
    "maos access grant token:ci --verb start --verb read --on project/. --expires 4w",
    "maos access grant agent:r-1.fix --verb read --on run/r-2",
)
@click.argument("principal")
@click.option("--role", type=click.Choice(ROLES), default=None, help="A role.")
@click.option("--verb", "verbs", type=click.Choice(VERBS), multiple=True, help="A verb; may be repeated.")
@click.option("--on", default="store", metavar="WHAT", show_default=True, help=f"On what: {ON}.")
@click.option("--expires", type=commands.DURATION, help="It does not count any more after so long.  [default: never]")
def grant(
    database: DatabaseTarget,
    /,
    principal: str,
    role: str | None,
    verbs: tuple[str, ...],
    on: str,
    expires: int | None,
    as_json: bool,
) -> None:
    """Grant a token or an agent a role, or verbs, on something.

    PRINCIPAL is `token:NAME` or `agent:NAME`. The grant counts at once, for servers that run too, and ends with the
    token.
    """

    async def work(m: Maos) -> Grant:
        return await m.access.grant(principal, role=role or "", verbs=verbs, on=on, expires_s=seconds(expires) or 0.0)

    given = database.write(work)
    render.show(_document(given), f"{clean(given.principal)} has {clean(given.words)} ({given.id})", as_json=as_json)


@json_command("maos access revoke 3fa21b07", "maos access revoke 3fa21b07 --dry-run")
@click.argument("id")
@dry_run_option
def revoke(database: DatabaseTarget, id: str, dry_run: bool, as_json: bool) -> None:
    """Revoke a grant.

    ID is one that `maos access list` shows, or the beginning of one. What a token was created with is revoked with the
    token: `maos token revoke`.
    """
    gone = database.write(lambda m: m.access.revoke_grant(id, dry_run=dry_run), dry_run=dry_run)
    text = f"{clean(gone.principal)} {'would have' if dry_run else 'has'} {clean(gone.words)} no more ({gone.id})"
    render.show({**_document(gone), "dry_run": dry_run}, text, as_json=as_json)


@json_command("maos access check token:phone answer run/r-2", "maos access check token:ci start store --at 2026-03-03")
@click.argument("principal")
@click.argument("verb", type=click.Choice(VERBS))
@click.argument("on", default="store")
@click.option("--at", "time_us", type=WHEN, help="As it was at a time: ISO 8601, or 2h, 3d ago.")
def check(database: DatabaseTarget, principal: str, verb: str, on: str, time_us: int | None, as_json: bool) -> int:
    """Say whether a token or an agent may do something, and why.

    ON is store, project/FOLDER, run/ID or agent/NAME. The exit code is 1 when it is denied.
    """

    async def work(m: Maos) -> AccessVerdict:
        if time_us is not None:
            return await m.access.check_at(principal, verb, on, time_us)
        return await m.access.check(principal, verb, on)

    found = database.read(work)
    said = f"{'allowed' if found.allowed else 'denied'}: {clean(found.why)}"
    render.show({"allowed": found.allowed, "why": found.why}, said, as_json=as_json)
    return 0 if found.allowed else 1


@json_command("maos access list", "maos access list token:phone --at 2h")
@click.argument("principal", default="")
@click.option("--at", "time_us", type=WHEN, help="As it was at a time: ISO 8601, or 2h, 3d ago.")
def list_(database: DatabaseTarget, principal: str, time_us: int | None, as_json: bool) -> None:
    """List who may do what.

    It lists what credentials allow, and what was granted since; with --at, as it was then.
    """
    GRANTS.show(database.read(lambda m: m.access.grants(principal, at_us=time_us)), as_json=as_json)
