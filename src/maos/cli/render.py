"""What people see. Rich draws on a terminal; anywhere else it is plain text in columns, without colour or lines.

All text that comes from the data passes through `clean` first, and none of it is read as Rich markup: its author does
not get to steer the reader's terminal.

A `Listing` describes one noun: a list of it is rendered from that as a table for people, and as JSON for programs.

    AGENTS: Listing[AgentStatus] = Listing(
        "agents",
        (Column("agent", lambda each: each.agent, style="bold", yields=1), Column("status", lambda each: each.status)),
        empty="no agents; `maos agent run -- COMMAND` runs one",
    )
    AGENTS.show(found, as_json=as_json)
"""

from __future__ import annotations

import json
import os
import re
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import groupby
from typing import TYPE_CHECKING, Any, Generic, TextIO, TypeVar

from maos.cli import documents
from maos.clock import SystemClock, to_datetime
from maos.patterns import regex
from maos.text import clean as clean
from maos.text import shorten as shorten
from maos.tuples import NamedTuple

if TYPE_CHECKING:
    from rich.console import Console

    from maos.model.changes import Change
    from maos.state.records import State, StateEvent
    from maos.web.documents import StateInfo

CHANGES_SHOWN_MAX = 40
PATH_WIDTH_MAX = 40
TRACEBACK_LINES_MAX = 30
RUN_SHOWN_MAX = 5  # lines for entries of one list that came or went together
YIELDING_MIN = 8  # characters that a column keeps as long as another one can be cut
VALUE_WIDTH = 70  # of a value when the output has no width
INDENT = 2  # of what follows the first line of a text, below that
CONTEXT_CHARS = 12  # shown before the first difference of two long values

_WORDS = regex(r"(?:(?<=: )maos (?:(?!; ).)*;?|(?:`[^`]*`|[^\s`]|`)+)\s*")
"""Words of a line: a command, after a colon or in backticks, is one."""
_STYLES = {"found": "bold yellow", "warning": "yellow", "bad": "red", "good": "green"}
"""Styles by what they mean; others are Rich's own."""

T = TypeVar("T")
Part = tuple[str, str]
"""Text and the Rich style it has on a terminal."""


# --- text --------------------------------------------------------------------------------------------------------


def wrap(text: str, stream: TextIO, *, indent: str = "", used: int = 0) -> str:
    """The text in lines that end between words, for a stream that is a terminal; a command in backticks stays whole.

    `used` is how much of the first line is taken already.
    """
    if not stream.isatty():
        return text
    try:
        width = os.get_terminal_size(stream.fileno()).columns
    except OSError:
        return text
    return fold(text, width, indent=indent, used=used)


