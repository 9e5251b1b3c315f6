"""Positions (line and column) of keys and values in TOML and JSON text, which the parsers of the standard library omit.

The text has been parsed before, so it is valid: the scanner only has to follow it.
"""

from __future__ import annotations

import bisect
import json
import re
from typing import Any

from maos.patterns import regex
from maos.tuples import NamedTuple

DIGITS_MAX = 4_300
"""Python converts no longer text to a number."""

KEY_PARTS_MAX = 32
_LONG_KEY = regex(
    rf"""(?:^|[\[{{,])[ \t]*+(?:(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){{{KEY_PARTS_MAX}}}""", re.M
)
"""The time that the parser takes for a dotted key grows with the square of its parts."""
_LONG_NUMBER = regex(rf"[0-9_]{{{DIGITS_MAX}}}")
_SYNTAX = regex(r"(.*) \(at (?:line (\d+), column (\d+)|end of document)\)", re.S)
_BLANKS = r"(?:[ \t\r\n]|#[^\n]*)*"
_BLANK = regex(_BLANKS)
_SPACES = regex(r"[ \t]*")
_BARE_KEY = regex(r"[A-Za-z0-9_-]+")
_EQUALS = regex(r"[ \t\r\n]*[=:][ \t\r\n]*")
_COMMA = regex(f"{_BLANKS},?{_BLANKS}")
_HEADER = regex(r"\[{1,2}")
_HEADER_END = regex(r"[ \t]*\]{1,2}")
_STRING = regex(
    r'"""(?:[^\\]|\\.)*?"{3,5}'
    r"|'''.*?'{3,5}"
    r'|"[^"\\]*(?:\\.[^"\\]*)*"'
    r"|'[^']*'",
    re.S,
)
_PLAIN = regex(r"[^,\]}#\n]*")

Path = tuple[str | int, ...]
"""The path of a key or value: the names of tables and keys, and the numbers of items, from 0."""


class Position(NamedTuple):
    """A position in a text; both numbers begin at 1."""

    line: int
    column: int


START = Position(1, 1)


class Problem(NamedTuple):
    """Something wrong with a plan or the settings."""

    where: str
    """A task, a variable, or the file; one without a position may have line and column here."""
    what: str
    hint: str = ""
    path: Path = ()
    """The way to it in the plan, such as tasks, 3, needs, 0."""
    position: Position | None = None

    def __str__(self) -> str:
        where = f"{self.where}:{self.position.line}:{self.position.column}" if self.position else self.where
        return f"{where}: {self.what}" + (f" ({self.hint})" if self.hint else "")


class Positions(NamedTuple):
    """The positions of keys and values, by their path."""

    keys: dict[Path, Position]
    values: dict[Path, Position]
    texts: dict[Path, str]
    """Numbers and other plain values as they are written: 1.10 is the number 1.1."""
    repeated: list[tuple[str, Position]]
    """Keys that an object of JSON has twice."""


class NotToml(ValueError):
    """A text that cannot be read as TOML: what is wrong with it, and where."""

    def __init__(self, what: str, position: Position) -> None:
        super().__init__(what)
        self.position = position


def parse_toml(text: str) -> dict[str, Any]:
    """Return the data of a TOML text; raise NotToml."""
    import tomllib  # most commands find no file to parse

    if long := _LONG_KEY.search(text):
        line = text.count("\n", 0, long.start()) + 1
        raise NotToml(f"a key has more than {KEY_PARTS_MAX} parts", Position(line, 1))
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = _SYNTAX.fullmatch(str(error))
        end = Position(text.count("\n") + 1, len(text) - text.rfind("\n"))
        at = Position(int(found[2]), int(found[3])) if found and found[2] else end
        what = found[1] if found else str(error)
        raise NotToml(f"not TOML: {what[:1].lower()}{what[1:]}", at) from error
    except ValueError as error:  # of int
        number = _LONG_NUMBER.search(text)
        line = text.count("\n", 0, number.start()) + 1 if number else 1
        raise NotToml(f"a number has more than {DIGITS_MAX} digits", Position(line, 1)) from error
    except RecursionError as error:
        raise NotToml("it is nested too deeply", Position(1, 1)) from error


def find_positions(text: str, *, is_json: bool = False) -> Positions:
    """Return the positions of all keys and values of a valid text."""
    return _Scan(text, is_json).found


class _Scan:
    """Reads a valid text from its beginning to its end: tables and their keys, or the one value that a JSON text is."""

    def __init__(self, text: str, is_json: bool) -> None:
        self.found = Positions({}, {}, {}, [])
        self._text = text
        self._at = 0
        self._counts: dict[Path, int] = {}
        self._lines = [0, *(found.end() for found in re.finditer("\n", text))]
        self._skip(_BLANK)
        if is_json:
            self._value(())
        table: Path = ()
        while not is_json and self._at < len(text):
            if text[self._at] == "[":
                table = self._header()
            else:
                self._pair(table)
            self._skip(_BLANK)

    def _position(self) -> Position:
        line = bisect.bisect_right(self._lines, self._at)
        return Position(line, self._at - self._lines[line - 1] + 1)

    def _header(self) -> Path:
        """The table that `[a.b]` begins, or the next one of the array `[[a.b]]`."""
        began = self._position()
        is_array = self._skip(_HEADER) == "[["
        way = self._key((), is_header=True)
        self._skip(_HEADER_END)
        if not is_array:
            return way
        number = self._counts.get(way, 0)
        self._counts[way] = number + 1
        self.found.values.setdefault(way, began)
        self.found.values[(*way, number)] = began
        return (*way, number)

    def _pair(self, table: Path) -> None:
        began = self._position()
        way = self._key(table)
        if way in self.found.values:
            self.found.repeated.append((str(way[-1]), began))
        self._skip(_EQUALS)
        self._value(way)

    def _key(self, table: Path, *, is_header: bool = False) -> Path:
        """A key with its dots; each part of it is noted where it first stands."""
        way = table
        while True:
            self._skip(_SPACES)
            began = self._position()
            is_quoted = self._text[self._at] in "\"'"
            key = self._skip(_STRING if is_quoted else _BARE_KEY)
            way = (*way, _unquoted(key) if is_quoted else key)
            self.found.keys.setdefault(way, began)
            self._skip(_SPACES)
            if self._text[self._at : self._at + 1] != ".":
                return way
            if is_header and way in self._counts:
                way = (*way, self._counts[way] - 1)
            self._at += 1

    def _value(self, way: Path) -> None:
        self.found.values.setdefault(way, self._position())
        match self._text[self._at]:
            case "[":
                self._at += 1
                number = 0
                self._skip(_BLANK)
                while self._text[self._at] != "]":
                    self._value((*way, number))
                    number += 1
                    self._skip(_COMMA)
                self._at += 1
            case "{":
                self._at += 1
                self._skip(_BLANK)
                while self._text[self._at] != "}":
                    self._pair(way)
                    self._skip(_COMMA)
                self._at += 1
            case '"' | "'":
                self._skip(_STRING)
            case _:
                self.found.texts[way] = self._skip(_PLAIN).strip()

    def _skip(self, pattern: re.Pattern[str]) -> str:
        """Move behind what a pattern matches, and return it."""
        found = pattern.match(self._text, self._at)
        assert found is not None, f"not what a right text has at {self._position()}"
        self._at = found.end()
        return found[0]


def _unquoted(key: str) -> str:
    if "\\" not in key or key.startswith("'"):
        return key[1:-1]
    try:
        return str(json.loads(key))
    except ValueError:
        import tomllib

        return next(iter(tomllib.loads(f"{key} = 0")))
