"""One description for each noun: a list of it is rendered from that as a table for people, and as JSON for programs.

    AGENTS: Listing[AgentStatus] = Listing(
        "agents",
        (Field("agent", lambda each: each.agent, style="bold", yields=1), Field("status", lambda each: each.status)),
        empty="no agents; `maos agent run -- COMMAND` runs one",
    )
    AGENTS.show(found, as_json=as_json)

The JSON is that of the typed rows (`documents.of`); the fields say only what people see.
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

    def __init__(self, noun: str, fields: Sequence[Field[T]], *, empty: str = "") -> None:
        self._noun = noun
        self._fields = fields
        self._empty = empty

    def show(self, rows: Sequence[T], *, as_json: bool, **more: Any) -> None:
        """Print rows; with `as_json`, as one document under the noun, with `more` beside them."""
        if as_json:
            documents.show({**self.document(rows), **more})
        elif rows:
            self.table(rows)
        elif self._empty:
            render.line(self._empty)

    def document(self, rows: Sequence[T]) -> documents.Document:
        """The rows as JSON, under the noun."""
        return {self._noun: documents.of(rows)}

    def table(self, rows: Sequence[T]) -> None:
        """Print rows under the titles of their fields."""
        columns = [render.Column(each.title, each.right, each.style, each.yields) for each in self._fields]
        render.table(columns, [[each.text(row) for each in self._fields] for row in rows])
