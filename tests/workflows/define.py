"""Definitions as tests need them: known to nobody else, so that one can stand for another after a change."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from maos.workflows.definition import Workflow
from tests.holder.agents import eventually

__all__ = ["Outside", "eventually", "workflow"]


def workflow(name: str, version: str = "") -> Callable[[Callable[..., Awaitable[Any]]], Workflow[..., Any]]:
    """A workflow that is in no register."""
    return lambda function: Workflow(function, name=name, version=version)


class Outside:
    """Something with effects that can be counted."""

    def __init__(self) -> None:
        self.seen: list[Any] = []
        self.hold = asyncio.Event()
        """What `slow` waits for."""

    def did(self, what: Any) -> Any:
        self.seen.append(what)
        return what

    async def slow(self, what: Any) -> Any:
        self.seen.append(what)
        await self.hold.wait()
        return what
