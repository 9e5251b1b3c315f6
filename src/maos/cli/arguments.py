"""What can be said on the command line: versions, times, durations, and JSON from anywhere."""

from __future__ import annotations

import json
import re
import sys
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from maos.clock import MICROSECONDS, SystemClock, to_us
from maos.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from maos.app import Maos

_VERSION = re.compile(r"(newest)?(-[0-9]+)?")
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(s|m|h|d|w)")
_DURATION_S_MAX = 50 * 366 * 86_400  # beyond it lie times before 1970, and after what a calendar can show
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


class Version(NamedTuple):
    """A version as asked for: its number, or how far it lies before the newest."""

    number: int
    from_newest: bool

    async def resolve(self, m: Maos, agent: str) -> int:
        """The number it has now."""
        if not self.from_newest:
            return self.number
        newest = await m.state.version(agent)
        if newest and newest <= self.number:
            raise NotFound(
                f"agent {agent!r} has no version newest-{self.number}", hint=f"its versions are 1 to {newest}"
            )
        return newest - self.number


NEWEST = Version(0, from_newest=True)
BEFORE_NEWEST = Version(1, from_newest=True)


class _Type(click.ParamType):  # type: ignore[type-arg]  # takes no argument before click 8.4
    """A kind of argument."""


class VersionType(_Type):
    """A version: 7, newest, newest-2 or just -2."""

    name = "version"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Version:
        if isinstance(value, Version):
            return value
        if value.isascii() and value.isdigit() and len(value) < 19:
            return Version(int(value), from_newest=False)
        match = _VERSION.fullmatch(value)
        if not value or match is None or len(value) > 24:
            self.fail(f"{value!r} is not a version; it looks like 7, newest or -2 (two before the newest)", param, ctx)
        return Version(-int(match[2] or 0), from_newest=True)


class WhenType(_Type):
    """A time, in microseconds: ISO 8601 (local unless it says otherwise), or how long ago."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        text = value.strip()
        ago_us = _duration_us(text.removesuffix("ago").strip())
        if ago_us is not None:
            return SystemClock().now_us() - ago_us
        try:
            return to_us(datetime.fromisoformat(text))
        except (ValueError, OverflowError, OSError):
            self.fail(f"{value!r} is not a time; it looks like 2026-03-01T14:30, 15m, 2h or 3d (ago)", param, ctx)


class DurationType(_Type):
    """A stretch of time, in microseconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        found = _duration_us(value.strip())
        if found is None:
            self.fail(f"{value!r} is not a duration; it looks like 15m, 2h, 3d or 4w", param, ctx)
        return found


class JsonType(_Type):
    """JSON, given directly, as @FILE, or as - for standard input."""

    name = "json"

    def __init__(self, *, only_objects: bool = False) -> None:
        self._only_objects = only_objects

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        where = "standard input" if value == "-" else value[1:] if value.startswith("@") else "the argument"
        try:
            data = json.loads(_text(value))
        except OSError as error:
            self.fail(f"{where} cannot be read: {error.strerror}", param, ctx)
        except RecursionError:
            self.fail(f"{where} is nested too deeply", param, ctx)
        except ValueError as error:
            self.fail(f"{where} is not JSON: {error}; text needs quotes inside: '\"text\"'", param, ctx)
        if self._only_objects and type(data) is not dict:
            self.fail(f'{where} is not a JSON object; it looks like {{"status": "idle"}}', param, ctx)
        return data


class TextType(_Type):
    """A text, or @FILE for what is in a file."""

    name = "text|@file"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(value)
        if not text.startswith("@"):
            return text
        try:
            with open(text[1:], encoding="utf-8") as file:
                return file.read()
        except OSError as error:
            self.fail(f"{text[1:]} cannot be read: {error.strerror}", param, ctx)
        except UnicodeDecodeError:
            self.fail(f"{text[1:]} is not text in UTF-8", param, ctx)


VERSION = VersionType()
WHEN = WhenType()
DURATION = DurationType()
JSON = JsonType()
TEXT = TextType()
JSON_OBJECT = JsonType(only_objects=True)


def seconds(duration_us: int | None) -> float | None:
    """A duration as services take it."""
    return None if duration_us is None else duration_us / MICROSECONDS


def pointer(path: str) -> str:
    """A path into a state as a JSON pointer; the leading slash may be left out."""
    return path if path.startswith("/") or not path else f"/{path}"


def named_text(text: str, option: str) -> tuple[str, str]:
    """The name and the value of NAME=VALUE."""
    name, equals, rest = text.partition("=")
    if not equals or not name.isidentifier():
        raise InvalidInput(f"{text!r} is no argument", hint=f"use {option} NAME=VALUE")
    return name, rest


def _text(value: str) -> str:
    if value == "-":
        return sys.stdin.read()
    if value.startswith("@"):
        with open(value[1:], encoding="utf-8") as file:
            return file.read()
    return value


def _duration_us(text: str) -> int | None:
    match = _DURATION.fullmatch(text)
    if match is None:
        return None
    seconds = float(match[1]) * _SECONDS[match[2]]
    return int(seconds * MICROSECONDS) if seconds <= _DURATION_S_MAX else None
