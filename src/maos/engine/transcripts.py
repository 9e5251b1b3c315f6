"""Our own durable copy of an agent program's transcript, so that another machine can resume the conversation.

The copy is made of what the file has grown by since the last time, whole lines only, without secrets. Of a program
whose files are not known, only its home is: its session can be resumed where that is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import BinaryIO

from maos.agents.contract import Dialect, LaunchOrder
from maos.files import open_regular, private_folder, replace_file
from maos.journal.journal import Journal
from maos.model.attempt import Attempt, attempt_id, stream
from maos.model.events.attempt import AttemptTranscript
from maos.model.failure import FRESH, TABLE
from maos.redact import Redactor

PIECE_BYTES = 2 << 20
LINE_BYTES_MAX = 6 << 20
"""A longer line is left out of the copy: with a piece before it, it would take more than an event can hold."""


async def news(
    dialect: Dialect, order: LaunchOrder, attempt: Attempt, secrets: Mapping[str, str]
) -> list[AttemptTranscript]:
    """Events with what the transcript has grown by, without these secrets."""
    path = dialect.transcript(order, attempt.session)
    if path is None:
        return []
    after = attempt.transcript_bytes if path.name == attempt.transcript_name else 0
    return await asyncio.to_thread(read, path, after, secrets)


def is_kept(dialect: Dialect, order: LaunchOrder, attempt: Attempt) -> bool:
    """Whether the program would find the session, with what `put_back` can put back, and can continue in it."""
    if attempt.failure in TABLE and TABLE[attempt.failure].action == FRESH:
        return False
    return dialect.capabilities.resume and (_is_there(dialect, order, attempt) or bool(attempt.transcript_name))


async def put_back(journal: Journal, dialect: Dialect, order: LaunchOrder, attempt: Attempt) -> bool:
    """Make sure that the program will find the session; whether it will.

    The program's own file is preferred, for it may have a few lines more than we saw.
    """
    if not is_kept(dialect, order, attempt):
        return False
    if _is_there(dialect, order, attempt):
        return True
    path = dialect.transcript_home(order, attempt.session, attempt.transcript_name)
    private_folder(path.parent)
    await asyncio.to_thread(replace_file, path, (await text_of(journal, attempt)).encode())
    return True


def _is_there(dialect: Dialect, order: LaunchOrder, attempt: Attempt) -> bool:
    """Whether the program has the session itself: in a file that is known, or as it says, in its home."""
    return dialect.transcript(order, attempt.session) is not None or (attempt.session_kept and order.home.is_dir())


async def text_of(journal: Journal, attempt: Attempt) -> str:
    """The transcript of a session, as it was recorded up to a version of its newest attempt."""
    pieces: list[str] = []
    for number in range(1, attempt.number + 1 if attempt.transcript_name else 0):
        until = attempt.version if number == attempt.number else None
        async for record in journal.read(stream(attempt_id(attempt.agent, number)), until=until):
            match record.event:
                case AttemptTranscript(name=attempt.transcript_name, text=text):
                    pieces.append(text)
    return "".join(pieces)


def read(path: Path, after: int = 0, secrets: Mapping[str, str] = MappingProxyType({})) -> list[AttemptTranscript]:
    """Events with what a transcript holds from a place on: whole lines, without secrets."""
    redactor = Redactor(secrets)
    events: list[AttemptTranscript] = []
    try:
        with open_regular(path) as file:
            file.seek(after)
            while piece := file.read(PIECE_BYTES):
                if not piece.endswith(b"\n"):
                    piece += file.readline(LINE_BYTES_MAX)
                whole = piece[: piece.rfind(b"\n") + 1]
                left_out = 0 if whole else _rest_of_line(file, len(piece))
                until = after + len(whole) + left_out
                if until == after:
                    break  # a line that is still being written waits for the next time
                text = redactor.lines(whole).decode(errors="replace")
                events.append(AttemptTranscript(name=path.name, from_=after, until=until, text=text, left_out=left_out))
                after = file.seek(until)
    except FileNotFoundError:
        pass  # the program has not begun it
    return events


def _rest_of_line(file: BinaryIO, size: int) -> int:
    """The bytes of a line of which this many were read; 0 when it has no end yet."""
    while piece := file.readline(PIECE_BYTES):
        size += len(piece)
        if piece.endswith(b"\n"):
            return size
    return 0
