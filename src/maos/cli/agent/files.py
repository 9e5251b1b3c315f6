"""`maos agent diff` and `merge`: what an agent did to the files, and how to have it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from maos.cli import documents as shared
from maos.cli.agent import names, summary, words
from maos.cli.commands import LazyCommand, agent_argument, json_option
from maos.cli.database import DatabaseTarget
from maos.cli.failures import CONFLICT, report
from maos.cli.plain import clean
from maos.errors import InvalidInput

if TYPE_CHECKING:
    from maos.app import Maos
    from maos.model.attempt import Attempt
    from maos.workspaces import Blocked, Conflicted, FileChange, Merged, Workspace

KINDS = {"added": ("+", "green"), "deleted": ("-", "red")}


@click.command(
    cls=LazyCommand,
    examples=["maos agent diff fixer", "maos agent diff fixer --patch | less", "maos agent diff fixer --json"],
)
@agent_argument
@click.option("--patch", is_flag=True, help="Show the changes themselves, as a patch that git can apply.")
@json_option
@click.pass_obj
def diff(database: DatabaseTarget, agent: str, patch: bool, as_json: bool) -> None:
    """Show which files an agent has changed, up to its last checkpoint."""

    async def work(m: Maos) -> tuple[str, list[FileChange], str]:
        from maos import workspaces as workspaces

        attempt = await m.attempts.get(await names.find(m, agent))
        place, commit = _saved(attempt)
        changed = await workspaces.diff(place, place.base or commit, commit)
        text = await workspaces.patch(place, place.base or commit, commit) if patch else ""
        return attempt.agent, changed, text

    name, changed, text = database.read(work)
    if as_json:
        document = {"agent": name, "files": [each._asdict() for each in changed]}
        shared.show({**document, "patch": text} if patch else document)
        return
    from maos.cli import render

    if patch:
        sys.stdout.write(clean(text, lines=True) if sys.stdout.isatty() else text)
        return
    if not changed:
        render.line((clean(name), "bold"), " has changed no files")
    for each in changed:
        sign, style = KINDS.get(each.kind, ("~", "yellow"))
        counts = "binary" if each.added is None else f"+{each.added} -{each.removed}"
        render.line((f"{sign} ", style), clean(each.path), (f"  {counts}", "dim"))


@click.command(
    cls=LazyCommand, examples=["maos agent merge fixer", "maos agent merge fixer --message 'Fix the parser' --json"]
)
@agent_argument
@click.option("--into", type=click.Path(exists=True, file_okay=False), default=".", help="The folder to merge into.")
@click.option("--message", default="", help="The message of the commit.  [default: the agent's task]")
@json_option
@click.pass_context
def merge(ctx: click.Context, agent: str, into: str, message: str, as_json: bool) -> None:
    """Merge what an agent did into the branch checked out here.

    As one commit, all of it or nothing: files that both sides changed are named, and so are changes of yours that are
    in the way.
    """

    async def work(m: Maos) -> tuple[str, Merged | Conflicted | Blocked]:
        from pathlib import Path

        from maos import workspaces as workspaces

        attempt = await m.attempts.get(await names.find(m, agent))
        if attempt.is_open:
            raise InvalidInput(
                f"agent {attempt.agent!r} has not ended", hint=f"wait, or `maos agent stop {attempt.agent}`"
            )
        place, commit = _saved(attempt)
        told = message or words.one_line(attempt.task, 70) or f"Work of {attempt.agent}"
        return attempt.agent, await workspaces.merge(place, commit, into=Path(into), message=told)

    name, done = ctx.obj.write(work)
    kind = type(done).__name__.lower()
    if as_json:
        shared.show({"agent": name, "outcome": kind, **done._asdict()})
    else:
        _show_merge(name, done)
    if kind != "merged":
        ctx.exit(CONFLICT)


def _show_merge(name: str, done: Merged | Conflicted | Blocked) -> None:
    from maos.cli import render
    from maos.workspaces import Blocked, Merged

    if isinstance(done, Merged):
        if not done.files:
            render.line("nothing to merge: everything is there already")
            return
        files = render.many(len(done.files), "file")
        render.line((clean(name), "bold"), f": {files} merged as commit {done.commit[:12]}")
        return
    if isinstance(done, Blocked):
        report(f"{done.why}: {', '.join(done.files)}" if done.files else done.why, done.hint)
        return
    report(
        f"both sides changed {', '.join(done.files)}; nothing was merged",
        f"commit yours, then `maos agent resume {name}` and tell it what changed, or take its patch: "
        f"`maos agent diff {name} --patch`",
    )


def _saved(attempt: Attempt) -> tuple[Workspace, str]:
    from maos.workspaces import Workspace

    workspace = Workspace.from_data(attempt.workspace) if attempt.workspace else None
    if workspace is None or workspace.in_place:
        raise InvalidInput(
            f"agent {attempt.agent!r} works in the folder itself", hint="what it does is there; `git diff` shows it"
        )
    commit = summary.saved(attempt)
    if commit is None:
        raise InvalidInput(f"agent {attempt.agent!r} has no checkpoint yet", hint="wait until it has ended")
    return workspace, commit
