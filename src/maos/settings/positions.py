"""Positions (line and column) of keys and values in TOML and JSON text, which the parsers of the standard library omit.

The text has been parsed before, so it is valid: the scanner only has to follow it.
"""

from __future__ import annotations

import bisect
import json
import re
import tomllib
from typing import NamedTuple

_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_SPACES = re.compile(r"[ \t]*")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_EQUALS = re.compile(r"[ \t\r\n]*[=:][ \t\r\n]*")
_COMMA = re.compile(",?")
_HEADER = re.compile(r"\[{1,2}")
_HEADER_END = re.compile(r"[ \t]*\]{1,2}")
_STRINGS = (
    re.compile(r'"""(?:[^\\]|\\.)*?"{3,5}', re.S),
    re.compile(r"'''.*?'{3,5}", re.S),
    re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"'),
    re.compile(r"'[^']*'"),
)
_PLAIN = re.compile(r"[^,\]}#\n]*")

Path = tuple[str | int, ...]
"""The path of a key or value: the names of tables and keys, and the numbers of items, from 0."""


class Position(NamedTuple):
    """A position in a text; both numbers begin at 1."""

    line: int
    column: int


START = Position(1, 1)


class Positions(NamedTuple):
    """The positions of keys and values, by their path."""

    keys: dict[Path, Position]
    values: dict[Path, Position]
    texts: dict[Path, str]
    """Numbers and other plain values as they are written: 1.10 is the number 1.1."""
    repeated: list[tuple[str, Position]]
    """Keys that an object of JSON has twice."""


def find_positions(text: str, *, is_json: bool = False) -> Positions:
    """Return the positions of all keys and values of a valid text."""
    scan = _Scan(text)
    if is_json:
        scan.whole_value()
    else:
        scan.document()
    return Positions(
        {way: scan.place(at) for way, at in scan.keys.items()},
        {way: scan.place(at) for way, at in scan.values.items()},
        scan.texts,
        [(name, scan.place(at)) for name, at in scan.repeated],
    )


class _Scan:
    """Reads a valid text from its beginning to its end."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.keys: dict[Path, int] = {}
        self.values: dict[Path, int] = {}
        self.texts: dict[Path, str] = {}
        self.repeated: list[tuple[str, int]] = []
        self._counts: dict[Path, int] = {}
        self._lines = [0, *(found.end() for found in re.finditer("\n", text))]

    def place(self, at: int) -> Position:
        """Line and column of a character."""
        line = bisect.bisect_right(self._lines, at)
        return Position(line, at - self._lines[line - 1] + 1)

    def whole_value(self) -> None:
        """The one value that a JSON text is."""
        self._skip(_BLANK)
        self._value(())

    def document(self) -> None:
        """Tables and their keys, to the end."""
        table: Path = ()
        self._skip(_BLANK)
        while self.at < len(self.text):
            if self.text[self.at] == "[":
                table = self._header()
            else:
                self._pair(table)
            self._skip(_BLANK)

    def _header(self) -> Path:
        """The table that `[a.b]` begins, or the next one of the array `[[a.b]]`."""
        began = self.at
        is_array = self.text.startswith("[[", began)
        self._skip(_HEADER)
        way = self._key((), is_header=True)
        self._skip(_HEADER_END)
        if not is_array:
            return way
        number = self._counts.get(way, 0)
        self._counts[way] = number + 1
        self.values.setdefault(way, began)
        self.values[(*way, number)] = began
        return (*way, number)

    def _pair(self, table: Path) -> None:
        began = self.at
        way = self._key(table)
        if way in self.values:
            self.repeated.append((str(way[-1]), began))
        self._skip(_EQUALS)
        self._value(way)

    def _key(self, table: Path, *, is_header: bool = False) -> Path:
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
            if is_header and way in self._counts:
                way = (*way, self._counts[way] - 1)
            self.at += 1

    def _value(self, way: Path) -> None:
        self.values.setdefault(way, self.at)
        match self.text[self.at]:
            case "[":
                self._items(way)
            case "{":
                self.at += 1
                self._skip(_BLANK)
                while self.text[self.at] != "}":
                    self._pair(way)
                    self._skip_comma()
                self.at += 1
            case '"' | "'":
                self._skip_string()
            case _:
                began = self.at
                self._skip(_PLAIN)
                self.texts[way] = self.text[began : self.at].strip()

    def _items(self, way: Path) -> None:
        self.at += 1
        number = 0
        self._skip(_BLANK)
        while self.text[self.at] != "]":
            self._value((*way, number))
            number += 1
            self._skip_comma()
        self.at += 1

    def _skip_comma(self) -> None:
        self._skip(_BLANK)
        self._skip(_COMMA)
        self._skip(_BLANK)

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
    if "\\" not in key or key.startswith("'"):
        return key[1:-1]
    try:
        return str(json.loads(key))
    except ValueError:
        return next(iter(tomllib.loads(f"{key} = 0")))
