"""The text of a settings file: the positions of its keys, a template for a new one, and writing it.

The TOML parser of the standard library does not report positions. The scanner here runs after it, so the text is valid.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

from maos.faults import crash_point
from maos.files import sync_folder
from maos.settings import schema

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
    """A position in a text; both numbers begin at 1."""

    line: int
    column: int


class Positions(NamedTuple):
    """The positions of keys and values, by their path: the names of the tables, then the key."""

    keys: dict[tuple[str, ...], Position]
    values: dict[tuple[str, ...], Position]


def find_positions(text: str) -> Positions:
    """Return the positions of all keys and values of a valid TOML text."""
    scan = _Scanner(text)
    scan.scan()
    return Positions(
        {path: scan.position(at) for path, at in scan.keys.items()},
        {path: scan.position(at) for path, at in scan.values.items()},
    )


class _Scanner:
    """Reads a TOML text from its beginning to its end."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.keys: dict[tuple[str, ...], int] = {}
        self.values: dict[tuple[str, ...], int] = {}

    def position(self, at: int) -> Position:
        """Return the line and column of a character."""
        return Position(self.text.count("\n", 0, at) + 1, at - self.text.rfind("\n", 0, at))

    def scan(self) -> None:
        """Read all tables with their keys."""
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
        path = self._key(table)
        self._skip(re.compile(r"[ \t]*=[ \t]*"))
        self._value(path)

    def _key(self, table: tuple[str, ...]) -> tuple[str, ...]:
        """Read a key with its dots, and record where each part first occurs."""
        path = table
        while True:
            self._skip(_SPACES)
            began = self.at
            if self.text[self.at] in "\"'":
                self._skip_string()
                name = _unquote(self.text[began : self.at])
            else:
                self._skip(_BARE_KEY)
                name = self.text[began : self.at]
            path = (*path, name)
            self.keys.setdefault(path, began)
            self._skip(_SPACES)
            if self.text[self.at : self.at + 1] != ".":
                return path
            self.at += 1

    def _value(self, path: tuple[str, ...]) -> None:
        self.values.setdefault(path, self.at)
        match self.text[self.at]:
            case "[":
                self._items(path)
            case "{":
                self.at += 1
                self._skip(_BLANK)
                while self.text[self.at] != "}":
                    self._pair(path)
                    self._skip(_BLANK)
                    self._skip(re.compile(",?"))
                    self._skip(_BLANK)
                self.at += 1
            case '"' | "'":
                self._skip_string()
            case _:
                self._skip(_PLAIN)

    def _items(self, path: tuple[str, ...]) -> None:
        self.at += 1
        number = 0
        self._skip(_BLANK)
        while self.text[self.at] != "]":
            self._value((*path, str(number)))
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
        assert found is not None, f"not valid TOML at {self.position(self.at)}"
        self.at = found.end()


def _unquote(key: str) -> str:
    """Return a quoted key without its quotes and escapes."""
    return next(iter(tomllib.loads(f"{key} = 0")))


def write(path: Path, text: str) -> None:
    """Replace the text of a file atomically: readers, also after a crash, find the old or the new text."""
    path.parent.mkdir(parents=True, exist_ok=True)
    target = path.resolve()  # a symbolic link stays one
    try:
        mode = target.stat().st_mode & 0o777
    except FileNotFoundError:
        mode = 0o644
    new = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with open(new, "w", encoding="utf-8") as file:
            os.chmod(new, mode)
            crash_point("settings: begun")
            file.write(text)
            file.flush()
            crash_point("settings: written")
            os.fsync(file.fileno())
        crash_point("settings: synced")
        os.replace(new, target)
    except BaseException:
        new.unlink(missing_ok=True)
        raise
    crash_point("settings: in place")
    sync_folder(target.parent)


def template(*, is_project: bool) -> str:
    """Return the text of a new file: every setting with its default, commented out."""
    lines = [f"version = {schema.VERSION}"]
    for section, about in schema.sections().items():
        settings = [
            each
            for each in schema.fields().values()
            if each.name.startswith(f"{section}.") and each.variable and not (is_project and each.personal)
        ]
        if settings:
            lines += ["", f"# {about}", f"[{section}]"]
            lines += [f"# {each.name.partition('.')[2]} = {to_toml(each.default)}" for each in settings]
    return "\n".join(lines) + "\n"


def to_toml(value: Any) -> str:
    """Return a value in TOML."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(to_toml, value))}]"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return json.dumps(value)
