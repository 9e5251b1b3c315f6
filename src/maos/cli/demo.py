"""`maos demo`: see an engine killed while agents work, and a proof that nothing was lost."""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from maos.cli import documents, render
from maos.cli.commands import command, json_option
from maos.cli.failures import FAILED, INTERRUPTED, note
from maos.cli.input import heard
from maos.cli.render import Column, Listing, clean, shorten
from maos.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from maos.cli.runs.live import LiveView
    from maos.demo.folder import DemoFolder, DemoRecord
    from maos.demo.proof import Check, Count, ProofVerdict
    from maos.demo.story import Story

SIGNALLED = 128
"""Added to the number of the signal that ended a command, as shells do."""
BAR_LINES = 64
"""How many lines a full bar stands for; no agent prints more."""
BAR_WIDTH = 20
NAMED_MAX = 5
"""How many of the things that are missing or double are named."""

COUNTS: Listing[Count] = Listing(
    "counts",
    (
        Column("", lambda each: "✓" if each.ok else "✗"),
        Column("", lambda each: each.what, style="bold", yields=1),
        Column("by agents", lambda each: str(each.noted), right=True),
        Column("found", lambda each: str(each.found), right=True),
        Column("lost", lambda each: str(len(each.lost)), right=True),
        Column("doubled", lambda each: str(len(each.doubled)), right=True),
        Column("where", lambda each: each.where, style="dim", yields=2),
    ),
)


@command("maos demo", "maos demo --keep", "maos demo my-folder", "maos demo --json")
@click.argument("folder", metavar="[FOLDER]", required=False, default="")
@click.option("--keep", is_flag=True, help="Keep the folder, and print how to look around in it.")
@json_option
@click.pass_context
def demo(ctx: click.Context, folder: str, keep: bool, as_json: bool) -> None:
    """See a run survive kill -9, with a proof.

    Three scripted agents work on a small git repository, send each other what they find, and one asks a question. While
    they work, the engine is killed. A new one resumes the run, and the work is merged. Then everything in the journal
    and in the repository is compared with what the agents wrote down themselves: exits with 1 if anything is missing or
    double.

    It takes about 20 seconds, and needs git, but no key, no network and no database: all of it happens in a new folder
    (FOLDER, which is kept, or a temporary one) with a database of its own.
    """
    if ctx.parent is not None and ctx.parent.params.get("db"):
        raise InvalidInput("the demo makes a database of its own", hint="leave out --db")
    if shutil.which("git") is None:
        hint = "install git: `apt install git`, `dnf install git`, …"
        raise NotFound("the demo works on a git repository, and there is no git on PATH", hint=hint)
    ctx.exit(asyncio.run(_demo(folder, keep=keep or bool(folder), as_json=as_json)))


async def _demo(given: str, *, keep: bool, as_json: bool) -> int:
    """Play the story and check the proof; return the exit code."""
    from maos.cli.runs.live import LiveView
    from maos.demo import proof
    from maos.demo.folder import DemoFolder
    from maos.demo.story import Story
    from maos.model.run import Run

    folder = DemoFolder(_make(given))
    view = LiveView(Run(id=""), as_json=as_json)  # with --json, only the document at the end is printed
    story = Story(folder, view)
    view.heading = lambda: [("", "engine: "), ("bold", story.engine)] if story.engine else []
    view.detail = lambda agent: _bar(len(folder.noted(agent, "line")), story.recorded[agent])
    began_s = time.monotonic()
    has_failed = True
    try:
        record, code = await _played(story, view, is_silent=as_json)
        if record is None:
            has_failed = False
            return code
        verdict = await proof.prove(folder)
        has_failed = not verdict.ok
        took_s = time.monotonic() - began_s
        if as_json:
            documents.show(_document(record, verdict, folder.folder if keep or has_failed else None, took_s))
        else:
            _show_verdict(verdict, took_s)
            if keep and not has_failed:
                _show_ways_to_look(folder, record)
        return FAILED if has_failed else 0
    finally:
        if has_failed and not keep:
            note(f"everything is still in {folder.folder}")
        elif not keep:
            shutil.rmtree(folder.folder, ignore_errors=True)


async def _played(story: Story, view: LiveView, *, is_silent: bool) -> tuple[DemoRecord | None, int]:
    """Play the story in the live view; None and an exit code when a signal ends it, with everything cleared away."""
    code = 0
    playing = asyncio.create_task(story.play())
    showing = None if is_silent else asyncio.create_task(view.show())

    def leave(by: int) -> None:
        nonlocal code
        if not code:  # a second signal does not interrupt the clearing away
            code = by
            playing.cancel()

    with heard(interrupted=lambda: leave(INTERRUPTED), sent_away=lambda number: leave(SIGNALLED + int(number))):
        try:
            return await playing, 0
        except asyncio.CancelledError:
            if code:
                return None, code
            raise
        finally:
            if showing is not None:
                showing.cancel()
                await asyncio.gather(showing, return_exceptions=True)
                await view.close()


