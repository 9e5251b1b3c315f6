"""What a shell offers when Tab is pressed: the runs, agents, tasks and questions of the database.

Nothing is printed here and nothing is created: a shell that completes wants names, quickly, or silence.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

import click
from click.shell_completion import CompletionItem

from maos.cli.database import DatabaseTarget
from maos.errors import MaosError

if TYPE_CHECKING:
    from maos.app import Maos
    from maos.model.question import Open

SHOWN_MAX = 200
WAIT_S_MAX = 2.0
"""Tab does not wait for a server that is away."""
T = TypeVar("T")


def runs(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Runs, by their ids."""
    return _names(ctx, lambda m: m.runs.ids(incomplete))


def agents(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Agents that run or ran; for `maos state`, those that have a state."""
    if ctx.parent is not None and ctx.parent.info_name == "state":
        return _names(ctx, lambda m: m.state.names(incomplete))
    return _names(ctx, lambda m: m.agents.names(incomplete))


def tasks(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Agents of runs, also those that have not begun."""

    async def work(m: Maos) -> list[str]:
        begun = [each async for each in m.agents.names(incomplete)]
        planned = [run.agent(name) async for run in m.runs.all() if run.is_open for name in run.tasks]
        return sorted({*begun, *(each for each in planned if each.startswith(incomplete))})

    return [CompletionItem(each) for each in (_read(ctx, work) or ())[:SHOWN_MAX]]


def questions(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """What waits for an answer, with the question."""

    async def work(m: Maos) -> list[Open]:
        return await m.questions.open()

    found = _read(ctx, work) or []
    return [CompletionItem(each.ref, help=each.text[:60]) for each in found if each.ref.startswith(incomplete)]


def _names(ctx: click.Context, names: Callable[[Maos], AsyncIterator[str]]) -> list[CompletionItem]:
    async def work(m: Maos) -> list[str]:
        found: list[str] = []
        async for each in names(m):
            found.append(each)
            if len(found) >= SHOWN_MAX:
                break
        return sorted(found)

    return [CompletionItem(each) for each in _read(ctx, work) or ()]


def _read(ctx: click.Context, work: Callable[[Maos], Awaitable[T]]) -> T | None:
    """Something from the database that the command line names; None when it cannot be had."""
    import asyncio

    from maos.app import open as open_

    async def opened() -> T:
        async with asyncio.timeout(WAIT_S_MAX), open_(target.name, create=False) as m:
            return await work(m)

    target = DatabaseTarget(ctx.find_root().params.get("db"))
    try:
        target.check()
        return asyncio.run(opened())
    except (MaosError, OSError, TimeoutError):
        return None