def fold(text: str, width: int, *, indent: str = "", used: int = 0) -> str:
    """The text in lines of a width that end between words, with an indent before all but the first."""
    if not width or used + len(text) < width:
        return text
    whole = re.sub("`[^`]*`", lambda found: found[0].replace(" ", "\0"), text)
    taken = "\1" * min(used, width - 1)
    lines = textwrap.wrap(
        taken + whole, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
    return "\n".join(lines).replace(taken, "", 1).replace("\0", " ") if lines else text


# --- lines -------------------------------------------------------------------------------------------------------


def terminal() -> bool:
    """Whether a person is looking."""
    return sys.stdout.isatty()


def drawable(stream: TextIO) -> bool:
    """Whether a stream is a terminal on which a frame can be drawn."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def coloured(stream: TextIO) -> bool:
    """Whether a stream is a terminal that shows colours."""
    return drawable(stream) and not os.environ.get("NO_COLOR")


def styled(text: str, style: str, stream: TextIO) -> str:
    """A text for a stream, in a style if the stream shows colours."""
    if not (style and text and coloured(stream)):
        return text
    begin, end = _codes(style)
    return f"{begin}{text}{end}"


@cache
def _codes(style: str) -> tuple[str, str]:
    """What a terminal is sent before a text in a style, and after it."""
    from rich.style import Style

    begin, _, end = Style.parse(_STYLES.get(style, style)).render("\0").partition("\0")
    return begin, end


@cache
def console() -> Console:
    """Rich, without markup in texts."""
    from rich.console import Console

    return Console(markup=False, highlight=False, emoji=False)


def line(*parts: str | Part) -> None:
    """One line; on a terminal that is too narrow for it, several that end between words. A command is not broken: the
    terminal wraps it, and it can be copied."""
    pairs = [(part, "") if isinstance(part, str) else part for part in parts]
    if not terminal():
        sys.stdout.write("".join(text for text, _style in pairs) + "\n")
        return
    from rich.text import Text

    width = console().width
    for each in Text.assemble(*pairs).split("\n", allow_blank=True):
        breaks = _breaks(each.plain, width)
        for number, part in enumerate(each.divide(breaks)):
            if number < len(breaks):
                part.rstrip()
            indent = " " * _indent(each.plain, width) if number else ""
            console().print(Text.assemble(indent, part), soft_wrap=True)


def _breaks(text: str, width: int) -> list[int]:
    """Where a line is broken so that each part fits a width, with an indent before all but the first."""
    from rich.cells import cell_len

    if cell_len(text) <= width:
        return []
    found: list[int] = []
    room = width
    for word in _WORDS.finditer(text):
        begin = found[-1] if found else 0
        if text[begin : word.start()].strip() and cell_len(text[begin : word.end()].rstrip()) > room:
            found.append(word.start())
            room = width - _indent(text, width)
    return found


def _indent(text: str, width: int) -> int:
    """How far the parts of a broken line are indented that follow its first."""
    return min(len(text) - len(text.lstrip()) + INDENT, width // 4)


def show(document: documents.Document, *parts: str | Part, as_json: bool) -> None:
    """Print a result: one document for programs, or one line for people."""
    if as_json:
        documents.show(document)
    else:
        line(*parts)


def traceback(text: str) -> None:
    """A traceback: its last lines, which say the most."""
    lines = clean(text, lines=True).splitlines()
    if len(lines) > TRACEBACK_LINES_MAX:
        line((f"  … {len(lines) - TRACEBACK_LINES_MAX} earlier lines; --json prints all", "dim"))
    for each in lines[-TRACEBACK_LINES_MAX:]:
        line((f"  {each}", "dim"))


# --- lists -------------------------------------------------------------------------------------------------------


class Column(NamedTuple, Generic[T]):
    """A column of a table."""

    title: str
    text: Callable[[T], str]
    """What people see of a row; it is cleaned when it is printed."""
    right: bool = False
    style: str = ""
    yields: int = 0
    """Whether it may be cut, or left out, when the terminal is narrow; the highest number first. What a row is called
    does not yield: a name is what people type."""
    least: int = 0
    """To how many characters it is cut at most; others are left out before it is cut to fewer."""

    @property
    def cut_to(self) -> int:
        """To how many characters it is cut before others are left out."""
        return self.least or YIELDING_MIN


class Listing(NamedTuple, Generic[T]):
    """How a list of one noun is rendered. Columns are for people; programs get the rows, as `of` makes them."""

    noun: str
    columns: Sequence[Column[T]]
    empty: str = ""
    of: Callable[[T], documents.Document] = documents.of

    def show(self, rows: Sequence[T], *, as_json: bool, empty: str = "", **more: Any) -> None:
        """Print rows, or `empty` for none; with `as_json`, as one document under the noun, with `more` beside them."""
        if as_json:
            documents.show({**self.document(rows), **more})
        elif rows:
            self.table(rows)
        elif empty or self.empty:
            line(empty or self.empty)

    def document(self, rows: Sequence[T]) -> documents.Document:
        """The rows as JSON, under the noun."""
        return {self.noun: [self.of(row) for row in rows]}

    def table(self, rows: Sequence[T], *, shown_max: int | None = None) -> None:
        """Print rows under the titles of their columns, at most so many."""
        cells = [[clean(cell) for cell in self.cells(row)] for row in rows[:shown_max]]
        shown = [index for index in range(len(self.columns)) if not terminal() or any(row[index] for row in cells)]
        titled = [[each.title for each in self.columns], *cells]
        _print_table([self.columns[index] for index in shown], [[row[index] for index in shown] for row in titled])
        if shown_max is not None and len(rows) > shown_max:
            line((f"… and {len(rows) - shown_max} more (--json prints all)", "dim"))

    def cells(self, row: T) -> list[str]:
        """What people see of a row."""
        return [each.text(row) for each in self.columns]


def _print_table(columns: Sequence[Column[Any]], rows: list[list[str]]) -> None:
    """Print rows, of which the first has the titles; on a terminal, cut to its width and with a rule below that."""
    from rich.cells import cell_len, set_cell_size  # wide characters take two places

    widths = [max(cell_len(row[index]) for row in rows) for index in range(len(columns))]
    if terminal():
        chosen = choose_columns(columns, widths, console().width)
        columns, widths = [columns[index] for index in chosen], [widths[index] for index in chosen]
        rows = [[row[index] for index in chosen] for row in rows]
        _fit(columns, widths, console().width - 2 * len(columns))
    for number, row in enumerate(rows):
        parts: list[Part] = []
        for column, cell, width in zip(columns, row, widths, strict=True):
            shown = cell if cell_len(cell) <= width else set_cell_size(cell, width - 1) + "…"
            space = " " * (width - cell_len(shown))
            parts.append((space + shown if column.right else shown + space, column.style if number else "bold"))
            parts.append(("  ", ""))
        if not terminal():
            sys.stdout.write("".join(text for text, _style in parts).rstrip() + "\n")
            continue
        line(*parts[:-1])
        if not number:
            line("─" * (sum(widths) + 2 * (len(widths) - 1)))


def choose_columns(columns: Sequence[Column[Any]], widths: list[int], room: int) -> list[int]:
    """The columns that have room with at least some characters each; of those that yield, the first to yield go."""
    least = [min(width, each.cut_to) if each.yields else width for each, width in zip(columns, widths, strict=True)]
    shown = list(range(len(columns)))
    while sum(least[index] + 2 for index in shown) > room:
        yielding = [(columns[index].yields, index) for index in shown if columns[index].yields]
        if not yielding:
            break
        shown.remove(max(yielding)[1])
    return shown


def _fit(columns: Sequence[Column[Any]], widths: list[int], room: int) -> None:
    """Cut the widths of columns until everything has room: first of those that yield, then of the widest."""
    while sum(widths) > room and max(widths) > 1:
        ranks = [
            (column.yields if width > column.cut_to else 0, width, index)
            for index, (column, width) in enumerate(zip(columns, widths, strict=True))
        ]
        widths[max(ranks)[2]] -= 1


# --- values ------------------------------------------------------------------------------------------------------


def time_of_day(time_us: int) -> str:
    """The local time of day, of something that has just happened."""
    return to_datetime(time_us).astimezone().strftime("%H:%M:%S")


def when(time_us: int) -> str:
    """A time as people say it: local, and without the date when it is near."""
    instant = to_datetime(time_us).astimezone()
    clock = instant.strftime("%H:%M:%S")
    if terminal():
        days = (to_datetime(SystemClock().now_us()).astimezone().date() - instant.date()).days
        if days in (0, 1):
            return f"{'today' if days == 0 else 'yesterday'} {clock}"
    return f"{instant:%Y-%m-%d} {clock}"


def size(count: int) -> str:
    """A number of bytes as people say it."""
    if count < 1000:
        return f"{count} B"
    amount = float(count)
    for unit in ("kB", "MB"):
        amount /= 1000
        if amount < 999.95:
            return f"{amount:.1f} {unit}"
    return f"{amount / 1000:.1f} GB"


def many(count: int, one: str, several: str | None = None) -> str:
    """A number of things: 1 event, 2 events."""
    return f"{count} {one if count == 1 else several or one + 's'}"


def compact(value: Any) -> str:
    """A value on one line."""
    return clean(json.dumps(value, ensure_ascii=False))


def pretty(value: Any) -> None:
    """A value over as many lines as it takes."""
    text = clean(json.dumps(value, indent=2, ensure_ascii=False), lines=True)
    if not terminal():
        sys.stdout.write(text + "\n")
        return
    from rich.highlighter import JSONHighlighter
    from rich.text import Text

    drawn = Text(text)
    JSONHighlighter().highlight(drawn)
    console().print(drawn, soft_wrap=True)


def state(state: State | StateInfo, data: Mapping[str, Any]) -> None:
    """A state: its agent, version and time, who changed it last, then its data."""
    by = f" by {clean(state.source)}" if state.source else ""
    line(
        (clean(state.agent), "bold"), f" at version {state.version}, ",
        (f"{state.type} {when(state.time_us)}{by}", "dim"),
    )  # fmt: skip
    pretty(data)


# --- changes -----------------------------------------------------------------------------------------------------


def changes(found: Sequence[Change], *, full: bool = False, indent: str = "") -> None:
    """A line for each path: + came, - went, ~ changed from old to new."""
    rows = list(found) if full else _without_long_runs(found)[:CHANGES_SHOWN_MAX]
    paths = ["" if isinstance(each, int) else clean(each.path) or "/" for each in rows]
    width = min(PATH_WIDTH_MAX, max((len(path) for path in paths), default=0))
    room = None if full else room_for_value(len(indent) + 2 + width + 2)
    for path, each in zip(paths, rows, strict=True):
        path = f"{path:<{width}}  "
        if isinstance(each, int):
            line((f"{indent}  … {each} more like these (--full shows them)", "dim"))
        elif each.kind == "create":
            line(indent, ("+ ", "green"), path, (shorten(compact(each.new), room), "green"))
        elif each.kind == "delete":
            line(indent, ("- ", "red"), path, (shorten(compact(each.old), room), "red"))
        else:
            old, new = _beside(compact(each.old), compact(each.new), room)
            line(indent, ("~ ", "yellow"), path, (old, "red"), (" → ", "dim"), (new, "green"))
    hidden = len(found) - sum(each if isinstance(each, int) else 1 for each in rows)
    if hidden:
        line((f"{indent}… and {many(hidden, 'more change')} (--full shows all)", "dim"))


def _without_long_runs(found: Sequence[Change]) -> list[Change | int]:
    """Changes, with the number of those left out in the middle of many alike: a list that grew by a hundred entries."""
    rows: list[Change | int] = []
    for _place, group in groupby(found, lambda each: (each.kind, _list_of(each.path))):
        run = list(group)
        if len(run) > RUN_SHOWN_MAX and _list_of(run[0].path):
            rows += [*run[: RUN_SHOWN_MAX - 2], len(run) - RUN_SHOWN_MAX + 1, run[-1]]
        else:
            rows += run
    return rows


def _list_of(path: str) -> str:
    """The path of the list an entry is in; nothing for what is not an entry."""
    parent, _, part = path.rpartition("/")
    return parent if part.isascii() and part.isdigit() else ""


def room_for_value(used: int) -> int:
    """The characters left on a line for values."""
    if not terminal():
        return VALUE_WIDTH * 2
    return max(20, console().width - used)


def _beside(old: str, new: str, room: int | None) -> tuple[str, str]:
    """Two values cut to fit a line; long ones that begin alike are shown from where they differ."""
    if room is None or len(old) + len(new) + 3 <= room:
        return old, new
    half = max(8, (room - 3) // 2)
    alike = next((index for index, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    if alike > half - CONTEXT_CHARS and max(len(old), len(new)) > half:
        skip = alike - CONTEXT_CHARS
        old, new = "…" + old[skip:], "…" + new[skip:]
    if len(old) < half:
        return old, shorten(new, room - 3 - len(old))
    if len(new) < half:
        return shorten(old, room - 3 - len(new)), new
    return shorten(old, half), shorten(new, half)


def event(event: StateEvent, *, full: bool = False) -> None:
    """An event: what it is, then what it changed."""
    facts = [event.type, when(event.time_us)]
    if event.source:
        facts.append(f"by {clean(event.source)}")
    if event.critical:
        facts.append("critical")
    if event.spans > 1:
        facts.append(f"covers {event.spans} versions")
    line((clean(event.id), "bold"), "  ", ("  ".join(facts), "dim"))
    room = None if full else room_for_value(18)
    for name, value in (
        ("caused by", event.causation), ("correlation", event.correlation), ("metadata", event.metadata or None),
    ):  # fmt: skip
        if value is not None:
            text = clean(value) if isinstance(value, str) else compact(value)
            line((f"    {name} {shorten(text, room)}", "dim"))
    changes(event.changes, full=full, indent="    ")
