"""`maos demo`: see an engine killed in the middle, and a proof that nothing was lost."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

import click

from maos.cli import documents as shared
from maos.cli.commands import LazyCommand, json_option
from maos.cli.failures import FAILED, INTERRUPTED, note
from maos.errors import InvalidInput

if TYPE_CHECKING:
    from pathlib import Path

    from maos.demo.folder import DemoRecord
    from maos.demo.proof import ProofVerdict

SIGNALLED = 128
"""Added to the number of the signal that made us leave, as shells do."""


@click.command(cls=LazyCommand, examples=["maos demo", "maos demo --keep", "maos demo my-folder", "maos demo --json"])
@click.argument("folder", metavar="[FOLDER]", required=False, default="")
@click.option("--keep", is_flag=True, help="Leave the folder there, and say how to look around in it.")
@json_option
@click.pass_context
def demo(ctx: click.Context, folder: str, keep: bool, as_json: bool) -> None:
    """See a run survive kill -9, with a proof.

    Three scripted agents work on a small git repository, tell each other what they find, and one asks a question. In
    the middle, the engine is killed. A new one goes on, and the work is merged. Then everything in the journal and in
    the repository is compared with what the agents wrote down themselves: exits with 1 if anything is missing or
    double.

    It takes about 20 seconds, and needs git, but no key, no network and no database: all of it happens in a new folder
    (FOLDER, which is kept, or a temporary one) with a database of its own.
    """
    if ctx.parent is not None and ctx.parent.params.get("db"):
        raise InvalidInput("the demo makes a database of its own", hint="leave out --db")
    import asyncio

    ctx.exit(asyncio.run(_demo(folder, keep=keep or bool(folder), as_json=as_json)))


async def _demo(folder: str, *, keep: bool, as_json: bool) -> int:
    """The exit code."""
    import shutil
    import time

    from maos.cli.demo_screen import DemoScreen
    from maos.demo import proof, story
    from maos.demo.folder import DemoFolder

    await story.check_git()
    place = DemoFolder(_make(folder))
    screen = DemoScreen(as_json=as_json)
    began_s = time.monotonic()
    failed = True
    try:
        with screen:
            screen.begin(place.folder)
            record, left = await _unless_sent_away(story.Story(place, screen).play())
        if record is None:
            failed = False
            return left
        verdict = await proof.prove(place)
        failed = not verdict.ok
        took_s = time.monotonic() - began_s
        if as_json:
            shared.show(_document(record, verdict, place.folder if keep or failed else None, took_s))
        else:
            screen.conclude(verdict, took_s)
        if keep and not (failed or as_json):
            screen.ways_to_look(place, record)
        return FAILED if failed else 0
    finally:
        if failed and not keep:
            note(f"everything is still in {place.folder}")
        elif not keep:
            shutil.rmtree(place.folder, ignore_errors=True)


async def _unless_sent_away(playing: Coroutine[Any, Any, DemoRecord]) -> tuple[DemoRecord | None, int]:
    """What it comes to; None and an exit code when we are sent away before, once everything is tidied up."""
    import asyncio

    from maos.cli import signals

    left = 0
    task = asyncio.create_task(playing)

    def leave(code: int) -> None:
        nonlocal left
        if not left:  # whoever is impatient does not get rid of the tidying up
            left = code
            task.cancel()

    with signals.heard(interrupted=lambda: leave(INTERRUPTED), sent_away=lambda number: leave(SIGNALLED + int(number))):
        try:
            return await task, 0
        except asyncio.CancelledError:
            if left:
                return None, left
            raise


def _make(given: str) -> Path:
    """The folder to work in: one that was given must be empty, or new."""
    import tempfile
    from pathlib import Path

    if not given:
        return Path(tempfile.mkdtemp(prefix="maos-demo-"))
    folder = Path(given).absolute()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InvalidInput(f"{given} is there, and not an empty folder", hint="name a new folder")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _document(record: DemoRecord, verdict: ProofVerdict, folder: Path | None, took_s: float) -> shared.Document:
    return {
        "ok": verdict.ok,
        "seconds": round(took_s, 1),
        "run": record.run,
        "engines": [{"pid": each.pid, "status": each.status} for each in record.engines],
        "counts": [{**each._asdict(), "ok": each.ok} for each in verdict.counts],
        "checks": [each._asdict() for each in verdict.checks],
        "folder": None if folder is None else str(folder),
    }
