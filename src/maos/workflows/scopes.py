"""Where in a workflow the code that runs now is: each branch counts its own calls, in whatever order they run."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from maos.errors import InvalidInput

if TYPE_CHECKING:
    from maos.workflows.running import WorkflowExecution

_scope: ContextVar[Scope | None] = ContextVar("maos_scope", default=None)
_key: ContextVar[str] = ContextVar("maos_step_key", default="")


class Scope:
    """One branch of a workflow."""

    __slots__ = ("_strays", "count", "flow", "prefix", "task")

    def __init__(self, flow: WorkflowExecution, prefix: str, task: asyncio.Task[Any] | None) -> None:
        self.flow = flow
        self.prefix = prefix
        self.count = 0
        self.task = task
        self._strays: dict[int, int] = {}

    def next_place(self) -> str:
        """The place of the next call."""
        self.count += 1
        return f"{self.prefix}{self.count}"

    def peek_place(self) -> str:
        """The same, without taking it."""
        return f"{self.prefix}{self.count + 1}"

    def stray(self, task: asyncio.Task[Any] | None) -> Scope:
        """A branch for a task that the author started himself: numbered in the order in which they first call."""
        number = self._strays[self.count] = self._strays.get(self.count, 0) + 1
        if task is not None:
            self.flow.strays.add(task)
            task.add_done_callback(self.flow.strays.discard)
        return Scope(self.flow, f"{self.prefix}{self.count}~{number}.", task)


def here_or_none() -> Scope | None:
    """The branch that runs now; None outside of workflows and inside of steps."""
    scope = _scope.get()
    if scope is None:
        return None
    task = asyncio.current_task()
    if task is not scope.task:
        scope = scope.stray(task)
        _scope.set(scope)
    return scope


def here(what: str) -> Scope:
    """The branch that runs now."""
    scope = here_or_none()
    if scope is None:
        raise InvalidInput(f"{what} works in a workflow only", hint="start it with `m.workflows.run(…)`")
    return scope


def enter(scope: Scope | None) -> Any:
    """Be in a branch, or in none, until `leave`."""
    return _scope.set(scope)


def leave(token: Any) -> None:
    """Be where one was before."""
    _scope.reset(token)


def enter_step(key: str) -> Any:
    """Remember the key of the step that runs."""
    return _key.set(key)


def key() -> str:
    """In a step: a text that is the same for every try of this call, also after a crash, for services that take one.

    Example::

        charged = await maos.step(lambda: print("under", maos.workflows.key()))()
    """
    found = _key.get()
    if not found:
        raise InvalidInput("key() works in a step of a workflow only")
    return found


def leave_step(token: Any) -> None:
    """Forget the key again."""
    _key.reset(token)