def _make(given: str) -> Path:
    """The folder to work in: one that was given must be empty, or new."""
    if not given:
        return Path(tempfile.mkdtemp(prefix="maos-demo-"))
    folder = Path(given).absolute()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InvalidInput(f"{given} is there, and not an empty folder", hint="name a new folder")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _bar(printed: int, recorded: int) -> Sequence[tuple[str, str]]:
    """The lines of an agent: those in the journal, and those that are only printed."""
    done = round(BAR_WIDTH * min(1.0, recorded / BAR_LINES))
    missing = max(0, printed - recorded)
    open_ = min(BAR_WIDTH - done, max(round(BAR_WIDTH * missing / BAR_LINES), 1 if missing else 0))
    counts = f"{recorded:>3} recorded" + (f", {missing} not yet" if missing else "")
    rest = " " * (BAR_WIDTH - done - open_)
    return [("fg:ansigreen", "█" * done), ("fg:ansiyellow", "░" * open_), ("", f"{rest} {counts:<25}  ")]


# --- the proof ---------------------------------------------------------------------------------------------------


def _show_verdict(verdict: ProofVerdict, took_s: float) -> None:
    """Print what was compared, and the result."""
    render.line()
    render.line(("The proof: the notes that the agents wrote, against what maos and git have", "bold"))
    if verdict.counts:
        render.line()
        COUNTS.table(verdict.counts)
        render.line()
    for check in verdict.checks:
        shown = shorten(clean(check.shown), render.room_for_value(37))
        render.line((_mark(check), "bold green" if check.ok else "bold red"), f" {check.what:<33}  ", (shown, "dim"))
    render.line()
    if verdict.ok:
        kinds = ("lines", "messages read", "files")
        totals = [sum(each.noted for each in verdict.counts if each.what.startswith(kind)) for kind in kinds]
        counted = "{} lines, {} messages, {} files".format(*totals)
        render.line((f"{counted}: nothing was lost, nothing was doubled.", "bold green"))
        render.line((f"It took {took_s:.0f} s.", "dim"))
    else:
        render.line(("The proof failed.", "bold red"))
        _show_differences(verdict)


def _mark(what: Count | Check) -> str:
    return "✓" if what.ok else "✗"


def _show_differences(verdict: ProofVerdict) -> None:
    for count in verdict.counts:
        for word, things in (("lost", count.lost), ("doubled", count.doubled)):
            for thing in things[:NAMED_MAX]:
                render.line("  ", (f"{word}: ", "red"), clean(f"{count.what}: {thing}"))
            if len(things) > NAMED_MAX:
                render.line((f"  … and {len(things) - NAMED_MAX} more", "dim"))
        if not count.noted:
            render.line("  ", clean(f"{count.what}: there are none, so nothing is proved"))
    for check in verdict.checks:
        if not check.ok:
            render.line("  ", ("not so: ", "red"), clean(f"{check.what}: {check.shown}"))


def _show_ways_to_look(folder: DemoFolder, record: DemoRecord) -> None:
    """Print commands to look around with."""
    maos = "maos" if shutil.which("maos") else str(Path(sys.executable).with_name("maos"))
    render.line()
    render.line("Look around in what is left of it:")
    for text in (
        f"cd {folder.folder} && export MAOS_HOME=$PWD/home",
        f"{maos} status {record.run}",
        f"{maos} status",
        f"{maos} messages list --run {record.run}",
        f"{maos} agent logs {record.run}.developer",
        f"{maos} state verify",
        "sqlite3 maos.db 'SELECT * FROM messages'",
        "git -C till log --stat",
    ):
        render.line("    ", (text, "cyan"))
    render.line(("notes/ has what the agents wrote down, plan.toml the plan to do it by hand.", "dim"))


def _document(record: DemoRecord, verdict: ProofVerdict, folder: Path | None, took_s: float) -> documents.Document:
    return {
        "ok": verdict.ok,
        "seconds": round(took_s, 1),
        "run": record.run,
        "engines": [{"pid": each.pid, "status": each.status} for each in record.engines],
        "counts": [{**each._asdict(), "ok": each.ok} for each in verdict.counts],
        "checks": [each._asdict() for each in verdict.checks],
        "folder": None if folder is None else str(folder),
    }
