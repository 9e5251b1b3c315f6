"""Messages through the door: sent over the bus under the agent's own name, and read as quoted data."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable

from maos.errors import KeyReused, NotFound
from maos.journal.journal import Record
from maos.mcp.calls import RecordedCall
from maos.mcp.session import Session
from maos.mcp.tools import BY_NAME
from maos.model import attempt as attempts
from maos.model.message import PERSON, Message, render

MESSAGES_MAX = 20
CHARS_MAX = 64_000
"""How much is told at once; the rest the next time."""
WORK_EVENTS_MAX = 1_000
"""How far back it is looked for work between two messages."""
PAUSE_S = 0.2
"""A journal in which much is going on wakes us often."""


def key(session: Session, call: RecordedCall) -> str:
    """What makes a message of a call go out once."""
    return f"{session.agent}@{call.number}"


async def recipient(session: Session, to: str) -> str:
    """The agent that is meant: of the same run by its name or its task's, else any that ever ran."""
    if session.identity.run:
        run = await session.run()
        names = {run.agent(task): task for task in run.tasks}
        if to in names:
            return to
        if to in run.tasks:
            return run.agent(to)
        raise NotFound(f"there is no agent {to!r:.100} in your run", hint=f"there are: {', '.join(run.tasks)[:500]}")
    attempts.check_agent(to)
    if not await session.journal.version(attempts.stream(attempts.attempt_id(to, 1))):
        raise NotFound(f"there is no agent {to!r}", hint="check its name")
    return to


async def send(session: Session, call: RecordedCall, to: str, topic: str, text: str, type: str) -> str:
    """Send what a recorded call is to send; done twice, it goes out once."""
    bus, run, once = session.bus, session.identity.run, key(session, call)
    heard = await reacts_to(session)
    try:
        if to:
            said = await bus.send(session.agent, to, text, type=type, run=run, heard=heard, key=once)
        elif topic:
            said = await bus.publish(session.agent, topic, text, type=type, run=run, heard=heard, key=once)
        else:
            said = await bus.broadcast(session.agent, run, text, type=type, heard=heard, key=once)
    except KeyReused:  # it went out before; only those it would go to now are others
        return "sent"
    return f"sent as {said.id} to {', '.join(said.to) or 'nobody: nobody else is there'}"


async def reacts_to(session: Session) -> Message | None:
    """The message the agent has heard last, unless a person sent it, or the agent has worked since it was sent.

    Agents that do nothing but answer each other are stopped by the hop limit (A9); those that do something in between
    may talk as long as they like.
    """
    heard = await session.bus.last_heard(session.agent)
    if heard is None or heard.message.sender == PERSON:
        return None
    stream = attempts.stream(session.identity.attempt)
    end = await session.journal.version(stream)
    for record in await session.journal.page_back(stream, before=end + 1, limit=WORK_EVENTS_MAX):
        if record.position < heard.position:
            break
        if _shows_work(record):
            return None
    return heard.message


def _shows_work(record: Record) -> bool:
    """Whether a tool was used; those of the door itself are talk, except for asking a person."""
    used = [fact for fact in record.data.get("facts", ()) if fact["kind"] == "tool_use"]
    names = [re.split(r"__|\W", str(fact.get("name", "")))[-1] for fact in used]
    return any(name == "ask_person" or name not in BY_NAME for name in names)


async def read(session: Session, still_there: Callable[[str], None], *, wait_s: float) -> list[tuple[int, str]]:
    """What the agent was sent and has not heard, quoted; the first one is waited for."""
    loop = asyncio.get_running_loop()
    until_s = loop.time() + wait_s
    while True:
        head = await session.journal.head()
        found = await _unread(session)
        if found:
            return found
        left_s = until_s - loop.time()
        if left_s <= 0:
            return []
        still_there("waiting for a message")
        await asyncio.sleep(min(PAUSE_S, left_s))
        await session.journal.store.wait(after=head, timeout_s=min(5.0, max(0.0, until_s - loop.time())))


async def _unread(session: Session) -> list[tuple[int, str]]:
    found: list[tuple[int, str]] = []
    chars = 0
    now_us = session.clock.now_us()
    async for waiting in session.bus.waiting(session.agent):
        if waiting.message.is_expired(now_us):
            continue
        text = render(waiting.message)
        chars += len(text)
        if found and (len(found) == MESSAGES_MAX or chars > CHARS_MAX):
            break
        found.append((waiting.version, text))
    return found
