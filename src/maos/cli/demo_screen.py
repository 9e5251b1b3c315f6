"""How the demonstration is shown: a story that scrolls above a live view on a terminal, plain lines anywhere else."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from maos.cli import render
from maos.cli.plain import clean, shorten
from maos.cli.render import coloured

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live

    from maos.demo.folder import DemoFolder, DemoRecord
    from maos.demo.proof import Check, Count, ProofVerdict
    from maos.demo.watch import Row, Watching
    from maos.model.message import Message

BAR_LINES = 64
"""How many lines a full bar stands for; no agent prints more."""
BAR_WIDTH = 24
NAMED_MAX = 5
"""How many of the things that are missing or double are named."""
ENGINE_STYLES = {"killed": "bold red", "ended": "green"}


class DemoScreen:
    """Tells the story, and shows the proof."""

    def __init__(self, *, as_json: bool) -> None:
        self._silent = as_json
        self._live: Live | None = None
        self._chapters = 0

    def __enter__(self) -> DemoScreen:
        if not self._silent and coloured(sys.stdout):
            from rich.live import Live

            self._live = Live(console=render.console(), auto_refresh=False, transient=True)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    # --- the story -------------------------------------------------------------------------------------------

    def begin(self, folder: Path) -> None:
        """What this is."""
        self._line(("maos demo", "bold"), " · three agents, one kill -9, nothing lost")
        self._line(("No key, no network: the agents are scripts, and everything else is real.", "dim"))
        self._line((f"All of it is in {clean(str(folder))}", "dim"))

    def chapter(self, title: str, text: str) -> None:
        """A new part of it, and what happens there."""
        self._chapters += 1
        self._line()
        self._line((f" {self._chapters} ", "bold reverse"), (f" {title}", "bold"))
        self._line(f"    {text}")

    def typed(self, words: str) -> None:
        """A command that is run."""
        self._line("    ", ("$ ", "dim"), (clean(words), "cyan"))

    def tell(self, text: str) -> None:
        """Something that happened."""
        self._line(f"    {clean(text)}")

    def shown(self, line: str) -> None:
        """A line that a command printed."""
        self._line((f"      {shorten(clean(line), render.room_for_value(6))}", "dim"))

    def said(self, message: Message) -> None:
        """A message between agents."""
        sender = message.sender.rpartition(".")[2]
        to = "all" if message.topic else ", ".join(name.rpartition(".")[2] for name in message.to)
        heading = f"{sender} → {to}"
        text = shorten(clean(message.text), render.room_for_value(33))
        self._line("      ", ("✉ ", "yellow"), (f"{heading:<22}  ", "dim"), text)

    def show(self, engine: str, watching: Watching) -> None:
        """How things stand."""
        if self._live is not None:
            self._live.update(_frame(engine, watching.rows), refresh=True)

    def _line(self, *parts: str | render.Part) -> None:
        if not self._silent:
            render.line(*parts)
            sys.stdout.flush()

    # --- the proof -------------------------------------------------------------------------------------------

    def conclude(self, verdict: ProofVerdict, took_s: float) -> None:
        """What was compared, and what came of it."""
        self.chapter("The proof", "What the agents wrote down themselves, against what maos and git have.")
        self._line()
        if verdict.counts:
            columns = (
                render.Column(""), render.Column("", style="bold", yields=1), render.Column("by agents", right=True),
                render.Column("found", right=True), render.Column("lost", right=True),
                render.Column("doubled", right=True), render.Column("where", style="dim", yields=2),
            )  # fmt: skip
            render.table(columns, [_row(each) for each in verdict.counts])
            self._line()
        for check in verdict.checks:
            self._line((_mark(check), "bold green" if check.ok else "bold red"), f" {check.what:<33}  ",
                       (shorten(clean(check.shown), render.room_for_value(37)), "dim"))  # fmt: skip
        self._line()
        if verdict.ok:
            self._line((f"{_counted(verdict)}: nothing was lost, nothing was doubled.", "bold green"))
            self._line((f"It took {took_s:.0f} s.", "dim"))
        else:
            self._line(("The proof failed.", "bold red"))
            _name_what_is_wrong(verdict)

    def ways_to_look(self, place: DemoFolder, record: DemoRecord) -> None:
        """Commands to look around with."""
        maos = "maos" if shutil.which("maos") else str(Path(sys.executable).with_name("maos"))
        self._line()
        self._line("Look around in what is left of it:")
        for text in (
            f"cd {place.folder} && export MAOS_HOME=$PWD/home",
            f"{maos} orchestration status {record.run}",
            f"{maos} status",
            f"{maos} messages list --run {record.run}",
            f"{maos} agent logs {record.run}.developer",
            f"{maos} state verify",
            "sqlite3 maos.db 'SELECT * FROM messages'",
            "git -C till log --stat",
        ):
            self._line("    ", (text, "cyan"))
        self._line(("notes/ has what the agents wrote down, plan.toml the plan to do it by hand.", "dim"))


def _counted(verdict: ProofVerdict) -> str:
    """How much of what was compared."""
    kinds = ("lines", "messages read", "files")
    totals = [sum(each.noted for each in verdict.counts if each.what.startswith(kind)) for kind in kinds]
    return "{} lines, {} messages, {} files".format(*totals)


def _mark(what: Count | Check) -> str:
    return "✓" if what.ok else "✗"


def _row(count: Count) -> tuple[str, ...]:
    return (
        _mark(count), count.what, str(count.noted), str(count.found), str(len(count.lost)), str(len(count.doubled)),
        count.where,
    )  # fmt: skip


def _name_what_is_wrong(verdict: ProofVerdict) -> None:
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


# --- the live view -----------------------------------------------------------------------------------------------


def _frame(engine: str, rows: list[Row]) -> RenderableType:
    """The engine, and a row for each agent with its lines: those that are in the journal, and those still to come."""
    from rich import box
    from rich.panel import Panel
    from rich.table import Table
    from rich.text import Text

    width = min(render.console().width, 110)
    grid = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), expand=True, header_style="dim")
    grid.add_column("agent", style="bold", no_wrap=True)
    grid.add_column("lines: █ in journal ░ not yet", no_wrap=True, width=BAR_WIDTH + 8)
    grid.add_column("✉", no_wrap=True, justify="right")
    grid.add_column("now", no_wrap=True, overflow="ellipsis", ratio=1, style="dim")
    for row in rows:
        doing = Text("finished", "green") if row.ended else Text(clean(row.doing))
        grid.add_row(Text(row.name), _bar(row), Text(str(row.sent + row.got)), doing)
    style = next((style for word, style in ENGINE_STYLES.items() if engine.startswith(word)), "bold green")
    title = Text.assemble(" engine: ", (engine, style), " ")
    return Panel(grid, title=title, title_align="left", box=box.ROUNDED, border_style="dim", width=width)


def _bar(row: Row) -> RenderableType:
    from rich.text import Text

    done = round(BAR_WIDTH * min(1.0, row.recorded / BAR_LINES))
    missing = max(0, row.printed - row.recorded)
    open_ = min(BAR_WIDTH - done, max(round(BAR_WIDTH * missing / BAR_LINES), 1 if missing else 0))
    figures = f" {row.recorded}" + (f" +{missing}" if missing else "")
    return Text.assemble(("█" * done, "green"), ("░" * open_, "yellow"), (figures, "yellow" if missing else ""))
