"""`maos state rollback` and `restore`: make the state what it was. Both append; nothing is rewritten."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import click

from maos.cli import documents
from maos.cli.arguments import NEWEST, VERSION, Version
from maos.cli.commands import (
    LazyCommand,
    agent_argument,
    dry_run_option,
    full_option,
    json_option,
    source_option,
    yes_option,
)
from maos.cli.database import DatabaseTarget, ask, need_yes
from maos.cli.plain import clean

if TYPE_CHECKING:
    from maos.app import Maos
    from maos.model.changes import Change
    from maos.state.records import Restored, Update


class _Plan(NamedTuple):
    """What would be done."""

    newest: int
    changes: Sequence[Change]
    warnings: Sequence[str] = ()

    def document(self, agent: str, **what: object) -> documents.Document:
        """The plan for programs."""
        return {
            "dry_run": True,
            "agent": agent,
            **what,
            "version": None,
            "previous": self.newest,
            "changes": documents.changes(self.changes),
            "warnings": list(self.warnings),
        }

    def show(self, agent: str, target: str, *, full: bool) -> None:
        """The plan for people."""
        from maos.cli import render

        for warning in self.warnings:
            render.line((f"warning: {clean(warning)}", "yellow"))
        found = render.many(len(self.changes), "change") if self.changes else "no difference"
        render.line((clean(agent), "bold"), f" from version {self.newest} to {clean(target)}: {found}")
        render.changes(self.changes, full=full)


@click.command(
    cls=LazyCommand,
    examples=[
        "maos state rollback reviewer 3 --dry-run",
        "maos state rollback reviewer -1",
        "maos state rollback reviewer 3 --yes --expected 7",
    ],
)
@agent_argument
@click.argument("version", metavar="VERSION", type=VERSION)
@click.option("--expected", type=click.IntRange(min=1), metavar="N", help="Refuse unless the agent is at this version.")
@source_option
@dry_run_option
@yes_option
@full_option
@json_option
@click.pass_obj
def rollback(
    database: DatabaseTarget,
    agent: str,
    version: Version,
    expected: int | None,
    source: str,
    dry_run: bool,
    yes: bool,
    full: bool,
    as_json: bool,
) -> None:
    """Make the state of an agent what it was at a version.

    This appends a new version; nothing that happened is rewritten. On a terminal the changes are shown first. VERSION
    is a number, or counted from the newest: -1 undoes the last change.
    """
    if not dry_run:
        need_yes(f"a rollback changes agent {agent!r}", yes=yes, as_json=as_json)

    async def look(m: Maos) -> tuple[int, _Plan]:
        newest, target = await NEWEST.resolve(m, agent), await version.resolve(m, agent)
        return target, _Plan(newest, await m.agents.diff(agent, newest, target))

    if dry_run or not yes:
        target, plan = database.read(look)
        if as_json:
            documents.show(plan.document(agent, to=target))
            return
        plan.show(agent, f"the state of version {target}", full=full)
        if dry_run:
            return
        ask(f"Roll {agent} back to version {target}?")
        expected = expected or plan.newest  # what was agreed to is what was shown
        version = Version(target, from_newest=False)

    async def work(m: Maos) -> tuple[int, Update]:
        target = await version.resolve(m, agent)
        return target, await m.agents.rollback(agent, target, expected=expected, source=source)

    target, done = database.write(work)
    if as_json:
        documents.show({"dry_run": False, "to": target, **documents.update(agent, done), "warnings": []})
        return
    from maos.cli import render

    text = f" is now at version {done.version}, with the state of version {target}"
    render.line((clean(agent), "bold"), text)
    if yes:
        render.changes(done.changes, full=full)


@click.command(
    cls=LazyCommand,
    examples=[
        "maos state restore reviewer before-upgrade --dry-run",
        "maos state restore reviewer before-upgrade --yes",
    ],
)
@agent_argument
@click.argument("snapshot", metavar="SNAPSHOT")
@source_option
@dry_run_option
@yes_option
@full_option
@json_option
@click.pass_obj
def restore(
    database: DatabaseTarget,
    agent: str,
    snapshot: str,
    source: str,
    dry_run: bool,
    yes: bool,
    full: bool,
    as_json: bool,
) -> None:
    """Make the state of an agent what a snapshot holds.

    SNAPSHOT is its id or name; `maos state snapshot AGENT --list` shows them. It is verified first.

    This appends a new version; nothing that happened is rewritten. On a terminal the changes are shown first.
    """
    if not dry_run:
        need_yes(f"restoring a snapshot changes agent {agent!r}", yes=yes, as_json=as_json)

    async def look(m: Maos) -> tuple[str, _Plan]:
        from maos.model.changes import changes, difference

        current = (await m.agents.get(agent)).raw()
        id_, target, warnings = await m.agents.snapshot_store.sought(agent, snapshot)
        found = list(changes(current, difference(current, target.raw())))
        return id_, _Plan(await NEWEST.resolve(m, agent), found, warnings)

    if dry_run or not yes:
        id_, plan = database.read(look)
        if as_json:
            documents.show(plan.document(agent, snapshot=id_))
            return
        plan.show(agent, f"the state of snapshot {id_}", full=full)
        if dry_run:
            return
        ask(f"Restore {agent} from snapshot {id_}?")

    async def work(m: Maos) -> Restored:
        return await m.agents.restore(agent, snapshot, source=source)

    done = database.write(work)
    if as_json:
        documents.show({"dry_run": False, **documents.restored(agent, done)})
        return
    from maos.cli import render

    for warning in done.warnings:
        render.line((f"warning: {clean(warning)}", "yellow"))
    text = f" is now at version {done.version}, with the state of snapshot {clean(done.snapshot)}"
    render.line((clean(agent), "bold"), text)
