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
        flow: WorkflowRun,
        definition: Workflow[..., R],
        task: asyncio.Task[WorkflowRun] | None = None,
        leave: Callable[[str, str], None] = lambda leaving, why: None,
    ) -> None:
        self.flow = flow
        """What is recorded of it by now."""
        self._definition = definition
        self._task = task
        self._leave = leave

    @property
    def id(self) -> str:
        """Its id."""
        return self.flow.id

    async def wait(self) -> WorkflowRun:
        """Return when it has ended or is paused."""
        return self.flow if self._task is None else await asyncio.shield(self._task)

    async def result(self) -> R:
        """Return its result; raise WorkflowFailed when it fails, is cancelled or is paused."""
        return result_of(await self.wait(), self._definition)

    async def pause(self, why: str = "") -> WorkflowRun:
        """Let the steps that run end, and pause it; it can be resumed at any time."""
        self.leave(PAUSED, why)
        return await self.wait()

    def leave(self, leaving: str, why: str) -> None:
        """Have it paused, or ended as cancelled, once the steps that run have ended."""
        self._leave(leaving, why)


def result_of(flow: WorkflowRun, definition: Workflow[..., R]) -> R:
    """Return the result of a workflow run that has ended; raise what it has ended with instead."""
    if flow.status == COMPLETED:
        result: R = values.typed(flow.result, definition.returns, f"what the workflow {flow.name} returned")
        return result
    if flow.status == CHANGED:
        raise WorkflowChanged(flow.why, hint="put the code right, or finish with the old version, and resume it")
    said = f"{flow.error.get('type')}: {flow.error.get('message')}" if flow.error else flow.why or "it was let go of"
    command = "resume" if flow.status == PAUSED else "show"
    what = f"the workflow {flow.id} is {flow.status}: {said}"
    raise WorkflowFailed(what, hint=f"`maos workflow {command} {flow.id}`")
