"""Where in a TOML text each key and each value stands; the parser of the standard library does not tell.

The text has been parsed before, so it is right: this only has to find its way through it.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_SPACES = re.compile(r"[ \t]*")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_STRINGS = (
    re.compile(r'"""(?:[^\\]|\\.)*?"{3,5}', re.S),
    re.compile(r"'''.*?'{3,5}", re.S),
    re.compile(r'"(?:[^"\\]|\\.)*"'),
    re.compile(r"'[^']*'"),
)
_PLAIN = re.compile(r"[^,\]}#\n]*")


class Position(NamedTuple):
    """A place in a text; both begin at 1."""

    line: int
    column: int


class Positions(NamedTuple):
    """Where the keys and the values are, each by the way to it: the names of the tables, then its own."""

    keys: dict[tuple[str, ...], Position]
    values: dict[tuple[str, ...], Position]


def places(text: str) -> Positions:
    """Where everything is."""
    scan = _Scan(text)
    scan.document()
    return Positions(
        {way: scan.place(at) for way, at in scan.keys.items()},
        {way: scan.place(at) for way, at in scan.values.items()},
    )


class _Scan:
    """A walk through a text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.keys: dict[tuple[str, ...], int] = {}
        self.values: dict[tuple[str, ...], int] = {}

    def place(self, at: int) -> Position:
        """Line and column of a character."""
        return Position(self.text.count("\n", 0, at) + 1, at - self.text.rfind("\n", 0, at))

    def document(self) -> None:
        """Tables and their keys, to the end."""
        table: tuple[str, ...] = ()
        self._skip(_BLANK)
        while self.at < len(self.text):
            if self.text[self.at] == "[":
                self._skip(re.compile(r"\[{1,2}"))
                table = self._key(())
                self._skip(re.compile(r"[ \t]*\]{1,2}"))
            else:
                self._pair(table)
            self._skip(_BLANK)

    def _pair(self, table: tuple[str, ...]) -> None:
        way = self._key(table)
        self._skip(re.compile(r"[ \t]*=[ \t]*"))
        self._value(way)

    def _key(self, table: tuple[str, ...]) -> tuple[str, ...]:
        """A key with its dots; each part of it is noted where it first stands."""
        way = table
        while True:
            self._skip(_SPACES)
            began = self.at
            if self.text[self.at] in "\"'":
                self._skip_string()
                name = _unquoted(self.text[began : self.at])
            else:
                self._skip(_BARE_KEY)
                name = self.text[began : self.at]
            way = (*way, name)
            self.keys.setdefault(way, began)
            self._skip(_SPACES)
            if self.text[self.at : self.at + 1] != ".":
                return way
            self.at += 1

    def _value(self, way: tuple[str, ...]) -> None:
        self.values.setdefault(way, self.at)
        match self.text[self.at]:
            case "[":
                self._items(way)
            case "{":
                self.at += 1
                self._skip(_BLANK)
                while self.text[self.at] != "}":
                    self._pair(way)
                    self._skip(_BLANK)
                    self._skip(re.compile(",?"))
                    self._skip(_BLANK)
                self.at += 1
            case '"' | "'":
                self._skip_string()
            case _:
                self._skip(_PLAIN)

    def _items(self, way: tuple[str, ...]) -> None:
        self.at += 1
        number = 0
        self._skip(_BLANK)
        while self.text[self.at] != "]":
            self._value((*way, str(number)))
            number += 1
            self._skip(_BLANK)
            self._skip(re.compile(",?"))
            self._skip(_BLANK)
        self.at += 1

    def _skip_string(self) -> None:
        for pattern in _STRINGS:
            if (found := pattern.match(self.text, self.at)) is not None:
                self.at = found.end()
                return

    def _skip(self, pattern: re.Pattern[str]) -> None:
        found = pattern.match(self.text, self.at)
        assert found is not None, f"not what a right text has at {self.place(self.at)}"
        self.at = found.end()


def _unquoted(key: str) -> str:
    """A key in quotes as the parser has it."""
    import tomllib

    return next(iter(tomllib.loads(f"{key} = 0")))
