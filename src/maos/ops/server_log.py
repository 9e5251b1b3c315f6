"""The log of `maos serve`, on standard error: what its engine does, what fails, and what libraries warn of.

Each line is text for people, or a JSON document for programs, which has the keys of `maos.engine.log` on every line.
There is no line for each request: what a caller did is in the audit.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal, TextIO

from maos.clock import MICROSECONDS, to_datetime
from maos.engine import log
from maos.engine.log import Action
from maos.redact import Redactor

Format = Literal["text", "json"]
STARTED = Action("server.started", "server is ready")
STOPPING = Action("server.stopping", "server is being stopped")
PROBLEM = Action("server.problem", "something cannot be executed; it is tried again", logging.WARNING)
REQUEST_FAILED = Action("request.failed", "request failed", logging.ERROR)
NOTED = "server.noted"
"""What the server started or resumed by itself; the message says what."""
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_redactor = Redactor({})  # what was recorded is redacted already; tracebacks are not


def write(action: Action, error: BaseException | None = None, **names: str) -> None:
    """Log an action of the server."""
    log.write(log.SERVER, action, error, **names)


def note(text: str) -> None:
    """Log what the server did by itself."""
    write(Action(NOTED, text))


class TextFormatter(logging.Formatter):
    """A line for people: time, level, action, message. A traceback follows on indented lines."""

    def format(self, record: logging.LogRecord) -> str:
        """One record."""
        action = getattr(record, "action", "") or record.name
        line = f"{_time(record)} {record.levelname:7} {action}: {_one_line(record.getMessage())}"
        traceback = "".join(f"\n    {_one_line(each)}" for each in _traceback(record).split("\n") if each)
        return _redactor.text(line + traceback)


class JsonFormatter(logging.Formatter):
    """A JSON document on one line: `at`, `level`, `logger`, `message`, the stable keys, and others the record has."""

    def format(self, record: logging.LogRecord) -> str:
        """One record."""
        extra: dict[str, Any] = {name: value for name, value in vars(record).items() if name not in _STANDARD}
        names = {"at": _time(record), "level": record.levelname.lower(), "logger": record.name}
        said = {"message": record.getMessage(), **dict.fromkeys(log.KEYS, ""), **extra}
        if traceback := _traceback(record):
            said["traceback"] = traceback
        clean = {name: _redactor.text(str(value)) for name, value in said.items()}
        return json.dumps({**names, **clean})  # ASCII: no character in it ends a line


FORMATTERS: dict[str, type[logging.Formatter]] = {"text": TextFormatter, "json": JsonFormatter}


@contextmanager
def logging_to(stream: TextIO | None = None, *, format: Format = "text", level: str = "info") -> Iterator[None]:
    """Log to a stream, standard error by default, for the time of a block: maos from a level on, libraries warnings."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(FORMATTERS[format]())
    root, own = logging.getLogger(), logging.getLogger("maos")
    before = own.level
    root.addHandler(handler)
    own.setLevel(level.upper())
    try:
        yield
    finally:
        root.removeHandler(handler)
        own.setLevel(before)


def _time(record: logging.LogRecord) -> str:
    return to_datetime(int(record.created * MICROSECONDS)).isoformat(timespec="milliseconds")


def _traceback(record: logging.LogRecord) -> str:
    return logging.Formatter().formatException(record.exc_info) if record.exc_info else ""


def _one_line(text: str) -> str:
    return "".join(char if char.isprintable() else " " for char in text)
