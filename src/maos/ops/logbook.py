"""A file of what was saved when: a line for each event of the journal, to be searched with the tools that people have.

It is written from the journal, after the fact, and its last line says how far it is. So the next process that writes
continues from there: it has no gaps and no duplicates, also when a process was killed.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import Awaitable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from maos.clock import to_datetime
from maos.errors import InvalidInput
from maos.journal.journal import PAGE_EVENTS, Journal

T = TypeVar("T")

EVERY_S = 1.0
LOCK_POLL_S = 0.02
FIRST = " the log begins here"
TAIL_BYTES = 1 << 16
SHOWN = (
    "name", "trigger", "task", "agent", "number", "status", "failure", "place", "kind", "commit", "why", "by", "path",
)  # fmt: skip
"""What of an event is told, where it has it: names and reasons, and nothing that agents say."""
VALUE_CHARS_MAX = 80


async def beside(journal: Journal, path: Path, work: Awaitable[T]) -> T:
    """Keep the log up to date for as long as something takes."""
    await catch_up(journal, path)
    keeping = asyncio.create_task(_keep(journal, path))
    try:
        return await work
    finally:
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)
        await catch_up(journal, path)


async def _keep(journal: Journal, path: Path) -> None:
    while True:
        await asyncio.sleep(EVERY_S)
        await catch_up(journal, path)


async def catch_up(journal: Journal, path: Path) -> int:
    """Write what is in the journal and not in the log yet; how many lines. A new log begins with what comes next."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        log = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        hint = "set log.file to a path that can be written, or to nothing"
        raise InvalidInput(f"the log {path} cannot be written: {error.strerror}", hint=hint) from error
    try:
        while not _is_locked(log):  # noqa: ASYNC110 - a released lock wakes no one
            await asyncio.sleep(LOCK_POLL_S)
        position = _position(log, path)
        count = 0
        if position is None:
            position = await journal.head()
            _write(log, [f"{position}{FIRST}"])
        while page := await journal.store.read_log(after=position, limit=PAGE_EVENTS):
            lines = []
            for event in page:
                record = await journal.decode_unless_erased(event)
                at = to_datetime(event.time_us).isoformat(timespec="milliseconds")
                said = told(record.data) if record is not None else " erased"
                lines.append(f"{event.position} {at} {event.stream}@{event.version} {event.type}{said}")
                position = event.position
            _write(log, lines)
            count += len(lines)
        return count
    finally:
        os.close(log)


def told(data: Mapping[str, Any]) -> str:
    """What a line says of an event beside its type."""
    found = [(name, str(data[name])) for name in SHOWN if data.get(name) not in (None, "", [], {})]
    return "".join(f" {name}={_short(value)}" for name, value in found)


def _short(value: str) -> str:
    text = " ".join("".join(char if char.isprintable() else " " for char in value).split())
    text = text if len(text) <= VALUE_CHARS_MAX else text[: VALUE_CHARS_MAX - 1] + "…"
    return f'"{text}"' if " " in text else text


def _is_locked(log: int) -> bool:
    """Whether the log is ours alone until we close it."""
    try:
        fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _write(log: int, lines: list[str]) -> None:
    left = memoryview("".join(f"{line}\n" for line in lines).encode())
    while left:
        left = left[os.write(log, left) :]


def _position(log: int, path: Path) -> int | None:
    """Up to where it is written; None when nothing is. A line that was cut off by a crash is taken away."""
    size = os.fstat(log).st_size
    if not size:
        return None
    number, _, rest = os.pread(log, 64, 0).partition(b" ")
    if not number.isdigit() or not rest.startswith(FIRST.strip().encode()):
        raise InvalidInput(f"{path} is not a log of maos", hint="set log.file to a file of its own")
    tail = os.pread(log, TAIL_BYTES, max(0, size - TAIL_BYTES))
    whole = tail.rfind(b"\n") + 1
    if whole < len(tail):
        os.ftruncate(log, size - len(tail) + whole)
    return int(tail[:whole].splitlines()[-1].partition(b" ")[0])
