"""maos as the benchmarks use it: the public API and nothing else."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

from benchmarks.measure import Figures, Missing, Subject
from benchmarks.workload import Message, Note

Agents = Any
"""`m.state`; maos is imported inside functions, so that the peers can be measured without it."""

NAME = "maos"
NAME_POSTGRES = "maos on PostgreSQL"
AGENT = "reviewer"


def absent() -> str:
    """Why maos cannot be measured here; empty when it can."""
    try:
        import maos

        return "" if hasattr(maos, "open") else "maos not importable: it has no open()"
    except ImportError as error:
        return f"maos not importable: {error}"


def subject(run: Callable[[], Awaitable[Figures]], name: str = NAME) -> Subject | Missing:
    """maos as one of the systems of a run, or the reason why it is not there."""
    why = absent()
    return Missing(name, why) if why else Subject(name, run)


def in_directory(directory: Path) -> str:
    """Where the store of a directory is."""
    return str(directory / "maos.db")


@asynccontextmanager
async def journal(where: str) -> AsyncIterator[Callable[[str], Callable[[Note], Awaitable[None]]]]:
    """Writers of a journal: one stream each, every append checked against the version before it."""
    import maos

    async with maos.open(where, types=[maos.EventType("note")]) as m:

        def writer(stream: str) -> Callable[[Note], Awaitable[None]]:
            version: int | None = None

            async def append(note: Note) -> None:
                nonlocal version
                if version is None:
                    version = await m.journal.version(stream)
                done = await m.journal.append(stream, maos.Event("note", note.data), expected=version)
                version = done.version

            return append

        yield writer


def journal_in(
    directory: Path,
) -> AbstractAsyncContextManager[Callable[[str], Callable[[Note], Awaitable[None]]]]:
    """`journal` of the SQLite store of a directory."""
    return journal(in_directory(directory))


@asynccontextmanager
async def agents(where: str) -> AsyncIterator[Agents]:
    """The agent states of a store."""
    import maos

    async with maos.open(where) as m:
        yield m.state


async def grow(agents: Agents, version: int, messages: list[Message]) -> int:
    """One durable update per message, each checked against the version before it."""
    import maos

    for step, message in enumerate(messages, 1):
        change = {"status": "busy", "step": step, "messages": maos.Extend([message])}
        version = (await agents.update(AGENT, change, expected=version)).version
    return version
