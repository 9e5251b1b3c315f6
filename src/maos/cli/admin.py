"""`maos admin doctor`, `notify` and `effects`: look after the database, this machine, and what runs did to others."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING

import click

import maos
from maos.cli import completion, documents, render, words
from maos.cli.commands import LINES, LazyGroup, json_command, yes_option
from maos.cli.database import DatabaseTarget, need_yes
from maos.cli.failures import FAILED
from maos.cli.render import Column, Listing, clean
from maos.cli.runs.start import check_addresses
from maos.errors import InvalidInput, MaosError

if TYPE_CHECKING:
    from maos.ops.doctor import Finding
    from maos.views.effects import ExternalEffect

STYLES = {"ok": "green", "note": "dim", "look": "bold yellow", "bad": "bold red"}

EFFECTS: Listing[ExternalEffect] = Listing(
    "effects",
    (
        Column("by", lambda each: each.by, style="bold", yields=1),
        Column("id", lambda each: each.id, yields=4),
        Column("what", lambda each: each.what),
        Column("outcome", lambda each: each.outcome),
        Column("begun", lambda each: render.when(each.begun_us)),
        Column("given", lambda each: words.one_line(each.given, None), style="dim", yields=3),
    ),
)


# --- doctor ------------------------------------------------------------------------------------------------------


@json_command("maos admin doctor", "maos admin doctor --fix", "maos admin doctor --fix --yes --json")
@click.option("--fix", is_flag=True, help="End processes and remove files that were left behind, after asking.")
@yes_option
def doctor(database: DatabaseTarget, fix: bool, yes: bool, as_json: bool) -> int:
    """Check the installation, the database, and leftovers.

    The database, agents and their holders, stray processes, folders and worktrees, and the programs of agents. `look`
    is for a person to decide, `bad` is wrong; exits with 1 if anything bad remains. Nothing is changed without --fix,
    and never what belongs to an agent that can be resumed, or to another database.
    """
    from maos.ops.doctor import without_database

    if fix:
        need_yes("fixing ends processes and removes files", yes=yes, as_json=as_json)
    findings: list[Finding] = []

    async def examine(found: Awaitable[list[Finding]]) -> int:
        findings.extend(await found)
        return await _treat(findings, fix=fix, yes=yes, as_json=as_json)

    try:
        return database.read(lambda m: examine(m.doctor()))
    except MaosError as error:
        if findings:
            raise
        import asyncio

        found = without_database(database.name, error, lambda: database.settings, version=maos.__version__)
        return asyncio.run(examine(found))


async def _treat(findings: Sequence[Finding], *, fix: bool, yes: bool, as_json: bool) -> int:
    """Print findings, and repair what a person agrees to; the exit code says whether anything bad is left."""
    width = max(len(each.about) for each in findings)
    for each in () if as_json else findings:
        render.line((f"{each.level:<4}  ", STYLES[each.level]), f"{each.about:<{width}}  ", clean(each.what))
        if each.hint:
            render.line((f"{'':<{width + 8}}{clean(each.hint)}", "dim"))
    is_fixed = [fix and await _repair(each, yes=yes, as_json=as_json) for each in findings]
    bad = [each for each, fixed in zip(findings, is_fixed, strict=True) if each.level == "bad" and not fixed]
    if as_json:
        rows = [
            {"level": each.level, "about": each.about, "what": each.what, "hint": each.hint or None,
             "fixable": each.fix is not None, "fixed": fixed}
            for each, fixed in zip(findings, is_fixed, strict=True)
        ]  # fmt: skip
        documents.show({"ok": not bad, "findings": rows})
    elif bad:
        fixable = sum(each.fix is not None for each in bad)
        it = "it" if fixable == 1 else fixable
        how = f"; `maos admin doctor --fix` can fix {it}" if fixable and not fix else ""
        render.line(("bad", "bold red"), f": {render.many(len(bad), 'thing')}{how}")
    return FAILED if bad else 0


async def _repair(finding: Finding, *, yes: bool, as_json: bool) -> bool:
    """Repair something if there is a way and a person agrees; whether that was done."""
    if finding.fix is None or finding.question is None:
        return False
    if not yes and not click.confirm(clean(finding.question), err=True):
        return False
    done = await finding.fix()
    if not as_json:
        render.line(("fixed", "bold green"), f"  {clean(done)}")
    return True


# --- notify ------------------------------------------------------------------------------------------------------


@click.group(
    cls=LazyGroup,
    lazy={
        "test": ("maos.cli.admin:test", "Send a test notification to every address."),
        "list": ("maos.cli.admin:list_notices", "List notifications, and whether each was sent."),
    },
    examples=["maos admin notify test json://127.0.0.1:8080", "maos admin notify list"],
)
def notify() -> None:
    """Test notifications, and list those that were sent.

    A run notifies you when it needs you or has ended, at the addresses in MAOS_NOTIFY and --notify, by apprise: mail,
    chats, push messages.
    """


@json_command("maos admin notify test", "maos admin notify test json://127.0.0.1:8080 --json")
@click.argument("urls", metavar="[URL]...", nargs=-1)
def test(database: DatabaseTarget, urls: tuple[str, ...], as_json: bool) -> int:
    """Send a test notification to every address.

    The addresses are those in MAOS_NOTIFY, and each URL. Exits with 1 if one of them could not be reached.
    """
    from maos.runs import notify as notices

    found = check_addresses(database, urls)
    if not found:
        raise InvalidInput("there is no address to send to", hint="export MAOS_NOTIFY='mailto://…', or give a URL")
    tested = []
    for address in found:
        why = notices.test(address)
        tested.append({"address": address.name, "sent": not why, "why": why or None})
        if not as_json:
            said = ("not sent", "bold red") if why else ("sent", "green")
            render.line(f"address {address.name}  ", said, f"  {clean(why)}" if why else "")
    is_ok = all(each["sent"] for each in tested)
    if as_json:
        documents.show({"ok": is_ok, "addresses": tested})
    return 0 if is_ok else FAILED


@json_command("maos admin notify list", "maos admin notify list --json", json=LINES)
def list_notices(database: DatabaseTarget, as_json: bool) -> None:
    """List notifications, and whether each was sent.

    `unknown` is one that was about to be sent when its process died: it is not sent again.
    """
    found = database.read(lambda m: m.notices())
    for each in found:
        if as_json:
            documents.show_line(documents.of(each))
            continue
        states = ", ".join(f"{address} {state}" for address, state in each.addresses.items())
        render.line((render.when(each.time_us), "dim"), f"  {clean(each.title)}  ", (states, "dim"))
    if not found and not as_json:
        render.line(("no notifications", "dim"))


# --- effects -----------------------------------------------------------------------------------------------------


@json_command("maos admin effects --unknown", "maos admin effects r-1a2b3c", "maos admin effects order-7 --json")
@click.argument("id", metavar="[ID]", required=False, default="", shell_complete=completion.ids)
@click.option("--unknown", is_flag=True, help="Only those whose outcome is unknown.")
def effects(database: DatabaseTarget, id: str, unknown: bool, as_json: bool) -> None:
    """List side effects: tool calls, commands and workflow steps.

    ID is RUN, RUN/TASK, an agent or a workflow run; without it, everything. Each effect is recorded before it starts
    and when it has ended; the outcome of one that started and did not end is unknown. The prompt of a resumed agent
    names which of its tool calls are; a command is started again; of a step you are asked (`maos workflow resolve`).
    """
    found = database.read(lambda m: m.effects(id, unknown=unknown))
    empty = "no outcome is unknown" if unknown else "no side effects"
    EFFECTS._replace(empty=empty).show(found, as_json=as_json)
