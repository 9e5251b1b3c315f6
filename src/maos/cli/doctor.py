"""`maos admin doctor`: what is here, what is wrong with it, and what was left behind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

import maos
from maos.cli import documents, render
from maos.cli.commands import LazyCommand, json_option, yes_option
from maos.cli.database import DatabaseTarget, need_yes
from maos.cli.failures import FAILED
from maos.cli.render import clean
from maos.errors import MaosError

if TYPE_CHECKING:
    from maos.app import Maos
    from maos.ops.doctor import Finding

STYLES = {"ok": "green", "note": "dim", "look": "bold yellow", "bad": "bold red"}


@click.command(
    cls=LazyCommand, examples=["maos admin doctor", "maos admin doctor --fix", "maos admin doctor --fix --yes --json"]
)
@click.option("--fix", is_flag=True, help="End processes and remove files that were left behind, after asking.")
@yes_option
@json_option
@click.pass_context
def doctor(ctx: click.Context, fix: bool, yes: bool, as_json: bool) -> None:
    """Check the installation, the database, and leftovers.

    The database, agents and their holders, stray processes, folders and worktrees, and the programs of agents. `look`
    is for a person to decide, `bad` is wrong; exits with 1 if anything bad remains. Nothing is changed without --fix,
    and never what belongs to an agent that can be resumed, or to another database.
    """
    if fix:
        need_yes("fixing ends processes and removes files", yes=yes, as_json=as_json)
    import asyncio

    database: DatabaseTarget = ctx.obj
    visit = _Visit(fix=fix, yes=yes, as_json=as_json)
    try:
        database.read(visit.examine)
    except MaosError as error:
        if visit.examined:
            raise
        asyncio.run(visit.examine_machine(database, error))
    if visit.left:
        ctx.exit(FAILED)


class _Visit:
    """One examination: its findings are printed, and repaired if a person agrees."""

    def __init__(self, *, fix: bool, yes: bool, as_json: bool) -> None:
        self._fix = fix
        self._yes = yes
        self._as_json = as_json
        self.examined = False
        self.left: Sequence[Finding] = ()
        """What is bad and was not repaired."""

    async def examine(self, m: Maos) -> None:
        """Examine an open database and this machine."""
        findings = await m.doctor()
        self.examined = True
        await self.treat(findings)

    async def examine_machine(self, database: DatabaseTarget, error: MaosError) -> None:
        """Examine this machine when the database could not be opened."""
        from maos.ops.doctor import without_database

        load, version = (lambda: database.settings), maos.__version__
        await self.treat(await without_database(database.name, error, load, version=version))

    async def treat(self, findings: Sequence[Finding]) -> None:
        """Show findings, and repair what can be."""
        if not self._as_json:
            _show(findings)
        fixed = [index for index, each in enumerate(findings) if self._fix and await self._repair(each)]
        self.left = [each for index, each in enumerate(findings) if each.level == "bad" and index not in fixed]
        if self._as_json:
            rows = [_document(each, index in fixed) for index, each in enumerate(findings)]
            documents.show({"ok": not self.left, "findings": rows})
        elif self.left:
            fixable = sum(each.fix is not None for each in self.left)
            it = "it" if fixable == 1 else fixable
            how = f"; `maos admin doctor --fix` can fix {it}" if fixable and not self._fix else ""
            render.line(("bad", "bold red"), f": {render.many(len(self.left), 'thing')}{how}")

    async def _repair(self, finding: Finding) -> bool:
        """Repair something if there is a way and a person agrees; whether that was done."""
        if finding.fix is None or finding.question is None:
            return False
        if not self._yes and not click.confirm(clean(finding.question), err=True):
            return False
        done = await finding.fix()
        if not self._as_json:
            render.line(("fixed", "bold green"), f"  {clean(done)}")
        return True


def _show(findings: Sequence[Finding]) -> None:
    width = max(len(each.about) for each in findings)
    for each in findings:
        render.line((f"{each.level:<4}  ", STYLES[each.level]), f"{each.about:<{width}}  ", clean(each.what))
        if each.hint:
            render.line((f"{'':<{width + 8}}{clean(each.hint)}", "dim"))


def _document(finding: Finding, fixed: bool) -> documents.Document:
    return {
        "level": finding.level,
        "about": finding.about,
        "what": finding.what,
        "hint": finding.hint or None,
        "fixable": finding.fix is not None,
        "fixed": fixed,
    }
