"""Interleaved rounds, ratios paired inside each round, and medians of those.

A shared machine drifts: two systems measured one after the other meet different machines. So every round runs
all systems once, a ratio is taken inside a round only, and the median over the rounds is reported.
"""

from __future__ import annotations

import gc
import math
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median
from typing import Any

ROUNDS_MIN = 3

Figures = dict[str, float]
"""What one system showed in one round, such as ``{"rate": 48_000.0, "disk": 90_112.0}``."""


@dataclass(frozen=True)
class Subject:
    """One system under measurement: a name for the table and what one round of it is."""

    name: str
    run: Callable[[], Awaitable[Figures]]


@dataclass(frozen=True)
class Row:
    """One goal: the measured ratio, what it should be, and whether it is."""

    id: str
    ratio: float | None
    goal: str
    low: float = math.nan
    high: float = math.nan
    note: str = ""

    @classmethod
    def of(cls, id: str, ratios: Sequence[float], goal: str) -> Row:
        """The row of the ratios of all rounds: their median, lowest and highest."""
        return cls(id, median(ratios), goal, min(ratios), max(ratios))

    @property
    def met(self) -> bool:
        """Whether the ratio satisfies the goal; a ratio that could not be measured does not."""
        if self.ratio is None:
            return False
        relation, bound = self.goal.split()
        return self.ratio >= float(bound) if relation == ">=" else self.ratio <= float(bound)

    def as_json(self) -> dict[str, Any]:
        """The row as it stands in the last line of the output."""
        ratio = None if self.ratio is None else float(f"{self.ratio:.4g}")
        row = {"id": self.id, "ratio": ratio, "goal": self.goal, "met": self.met}
        return {**row, "note": self.note} if self.note else row


@dataclass
class Rounds:
    """The figures of every system in every round of one interleaved run."""

    title: str
    figures: dict[str, list[Figures]] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    count: int = 0

    def ratios(self, above: str, below: str, figure: str) -> list[float]:
        """`above` divided by `below`, once per round."""
        pairs = zip(self.figures[above], self.figures[below], strict=True)
        return [a[figure] / b[figure] for a, b in pairs]

    def row(self, id: str, above: str, below: str, figure: str, goal: str) -> Row:
        """The goal `above` / `below` of `figure`: the median of the ratios of all rounds."""
        for name in (above, below):
            if name in self.missing:
                return Row(id, None, goal, note=f"not measured: {self.missing[name]}")
        return Row.of(id, self.ratios(above, below, figure), goal)

    def table(self) -> str:
        """Medians of each system, with the spread (max - min) / median of its rounds in brackets."""
        names = list(dict.fromkeys(figure for rounds in self.figures.values() for figure in rounds[0]))
        lines = [["system", *names]]
        for system, rounds in self.figures.items():
            lines.append([system, *(_cell([r[n] for r in rounds]) if n in rounds[0] else "" for n in names)])
        skipped = [f"{system}: skipped, {why}" for system, why in self.missing.items()]
        return "\n".join(["", f"{self.title} ({self.count} rounds)", grid(lines), *skipped])


@dataclass(frozen=True)
class Report:
    """What a benchmark found: its tables, and a row for each of its goals."""

    tables: list[Rounds]
    rows: list[Row]


def _cell(values: list[float]) -> str:
    middle = median(values)
    digits = 0 if middle >= 1_000 else 1 if middle >= 10 else 3
    spread = (max(values) - min(values)) / middle if middle else 0.0
    return f"{middle:,.{digits}f} [{spread:.0%}]"


def grid(lines: Sequence[Sequence[str]]) -> str:
    """Lines of equally many cells as columns, the first and the last to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if n in (0, len(widths) - 1) else cell.rjust(width)
            for n, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def progress(text: str) -> None:
    """Say on stderr what happens now; on a terminal the line replaces the one before."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
    else:
        print(text, file=sys.stderr, flush=True)


@contextmanager
def steady(*, collect: bool) -> Iterator[None]:
    """A timed stretch that starts with an empty garbage list and skips what lived before it.

    With ``collect=False`` the collector is off inside: one pause of it outweighs a whole load of a state.
    """
    gc.collect()
    gc.freeze()
    if not collect:
        gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()


class Timer:
    """A context manager that knows how many seconds its body took."""

    seconds: float

    def __enter__(self) -> Timer:
        self.start = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.perf_counter() - self.start


async def interleave(
    title: str, subjects: Sequence[Subject | Missing], rounds: int, *, seconds: float = math.inf
) -> Rounds:
    """Run every subject once per round, in turned order every other round, and keep the figures.

    After `seconds` no new round begins, but three are always made.
    """
    result = Rounds(title, missing={s.name: s.why for s in subjects if isinstance(s, Missing)})
    present = [subject for subject in subjects if isinstance(subject, Subject)]
    result.figures = {subject.name: [] for subject in present}
    started = time.monotonic()
    for number in range(rounds):
        if number >= ROUNDS_MIN and time.monotonic() - started > seconds:
            break
        # Turned around, so that what one system leaves to the disk does not always hit the same next.
        for subject in present if number % 2 == 0 else reversed(present):
            progress(f"{title}: round {number + 1}/{rounds}, {subject.name}")
            result.figures[subject.name].append(await subject.run())
            result.count = number + 1
    return result


@dataclass(frozen=True)
class Missing:
    """A system that cannot be measured here, and why."""

    name: str
    why: str
