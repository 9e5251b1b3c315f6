"""One execution of a workflow run: calls with a recorded outcome get it, others are made and recorded.

Before a step begins, what ended before is on disk, and so is that the step begins. The end of a step and the beginning
of the next are one commit; if the function does something else in between, the end is committed at once.

Every call that is awaited gives other tasks a turn, also when its outcome is known already: so tasks that an author
starts make their first calls in the same order, whether the workflow runs for the first time or again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from maos.bus.mailbox import Inbox
from maos.clock import Clock
from maos.engine.recorder import Recorder
from maos.errors import InvalidInput
from maos.journal.journal import Journal, Record
from maos.model.workflow import CANCELLED, COMPLETED, FAILED, PAUSED, VALUE, WorkflowRun
from maos.workflows import values
from maos.workflows.children import Children, Service
from maos.workflows.control import Control
from maos.workflows.definition import StepDefinition, Workflow, executor
from maos.workflows.errors import WorkflowChanged
from maos.workflows.handle import Handle
from maos.workflows.mail import WorkflowInbox
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
        self.mail = WorkflowInbox(self.record, self.control)
        self.steps = Steps(self.control, self.record, self.mail, clock, threads)
        self.waits = Waits(self.control, self.record, self.mail, clock)
        self.children = Children(
            self.control, self.record, clock, service, attempts, on_change=on_change, even_paused=even_paused
        )
        self.task: asyncio.Task[WorkflowRun] | None = None
        """The task of this process that runs it."""
        self._strays: set[asyncio.Task[Any]] = set()
        """Tasks that the function started by itself and that have made a call."""

    @property
    def flow(self) -> WorkflowRun:
        """What is recorded of it."""
        return self.recorder.fold

    @property
    def handle(self) -> Handle[Any]:
        """What a program holds of it."""
        return Handle(self.flow, self.definition, self.task, self.control.leave)

    async def run(self, inbox: Inbox) -> WorkflowRun:
        """Run the function until it has ended, is paused, or this task is cancelled, which detaches from the run."""
        self.record.open(on_trouble=self.control.abort)
        main = asyncio.create_task(self._call_function())
        self.control.begin(main)
        keeper = asyncio.create_task(self.recorder.keep_lease())
        listener = asyncio.create_task(inbox.deliver(self.receive))
        has_ended = False
        try:
            await asyncio.wait([main, keeper, listener], return_when=asyncio.FIRST_COMPLETED)
            if self.record.trouble is not None:
                raise self.record.trouble
            if not main.done():
                (keeper if keeper.done() else listener).result()
            await self.control.idle()  # of tasks that the function has started and left alone
            await self.children.all_ended()
            self.control.is_closing = True
            self._conclude(main)
            await self.record.flush()
            has_ended = not self.flow.is_open
            return self.flow
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
        args, kwargs = values.given(self.definition.function, self.flow.arguments, self.flow.name)
        return await self.definition.function(*args, **kwargs)

    def _conclude(self, main: asyncio.Task[Any]) -> None:
        """Record how the run ends, or why it stops."""
        record, control = self.record, self.control
        error = None if main.cancelled() else main.exception()
        unmade = sorted(step_id for step_id in record.unseen if "~" not in step_id)
        if record.broken is not None:
            record.note_changed(record.broken)
        elif control.leaving == PAUSED and (control.is_told or main.cancelled()):
            record.note_paused(control.why, control.inbox_version)
        elif control.leaving == CANCELLED:
            record.note_ended(CANCELLED, why=control.why, inbox_version=control.inbox_version)
        elif main.cancelled():
            record.note_ended(FAILED, error={"type": "CancelledError", "message": "it cancelled itself"})
        elif isinstance(error, WorkflowChanged):
            record.note_changed(error)
        elif error is not None:
            record.note_ended(FAILED, error=values.told(error))
        elif unmade:
            record.note_changed(record.changed(f"it ended without the calls {', '.join(unmade[:5])} that it had made"))
        else:
            try:
                result = values.plain(main.result(), f"what the workflow {self.flow.name} returns")
            except InvalidInput as unfit:
                record.note_ended(FAILED, error=values.told(unfit))
            else:
                record.note_ended(COMPLETED, result=result)

    def receive(self, record: Record) -> None:
        """Handle a command from the run's inbox."""
        self.mail.deliver(record)

    async def checkpoint(self, step_id: str, name: str) -> None:
        """Have everything so far on disk, under a name."""
        if await self.control.recorded(step_id, VALUE, "checkpoint") is None:
            self.record.note("step_completed", step_id=step_id, kind=VALUE, name="checkpoint")
            await self.record.checkpoint("manual", name)

    def add_stray(self, task: asyncio.Task[Any]) -> None:
        """Cancel a task that the function started by itself when the execution ends."""
        self._strays.add(task)
        task.add_done_callback(self._strays.discard)


class Scope:
    """One branch of an execution: it counts its own calls, in whatever order branches run."""

    __slots__ = ("_strays", "_task", "count", "execution", "prefix")

    def __init__(self, execution: Execution, prefix: str, task: asyncio.Task[Any] | None) -> None:
        self.execution = execution
        self.prefix = prefix
        self.count = 0
        self._task = task
        self._strays: dict[int, int] = {}

    def next_place(self) -> str:
        """Take the place of the next call."""
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
        """A branch for a task that the author started: numbered in the order in which they first call."""
        number = self._strays[self.count] = self._strays.get(self.count, 0) + 1
        if task is not None:
            self.execution.add_stray(task)
        return Scope(self.execution, f"{self.prefix}{self.count}~{number}.", task)

    async def run_step(self, step: StepDefinition[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return the outcome of a step: the recorded one, or that of calling it now."""
        scope = self.current()
        return await scope.execution.steps.run(scope.next_place(), step, args, kwargs)


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
