"""Messages through the door: sent over the bus under the agent's own name, and read as quoted data."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from maos.errors import KeyReused, NotFound
from maos.mcp.calls import Call
from maos.mcp.session import Session
from maos.model import attempt as attempts
from maos.model.message import spoken
from maos.model.run import agent_name

MESSAGES_MAX = 20
CHARS_MAX = 64_000
"""How much is told at once; the rest the next time."""
PAUSE_S = 0.2
"""A journal in which much is going on wakes us often."""


def key(session: Session, call: Call) -> str:
    """What makes a message of a call go out once."""
    return f"{session.agent}@{call.number}"


async def recipient(session: Session, to: str) -> str:
    """The agent that is meant: of the same run by its name or its task's, else any that ever ran."""
    if session.identity.run:
        run = await session.run()
        names = {agent_name(run.id, task): task for task in run.tasks}
        if to in names:
            return to
        if to in run.tasks:
            return agent_name(run.id, to)
        raise NotFound(f"there is no agent {to!r:.100} in your run", hint=f"there are: {', '.join(run.tasks)[:500]}")
    attempts.check_agent(to)
    if not await session.journal.version(attempts.stream(attempts.attempt_id(to, 1))):
        raise NotFound(f"there is no agent {to!r}", hint="check its name")
    return to


async def send(session: Session, call: Call, to: str, topic: str, text: str, type: str) -> str:
    """Send what a recorded call is to send; done twice, it goes out once."""
    bus, run, once = session.bus, session.identity.run, key(session, call)
    try:
        if to:
            said = await bus.send(session.agent, to, text, type=type, run=run, key=once)
        elif topic:
            said = await bus.publish(session.agent, topic, text, type=type, run=run, key=once)
        else:
            said = await bus.broadcast(session.agent, run, text, type=type, key=once)
    except KeyReused:  # it went out before; only those it would go to now are others
        return "sent"
    return f"sent as {said.id} to {', '.join(said.to) or 'nobody: nobody else is there'}"


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
        text = spoken(waiting.message)
        chars += len(text)
        if found and (len(found) == MESSAGES_MAX or chars > CHARS_MAX):
            break
        found.append((waiting.version, text))
    return found
