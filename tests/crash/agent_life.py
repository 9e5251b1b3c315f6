"""The life of an agent that crash tests kill: `python -m tests.crash.agent_life PLACE`.

Each step adds one version, and is reported the moment it is acknowledged. Folds are small, so most steps save some.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import maos
from maos.app import Maos
from maos.state import folds
from maos.state.agents import AgentStates
from maos_testing.crash import ack
from tests.crash.stores import Place, place_from


def lines(first: int, count: int) -> list[dict[str, Any]]:
    return [{"n": number, "text": f"line {number}"} for number in range(first, first + count)]


STEPS: list[Callable[[AgentStates], Awaitable[object]]] = [
    lambda agents: agents.create("a", {"log": lines(0, 6), "n": 0}, key="create"),
    lambda agents: agents.update("a", {"log": maos.Extend(lines(6, 3))}, key="extend"),
    lambda agents: agents.snapshot("a", name="full"),
    lambda agents: agents.update("a", {"/log/2": "changed", "n": 2}, critical=True),
    lambda agents: agents.snapshot("a", kind="incremental", name="increment"),
    lambda agents: agents.rollback("a", 2),
    lambda agents: agents.compact("a", strategy="merge", keep_last=1),
    lambda agents: agents.restore("a", "increment"),
    lambda agents: agents.compact("a", strategy="snapshot", keep_last=1),
    lambda agents: agents.update("a", {"log": maos.Extend(lines(20, 4)), "n": maos.DELETE}),
]


def small_folds() -> None:
    folds.FOLD_EVERY = folds.FOLD_COSTLY_EVERY = 3
    folds.LONG_LIST, folds.SEGMENT_ITEMS_MAX = 4, 4


@asynccontextmanager
async def opened(place: Place) -> AsyncIterator[Maos]:
    """The journal of a place."""
    target = place.url or str(place.path)
    async with maos.open(target, schema=place.schema_name, mark_path=place.mark) as m:
        yield m


async def live(m: Maos, after: int = 0) -> None:
    """Take all steps after so many."""
    for number, step in enumerate(STEPS[after:], after + 1):
        await step(m.state)
        ack([number, (await m.state.get("a")).checksum])


async def main() -> None:
    async with opened(place_from(sys.argv[1])) as m:
        await live(m)


if __name__ == "__main__":
    small_folds()
    asyncio.run(main())
