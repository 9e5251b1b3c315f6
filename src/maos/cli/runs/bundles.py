"""Bundles: imported and printed, and what their runs start, which a person agrees to first."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from maos.cli import documents as shared
from maos.cli import render
from maos.cli.agent import words
from maos.cli.database import DatabaseTarget
from maos.cli.render import clean
from maos.errors import InvalidInput

if TYPE_CHECKING:
    from maos.app import Maos
    from maos.model.run import Run
    from maos.runs.consent import Act
    from maos.transfer.bundle_import import Imported

WORDS = {"new": "imported", "more": "brought up to date", "same": "already here", "moved_on": "resumed here since"}
WORDS_WIDTH = 100
COMMAND_WIDTH = 2_000

trust_option = click.option(
    "--trust", is_flag=True, help="Agree to what an imported run will start here, without being asked."
)


def bring(database: DatabaseTarget, source: str, cwd: str, *, dry_run: bool, as_json: bool) -> None:
    """Import a bundle, or show what is in it."""
    from pathlib import Path

    if source == "-" and sys.stdin.isatty():
        raise InvalidInput(
            "standard input is a terminal, not a bundle", hint="`maos admin import FILE`, or `… | maos admin import -`"
        )
    path = Path("/dev/stdin") if source == "-" else Path(source).expanduser()
    folder = Path(cwd).absolute()

    async def work(m: Maos) -> tuple[Imported, Sequence[Act]]:
        brought = await m.transfer.import_(path, folder=folder, dry_run=dry_run)
        return brought, _acts(brought)

    if dry_run:
        brought, acts = database.preview(work)
    else:
        brought, acts = database.write(work, create=True)
    if as_json:
        manifest = {
            **shared.of(brought.manifest),
            "streams": {each.name: each.events for each in brought.manifest.streams},
        }
        here = {"what": brought.what, "sha256": brought.sha256, "events": brought.events, "refs_new": brought.refs}
        shared.show({"file": source, "dry_run": dry_run, **manifest, **here, "starts": shared.of(acts)})
    else:
        _show(brought, acts, dry_run=dry_run)


def _acts(brought: Imported) -> list[Act]:
    from maos.model.run import Run
    from maos.runs import consent as acts

    return acts.of_run(brought.root, brought.attempts, brought.commands) if isinstance(brought.root, Run) else []


# --- agreeing ----------------------------------------------------------------------------------------------------


def show_acts(run: Run, acts: Sequence[Act]) -> None:
    """Print what resuming a run starts, by which kind of agent, and what each may do unasked."""
    if not acts:
        return
    render.line(f"resuming {clean(run.id)} starts:")
    width = max(len(each.task) for each in acts)
    for each in acts:
        import shlex

        said = shlex.join(each.command) if each.command else words.one_line(each.words, WORDS_WIDTH)
        may = [f"permission {each.permission}"] if each.permission and not each.command else []
        may += [f"tools {', '.join(each.tools)}"] if each.tools else []
        who = f"{each.kind}{' ' + each.what if each.what != 'task' else ''}{', ' + '; '.join(may) if may else ''}"
        render.line("  ", (clean(each.task).ljust(width), "bold"), f"  {clean(said)[:COMMAND_WIDTH]}  ",
                    (f"({clean(who)})", "dim"))  # fmt: skip


# --- showing -----------------------------------------------------------------------------------------------------


def _show(brought: Imported, acts: Sequence[Act], *, dry_run: bool) -> None:
    from maos.model.run import Run

    manifest, root = brought.manifest, brought.root
    tasks = f", {root.done} of {len(root.tasks)} tasks done" if isinstance(root, Run) else ""
    now = f"would be {WORDS[brought.what]}" if dry_run and brought.what in ("new", "more") else WORDS[brought.what]
    title = words.one_line(manifest.title, 60)
    render.line(
        (clean(manifest.id), "bold"), f"  {manifest.kind}, {clean(manifest.status)}{tasks}: {title}  ", (now, "dim")
    )
    render.line(f"  written by {clean(manifest.made_by)}, {render.when(manifest.made_us)}; sha256 {brought.sha256}")
    total = sum(each.events for each in manifest.streams)
    new = f", {brought.events} of them new here" if brought.what == "more" else ""
    commits = f"; {render.many(len(manifest.refs), 'commit')}" if manifest.refs else "; no commits"
    events, streams = render.many(total, "event"), render.many(len(manifest.streams), "stream")
    render.line(f"  {events} in {streams}{new}{commits}")
    if dry_run:
        for each in manifest.streams:
            render.line((f"    {clean(each.name)} ({each.events})", "dim"))
    for text in manifest.left_out:
        render.line((f"  left out: {clean(text)}", "dim"))
    if manifest.carried_out:
        render.line(("  an engine executed it then, and may have continued: resume only one of the copies", "yellow"))
    if isinstance(root, Run) and brought.what in ("new", "more"):
        show_acts(root, acts)
    if dry_run or brought.what == "same":
        return
    command = "maos resume" if manifest.kind == "run" else "maos workflow resume"
    more = "" if manifest.kind == "run" else " --from FILE.py"
    if brought.what != "moved_on" and root.status not in ("completed", "cancelled"):
        render.line(f"`{command} {manifest.id}{more}` resumes it, after asking you to agree to what it starts")
