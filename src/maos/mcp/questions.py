"""Questions to a person: the same question has the same id, and an answer counts wherever it was given."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable

from maos.journal.codec import Event
from maos.mcp.session import Session
from maos.model import run as runs
from maos.model.attempt import inbox
from maos.model.message import acks
from maos.model.run import Run

PAUSE_S = 0.2
NO_ENGINE_S = 2.0
"""How long an answer may lie in the run's inbox before it counts by itself: no engine is there to take it in."""

LATER = (
    "No answer yet. The question is recorded as {id}, and you will be told the answer as a message. "
    "Go on with what does not depend on it; if there is nothing, stop here now."
)


def id_of(question: str) -> str:
    """A name for a question that does not depend on capitals, spaces and the marks around it."""
    words = "".join(each if each.isalnum() else " " for each in question.casefold()).split()
    plain = " ".join(words) or question.strip()
    return f"q-{hashlib.sha256(plain.encode()).hexdigest()[:12]}"


async def answer(
    session: Session, run: Run, id: str, still_there: Callable[[str], None], *, wait_s: float
) -> str | None:
    """The answer once there is one; None after `wait_s`."""
    loop = asyncio.get_running_loop()
    until_s = loop.time() + wait_s
    reading = _Reading(session, run, id)
    while True:
        head = await session.journal.head()
        found = await reading.look(loop.time())
        if found is not None:
            return found
        left_s = until_s - loop.time()
        if left_s <= 0:
            return None
        still_there(f"waiting for a person to answer {id}")
        await asyncio.sleep(min(PAUSE_S, left_s))
        pause_s = min(NO_ENGINE_S, max(0.0, until_s - loop.time()))
        await session.journal.store.wait(after=head, timeout_s=pause_s)


async def hand_out(session: Session, id: str) -> list[int]:
    """Note that the agent gets an answer here, so that it is not told the same as a message; the message's place."""
    waiting = [each async for each in session.bus.waiting(session.agent) if each.message.metadata.get("question") == id]
    versions = [each.version for each in waiting]
    if versions:
        await session.journal.append(acks(session.agent), Event("message_delivered", {"versions": versions}))
    return versions


class _Reading:
    """The answer to one question, read on from where the run was."""

    def __init__(self, session: Session, run: Run, id: str) -> None:
        self._journal = session.journal
        self._run = run
        self._id = id
        self._after = run.version
        self._inbox_after = run.inbox_cursor
        self._given: str | None = None
        self._given_s = 0.0

    async def look(self, now_s: float) -> str | None:
        """The answer, if it counts by now."""
        known = self._run.questions.get(self._id)
        if known is not None and known.answer is not None:
            return _told(known.answer, known.answered_by)
        async for record in self._journal.read(runs.stream(self._run.id), after=self._after):
            self._after = record.version
            if record.type == "question_answered" and record.data["id"] == self._id:
                return _told(record.data["answer"], record.data.get("by", ""))
        async for record in self._journal.read(inbox(self._run.id), after=self._inbox_after):
            self._inbox_after = record.version
            is_first = self._given is None  # the first one counts, here as for the engine
            if is_first and record.type == "question_answered" and record.data["id"] == self._id:
                self._given, self._given_s = _told(record.data["answer"], record.data.get("by", "")), now_s
        return self._given if self._given is not None and now_s - self._given_s >= NO_ENGINE_S else None


def _told(answer: str, by: str) -> str:
    return f"Answer ({by or 'person'}): {answer}"
