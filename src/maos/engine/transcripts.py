"""Our own durable copy of an agent program's transcript, so that another machine can resume the conversation.

The copy is made of what the file has grown by since the last time, whole lines only, without secrets.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from maos.agents.contract import Dialect, LaunchOrder
from maos.files import private_folder, replace_file
from maos.journal.journal import Journal
from maos.model.attempt import Attempt, attempt_id, stream
from maos.model.events.attempt import AttemptTranscript
from maos.redact import Redactor

PIECE_BYTES = 4 << 20


async def news(dialect: Dialect, order: LaunchOrder, attempt: Attempt) -> list[AttemptTranscript]:
    """Events with what the transcript has grown by."""
    path = dialect.transcript(order, attempt.session)
    if path is None:
        return []
    after = attempt.transcript_bytes if path.name == attempt.transcript_name else 0
    return await asyncio.to_thread(read, path, after)


def is_kept(dialect: Dialect, order: LaunchOrder, attempt: Attempt) -> bool:
    """Whether the program would find the session, with what `put_back` can put back."""
    there = dialect.transcript(order, attempt.session) is not None
    return dialect.capabilities.resume and (there or bool(attempt.transcript_name))


async def put_back(journal: Journal, dialect: Dialect, order: LaunchOrder, attempt: Attempt) -> bool:
    """Make sure that the program will find the session; whether it will.

    The program's own file is preferred, for it may have a few lines more than we saw.
    """
    if not is_kept(dialect, order, attempt):
        return False
    if dialect.transcript(order, attempt.session) is not None:
        return True
    path = dialect.transcript_home(order, attempt.session, attempt.transcript_name)
    private_folder(path.parent)
    await asyncio.to_thread(replace_file, path, (await text_of(journal, attempt)).encode())
    return True


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


def read(path: Path, after: int = 0) -> list[AttemptTranscript]:
    """Events with what a transcript holds from a place on: whole lines, without secrets."""
    redactor = Redactor({})
    events = []
    try:
        with path.open("rb") as file:
            file.seek(after)
            while piece := file.read(PIECE_BYTES):
                if not piece.endswith(b"\n"):
                    rest = file.readline()
                    piece += rest
                whole = piece[: piece.rfind(b"\n") + 1]  # a line that is still being written waits for the next time
                if not whole:
                    break
                until = after + len(whole)
                text = redactor.lines(whole).decode(errors="replace")
                events.append(AttemptTranscript(name=path.name, from_=after, until=until, text=text))
                after = until
    except FileNotFoundError:
        pass  # the program has not begun it
    return events
