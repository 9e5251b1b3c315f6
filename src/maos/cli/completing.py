"""What a shell offers when Tab is pressed: the runs, agents, tasks and questions of the database.

Nothing is ever said here and nothing is created: a shell that completes wants names, quickly, or silence.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from maos.app import Maos

SHOWN_MAX = 200
WAIT_S_MAX = 2.0
"""Whoever presses Tab does not wait for a server that is away."""
T = TypeVar("T")


def runs(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Runs, by their ids."""
    from maos.model.run import stream

    return _names(ctx, incomplete, stream(""), lambda name: name)


def agents(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Agents that run or ran; for `maos state`, those that have a state."""
    if ctx.parent is not None and ctx.parent.info_name == "state":
        return _names(ctx, incomplete, "agent/", lambda name: name)
    return _names(ctx, incomplete, "attempt/", lambda name: name.rpartition(".")[0])


def tasks(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Agents of runs, also those that have not begun."""
    from click.shell_completion import CompletionItem

    async def work(m: Maos) -> list[str]:
        return [run.agent(name) async for run in m.runs.all() if run.is_open for name in run.tasks]

    found = sorted({*(_read(ctx, work) or ()), *(each.value for each in agents(ctx, _param, incomplete))})
    return [CompletionItem(each) for each in found if each.startswith(incomplete)][:SHOWN_MAX]


def questions(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """What waits for an answer, with the question."""
    from click.shell_completion import CompletionItem

    from maos.cli.questions import open_questions

    found = _read(ctx, open_questions) or []
    return [CompletionItem(each.ref, help=each.text[:60]) for each in found if each.ref.startswith(incomplete)]


def _names(ctx: click.Context, incomplete: str, prefix: str, name: Callable[[str], str]) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    async def work(m: Maos) -> list[str]:
        found: dict[str, None] = {}
        async for each in m.journal.streams(prefix + incomplete):
            found[name(each.removeprefix(prefix))] = None
            if len(found) >= SHOWN_MAX:
                break
        return sorted(found)

    return [CompletionItem(each) for each in _read(ctx, work) or []]


def _read(ctx: click.Context, work: Callable[[Maos], Awaitable[T]]) -> T | None:
    """Something from the database that the command line names; None when it cannot be had."""
    import asyncio

    from maos.app import open as open_
    from maos.cli.database import DatabaseTarget
    from maos.errors import MaosError

    async def opened() -> T:
        async with asyncio.timeout(WAIT_S_MAX), open_(target.name, create=False) as m:
            return await work(m)

    target = DatabaseTarget(ctx.find_root().params.get("db"))
    try:
        target.check()
        return asyncio.run(opened())
    except (MaosError, OSError, TimeoutError):
        return None
