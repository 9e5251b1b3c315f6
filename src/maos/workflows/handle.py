"""What a program holds of a workflow run that it has started or resumed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

from maos.model.workflow import CHANGED, COMPLETED, PAUSED, WorkflowRun
from maos.workflows import values
from maos.workflows.definition import Workflow
from maos.workflows.errors import WorkflowChanged, WorkflowFailed

R = TypeVar("R")


class Handle(Generic[R]):
    """A workflow run that this process executes; or one that had ended, or stays paused, and has only its result."""

    def __init__(
        self,
        run: WorkflowRun,
        definition: Workflow[..., R],
        task: asyncio.Task[WorkflowRun] | None = None,
        stop: Callable[[str, str], None] = lambda status, why: None,
    ) -> None:
        self.run = run
        """What is recorded of it by now."""
        self._definition = definition
        self._task = task
        self._stop = stop

    @property
    def id(self) -> str:
        """Its id."""
        return self.run.id

    async def wait(self) -> WorkflowRun:
        """Return when it has ended or is paused."""
        return self.run if self._task is None else await asyncio.shield(self._task)

    async def result(self) -> R:
        """Return its result; raise WorkflowFailed when it fails, is cancelled or is paused."""
        return result_of(await self.wait(), self._definition)

    async def pause(self, why: str = "") -> WorkflowRun:
        """Let the steps that run end, and pause it; it can be resumed at any time."""
        self.stop(PAUSED, why)
        return await self.wait()

    def stop(self, status: str, why: str) -> None:
        """Have it paused, or ended as cancelled, once the steps that run have ended."""
        self._stop(status, why)


def result_of(run: WorkflowRun, definition: Workflow[..., R]) -> R:
    """Return the result of a workflow run that has ended; raise the error that it has ended with instead."""
    if run.status == COMPLETED:
        result: R = values.typed(run.result, definition.returns, f"what the workflow {run.name} returned")
        return result
    if run.status == CHANGED:
        raise WorkflowChanged(run.why, hint="fix the code, or resume it with the old version")
    why = f"{run.error.get('type')}: {run.error.get('message')}" if run.error else run.why or "it was detached"
    command = "resume" if run.status == PAUSED else "show"
    raise WorkflowFailed(f"the workflow {run.id} is {run.status}: {why}", hint=f"`maos workflow {command} {run.id}`")
