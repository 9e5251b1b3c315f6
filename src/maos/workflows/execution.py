"""One execution of a workflow run: steps with a recorded outcome return it, others are executed and recorded.

Before a step begins, what ended before is on disk, and so is that the step begins. The end of a step and the beginning
of the next are one commit; if the function does something else in between, the end is committed at once.

Every step that is awaited gives other tasks a turn, also when its outcome is known already: so tasks that an author
starts begin their first steps in the same order, whether the workflow runs for the first time or again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from maos.bus.mailbox import Inbox
from maos.clock import Clock
from maos.engine.recorder import Recorder
from maos.errors import InvalidInput
from maos.journal.journal import Journal
from maos.model.events.workflow import WorkflowCodeChanged, WorkflowEnded, WorkflowEvent, WorkflowPaused
from maos.model.status import WorkflowStatus
from maos.model.workflow import CANCELLED, PAUSED, VALUE, WorkflowRun
from maos.workflows import values
from maos.workflows.children import Children, Service
from maos.workflows.control import Control
from maos.workflows.definition import StepDefinition, Workflow, executor
from maos.workflows.errors import WorkflowChanged
from maos.workflows.handle import Handle
from maos.workflows.inbox import WorkflowInbox
from maos.workflows.record import RunRecord
from maos.workflows.steps import Steps, Threads
from maos.workflows.waits import Waits

if TYPE_CHECKING:
    from maos.engine.attempts import Attempts


class Execution:
    """Runs the function of one workflow run in this process."""

    def __init__(
        self,
        recorder: Recorder[WorkflowRun],
        definition: Workflow[..., Any],
        journal: Journal,
        clock: Clock,
        *,
        service: Service,
        attempts: Callable[[], Attempts],
        threads: Threads,
        on_change: str = "",
        code_before: str = "",
        even_paused: bool = True,
    ) -> None:
        self.recorder = recorder
        self.definition = definition
        self.clock = clock
        self.record = RunRecord(recorder, journal, clock, code_before)
        self.control = Control(self.record)
        self.inbox = WorkflowInbox(self.record, self.control)
        self.steps = Steps(self.control, self.record, self.inbox, clock, threads)
        self.waits = Waits(self.control, self.record, self.inbox, clock)
        self.children = Children(
            self.control, self.record, clock, service, attempts, on_change=on_change, even_paused=even_paused
        )
        self.task: asyncio.Task[WorkflowRun] | None = None
        """The task of this process that executes it."""
        self._strays: set[asyncio.Task[Any]] = set()
        """Tasks that the function started by itself and that have executed a step."""

    @property
    def run(self) -> WorkflowRun:
        """What is recorded of it."""
        return self.recorder.fold

    @property
    def handle(self) -> Handle[Any]:
        """What a program holds of it."""
        return Handle(self.run, self.definition, self.task, self.control.stop)

    async def execute(self, inbox: Inbox) -> WorkflowRun:
        """Run the function until it has ended, is paused, or this task is cancelled, which detaches from the run."""
        self.record.open(on_trouble=self.control.abort)
        main = asyncio.create_task(self._call_function())
        self.control.begin(main)
        keeper = asyncio.create_task(self.recorder.keep_lease())
        listener = asyncio.create_task(inbox.deliver(self.inbox.receive))
        has_ended = False
        try:
            await asyncio.wait([main, keeper, listener], return_when=asyncio.FIRST_COMPLETED)
            if self.record.trouble is not None:
                raise self.record.trouble
            if not main.done():
                (keeper if keeper.done() else listener).result()
            await self.control.idle()  # of tasks that the function has started and does not await
            await self.children.all_ended()
            self.control.is_closing = True
            self.record.add(self._conclusion(main))
            await self.record.flush()
            has_ended = not self.run.is_open
            return self.run
        finally:
            self.control.is_closing = True
            tasks = (main, keeper, listener, *self._strays)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self.record.close()
            if has_ended:  # and that is on disk
                self.children.end_left_over()
            await self.children.all_ended()

    async def _call_function(self) -> Any:
        executor.set(Scope(self, "", asyncio.current_task()))
        args, kwargs = values.bind(self.definition.function, self.run.arguments, self.run.name)
        return await self.definition.function(*args, **kwargs)

    def _conclusion(self, main: asyncio.Task[Any]) -> WorkflowEvent:
        """How the run ends, or why it stops."""
        record, control, at_us = self.record, self.control, self.record.now_us()
        error = None if main.cancelled() else main.exception()
        missing = sorted(step_id for step_id in record.unseen if "~" not in step_id)
        if record.broken is not None:
            error = record.broken
        elif control.stop_as == PAUSED and (control.has_cancelled or main.cancelled()):
            return WorkflowPaused(why=control.why, inbox_version=control.inbox_version, at_us=at_us)
        elif control.stop_as == CANCELLED:
            status, version = WorkflowStatus.CANCELLED, control.inbox_version
            return WorkflowEnded(status=status, why=control.why, inbox_version=version, at_us=at_us)
        elif main.cancelled():
            return _failed({"type": "CancelledError", "message": "it cancelled itself"}, at_us)
        elif error is None and missing:
            error = record.changed(f"it ended without the steps {', '.join(missing[:5])} that are recorded")
        if isinstance(error, WorkflowChanged):
            return WorkflowCodeChanged(why=error.what, code=record.code_before, at_us=at_us)
        if error is None:
            try:
                result = values.plain(main.result(), f"what the workflow {self.run.name} returns")
                return WorkflowEnded(status=WorkflowStatus.COMPLETED, result=result, at_us=at_us)
            except InvalidInput as unfit:
                error = unfit
        return _failed(values.error_data(error), at_us)

    async def checkpoint(self, step_id: str, name: str) -> None:
        """Have everything so far on disk, under a name."""
        if await self.control.recorded(step_id, VALUE, "checkpoint") is None:
            self.record.add_completed(step_id, kind=VALUE, name="checkpoint")
            await self.record.checkpoint("manual", name)

    def add_stray(self, task: asyncio.Task[Any]) -> None:
        """Cancel a task that the function started by itself when the execution ends."""
        self._strays.add(task)
        task.add_done_callback(self._strays.discard)


def _failed(error: dict[str, Any], at_us: int) -> WorkflowEnded:
    return WorkflowEnded(status=WorkflowStatus.FAILED, error=error, at_us=at_us)


class Scope:
    """One branch of an execution: it counts its own steps, in whatever order branches run."""

    __slots__ = ("_strays", "_task", "count", "execution", "prefix")

    def __init__(self, execution: Execution, prefix: str, task: asyncio.Task[Any] | None) -> None:
        self.execution = execution
        self.prefix = prefix
        self.count = 0
        self._task = task
        self._strays: dict[int, int] = {}

    def next_id(self) -> str:
        """Return the id of the next step."""
        self.count += 1
        return f"{self.prefix}{self.count}"

    def current(self) -> Scope:
        """This branch; or a new one, if the code runs in a task that the author started in it."""
        task = asyncio.current_task()
        if task is self._task:
            return self
        stray = self._stray(task)
        executor.set(stray)
        return stray

    def _stray(self, task: asyncio.Task[Any] | None) -> Scope:
        """A branch for a task that the author started: numbered in the order of their first steps."""
        number = self._strays[self.count] = self._strays.get(self.count, 0) + 1
        if task is not None:
            self.execution.add_stray(task)
        return Scope(self.execution, f"{self.prefix}{self.count}~{number}.", task)

    async def run_step(self, step: StepDefinition[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return the outcome of a step: the recorded one, or that of executing it now."""
        scope = self.current()
        return await scope.execution.steps.run(scope.next_id(), step, args, kwargs)


def current_scope() -> Scope | None:
    """The branch that runs now; None outside of workflows and inside of steps."""
    found = executor.get()
    return found.current() if isinstance(found, Scope) else None


def need_scope(what: str) -> Scope:
    """The branch that runs now; InvalidInput when there is none."""
    scope = current_scope()
    if scope is None:
        raise InvalidInput(f"{what} works in a workflow only", hint="start it with `m.workflows.run(…)`")
    return scope
