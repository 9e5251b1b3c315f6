"""One description for each noun: a list of it is rendered from that as a table for people, and as JSON for programs.

    AGENTS: Listing[AgentStatus] = Listing(
        "agents",
        (Field("agent", lambda each: each.agent, style="bold", yields=1), Field("status", lambda each: each.status)),
        empty="no agents; `maos agent run -- COMMAND` runs one",
    )
    AGENTS.show(found, as_json=as_json)

The JSON is that of the typed rows (`documents.of`), or what `document` makes of them; fields are for people only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from maos.cli import documents, render

T = TypeVar("T")


class Field(NamedTuple, Generic[T]):
    """A column of a table."""

    title: str
    text: Callable[[T], str]
    """What people see of a row; it is cleaned when it is printed."""
    right: bool = False
    style: str = ""
    yields: int = 0
    """Whether it may be cut when the terminal is narrow; the highest number first."""


class Listing(Generic[T]):
    """How a list of one noun is rendered."""

    def __init__(
        self,
        noun: str,
        fields: Sequence[Field[T]],
        *,
        empty: str = "",
        document: Callable[[T], documents.Document] = documents.of,
    ) -> None:
        self._noun = noun
        self._fields = fields
        self._empty = empty
        self._document = document

    def show(self, rows: Sequence[T], *, as_json: bool, empty: str = "", **more: Any) -> None:
        """Print rows, or `empty` for none; with `as_json`, as one document under the noun, with `more` beside them."""
        if as_json:
            documents.show({**self.document(rows), **more})
        elif rows:
            self.table(rows)
        elif empty or self._empty:
            render.line(empty or self._empty)

    def document(self, rows: Sequence[T]) -> documents.Document:
        """The rows as JSON, under the noun."""
        return {self._noun: [self._document(row) for row in rows]}

    def table(self, rows: Sequence[T], *, shown_max: int | None = None) -> None:
        """Print rows under the titles of their fields, at most so many."""
        columns = [render.Column(each.title, each.right, each.style, each.yields) for each in self._fields]
        render.table(columns, [self.cells(row) for row in rows[:shown_max]])
        if shown_max is not None and len(rows) > shown_max:
            render.line((f"… and {len(rows) - shown_max} more (--json prints all)", "dim"))

    def cells(self, row: T) -> list[str]:
        """What people see of a row."""
        return [each.text(row) for each in self._fields]
