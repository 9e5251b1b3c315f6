"""`maos doctor`: what is here, what is wrong with it, and what was left behind."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from maos.cli import documents as shared
from maos.cli.commands import LazyCommand, json_option, yes_option
from maos.cli.database import DatabaseTarget, need_yes
from maos.cli.failures import FAILED
from maos.cli.plain import clean

if TYPE_CHECKING:
    from maos.cli.finding import Finding

STYLES = {"ok": "green", "note": "dim", "look": "bold yellow", "bad": "bold red"}
LABEL_WIDTH = 9


@click.command(cls=LazyCommand, examples=["maos doctor", "maos doctor --fix", "maos doctor --fix --yes --json"])
@click.option("--fix", is_flag=True, help="End processes and remove files that were left behind, after asking.")
@yes_option
@json_option
@click.pass_context
def doctor(ctx: click.Context, fix: bool, yes: bool, as_json: bool) -> None:
    """Check what is here, and what was left behind.

    The database, agents and the processes that hold them, strays, folders and worktrees, and the programs of agents.
    `look` is something for a person to decide, `bad` something wrong; exits with 1 if anything bad remains. Nothing is
    changed without --fix, and nothing that belongs to an agent which can go on, or to another database.
    """
    if fix:
        need_yes("fixing ends processes and removes files", yes=yes, as_json=as_json)
    from maos.cli import examination

    database: DatabaseTarget = ctx.obj
    findings = examination.examine(database)
    if not as_json:
        _show(findings)
    fixed = [index for index, each in enumerate(findings) if fix and _fix(each, yes=yes, as_json=as_json)]
    left = [each for index, each in enumerate(findings) if each.level == "bad" and index not in fixed]
    if as_json:
        shared.show(
            {"ok": not left, "findings": [_document(each, index in fixed) for index, each in enumerate(findings)]}
        )
    else:
        _conclude(left, fix=fix)
    if left:
        ctx.exit(FAILED)


def _fix(finding: Finding, *, yes: bool, as_json: bool) -> bool:
    """Put something right if there is a way and nobody objects; whether that was done."""
    if finding.fix is None or finding.question is None:
        return False
    if not yes and not click.confirm(clean(finding.question), err=True):
        return False
    import asyncio

    done = asyncio.run(finding.fix())
    if not as_json:
        from maos.cli import render

        render.line(("fixed", "bold green"), f"  {clean(done)}")
    return True


def _show(findings: list[Finding]) -> None:
    from maos.cli import render

    width = max(len(each.about) for each in findings)
    for each in findings:
        render.line((f"{each.level:<4}  ", STYLES[each.level]), f"{each.about:<{width}}  ", clean(each.what))
        if each.hint:
            render.line((f"{'':<{width + 8}}{clean(each.hint)}", "dim"))


def _conclude(left: list[Finding], *, fix: bool) -> None:
    from maos.cli import render

    if not left:
        return
    fixable = sum(each.fix is not None for each in left)
    how = f"; `maos doctor --fix` can put {'it' if fixable == 1 else fixable} right" if fixable and not fix else ""
    render.line(("bad", "bold red"), f": {render.many(len(left), 'thing')}{how}")


def _document(finding: Finding, fixed: bool) -> shared.Document:
    return {
        "level": finding.level,
        "about": finding.about,
        "what": finding.what,
        "hint": finding.hint or None,
        "fixable": finding.fix is not None,
        "fixed": fixed,
    }
