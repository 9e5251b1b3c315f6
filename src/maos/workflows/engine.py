"""The engine of workflow runs: it claims them and executes each in a task of this process. Steps with a recorded
outcome return it, others are executed and recorded.

Before a step begins, what ended before is on disk, and so is that the step begins. The end of a step and the beginning
of the next are one commit; if the function does something else in between, the end is committed at once.

Every step that is awaited gives other tasks a turn, also when its outcome is known already: so tasks that an author
starts begin their first steps in the same order, whether the workflow runs for the first time or again.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from maos.bus.mailbox import Inbox, Mailbox
from maos.clock import Clock
from maos.engine import consent, log, ownership
from maos.engine.ownership import Held, claim
from maos.engine.recorder import Recorder
from maos.engine.streams import WORKFLOW_RUN, RunReader
from maos.errors import InvalidInput, LeaseLost
from maos.journal.journal import Journal
from maos.model.attempt import check_agent, check_run
from maos.model.events.workflow import (
    StepCompleted,
    WorkflowClaimed,
    WorkflowCodeChanged,
    WorkflowEnded,
    WorkflowPaused,
    WorkflowRemoved,
    WorkflowRetried,
    WorkflowStarted,
)
from maos.model.message import inbox
from maos.model.status import WorkflowStatus
from maos.model.workflow import AGENT, CANCELLED, CHANGED, PAUSED, WorkflowChanged, WorkflowRun, steps_to_retry, stream
from maos.store.contract import Lease
from maos.workflows import values
from maos.workflows.children import Children, Stop, names
from maos.workflows.control import Control
from maos.workflows.definition import Handle, StartRequest, StepDefinition, Workflow, executor, failed_step, find
from maos.workflows.record import CheckpointPolicy, RunRecord, find_run
from maos.workflows.steps import Steps

if TYPE_CHECKING:
    from maos.engine.attempts import Attempts


REFUSE, REPLAY = "refuse", "replay"
"""What is done about a run whose definition has changed: it is not resumed, or it is if it executes the same steps."""
INBOX_REST_S = 0.01
"""How long a command may lie in the inbox: looking after every commit would cost a quarter of what a step does."""


class WorkflowEngine:
    """Claims workflow runs and executes them in this process."""

    def __init__(
        self,
        journal: Journal,
        clock: Clock,
        *,
        mailbox: Mailbox,
        stop: Stop,
        attempts: Callable[[], Attempts],
        lease_s: float,
    ) -> None:
        self.journal = journal
        self.clock = clock
        self._mailbox = mailbox
        self.stop = stop
        self.attempts = attempts
        self._lease_s = lease_s
        self._executions: dict[str, Execution] = {}
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._unfit: dict[str, str] = {}
        """Runs that executed other steps than before when this process executed them last, and with which code."""
        self.threads: WeakValueDictionary[str, asyncio.Task[Any]] = WeakValueDictionary()
        """Those of plain functions that run as steps, by the keys of the steps."""

    def handle(self, id: str) -> Handle[Any] | None:
        """The handle of a run that this process executes."""
        execution = self._executions.get(id)
        return None if execution is None else execution.handle

    def turn(self, id: str) -> asyncio.Lock:
        """The lock under which this process claims a run: to the store, all its tasks are one owner of a lease."""
        return self._turns.setdefault(id, asyncio.Lock())

    def is_unfit(self, run: WorkflowRun, definition: Workflow[..., Any]) -> bool:
        """Whether a run would execute other steps than before once more."""
        return run.status == CHANGED and self._unfit.get(run.id) == definition.code

    async def start(self, request: StartRequest, *, on_change: str = REFUSE, even_paused: bool = True) -> Handle[Any]:
        """Start a run, or resume the one of that id; on disk when this returns."""
        CheckpointPolicy.of(request.options)
        workflow = request.workflow
        id = check_agent(request.id) if request.id else f"w-{secrets.token_hex(3)}"
        arguments = values.arguments(workflow.function, request.args, request.kwargs, workflow.name, self.journal.codec)
        async with self.turn(id):
            known: WorkflowRun | Lease | None = await WORKFLOW_RUN.load(self.journal, id)
            if known is None:
                if not request.parent:
                    check_run(id)
                known = await self._claim_new(id)
            if isinstance(known, Lease):
                return await self._begin(id, known, request, arguments)
            _check_same(known, request, arguments)
            if known.definition != workflow.version:  # a run is finished with the version it was begun with
                workflow = find(known.name, known.definition)
            return await self.resume(known, workflow, on_change, even_paused=even_paused)

    async def create(self, request: StartRequest) -> str:
        """Record a new run without executing it; any engine can resume it. Conflict when there is one of that id."""
        CheckpointPolicy.of(request.options)
        workflow = request.workflow
        id = check_run(check_agent(request.id)) if request.id else f"w-{secrets.token_hex(3)}"
        arguments = values.arguments(workflow.function, request.args, request.kwargs, workflow.name, self.journal.codec)
        async with self.turn(id):
            lease = await self._claim_new(id)
            if not isinstance(lease, Lease):
                raise InvalidInput(f"there is a workflow run {id!r} already", hint=f"`maos workflow resume {id}`")
            recorder = await self._record_start(id, lease, request, arguments)
            await recorder.release()
        return id

    async def _begin(self, id: str, lease: Lease, request: StartRequest, arguments: dict[str, Any]) -> Handle[Any]:
        recorder = await self._record_start(id, lease, request, arguments)
        return await self._execute(Execution(self, recorder, request.workflow))

    async def _record_start(
        self, id: str, lease: Lease, request: StartRequest, arguments: dict[str, Any]
    ) -> Recorder[WorkflowRun]:
        workflow = request.workflow
        async with self._released_on_error(lease):
            recorder = self._recorder(WorkflowRun(id=id), lease)
            started = WorkflowStarted(
                name=workflow.name,
                definition=workflow.version,
                code=workflow.code,
                arguments=arguments,
                options={**request.options, "where": workflow.where},
                parent=request.parent,
                owner=ownership.identity(lease),
                by=self.journal.by,
                at_us=self.clock.now_us(),
            )
            await recorder.append(started)
        return recorder

    async def resume(
        self, known: WorkflowRun, workflow: Workflow[..., Any], on_change: str, *, even_paused: bool = True
    ) -> Handle[Any]:
        """Claim a run and execute it, with its turn taken; of one that has ended, the handle has only the result."""
        running = self.handle(known.id)
        if running is not None:
            return running
        _check_definition(known, workflow, on_change)
        if not known.is_open or (known.status == PAUSED and not (even_paused or known.is_retry_due)):
            return Handle(known, workflow)
        if known.removed_us:
            raise InvalidInput(f"{known.id} was removed", hint="start another workflow run")
        _check_arguments(known, workflow)
        await consent.check(self.journal, known.id)
        lease = await self._claim(known.id, known)
        overruled = await self.journal.version(inbox(known.id)) if even_paused else 0
        async with self._released_on_error(lease):
            run = await find_run(self.journal, known.id)
            if not run.is_open:  # the process that executed it ended it meanwhile
                await self.journal.release(lease)
                return Handle(run, workflow)
            code_before = run.code
            recorder = self._recorder(run, lease)
            claimed = WorkflowClaimed(
                owner=ownership.identity(lease),
                code=workflow.code,
                overruled=overruled or None,
                by=self.journal.by,
                at_us=self.clock.now_us(),
            )
            await recorder.append(claimed)
        return await self._execute(
            Execution(self, recorder, workflow, on_change=on_change, code_before=code_before, even_paused=even_paused)
        )

    async def end(self, id: str, why: str) -> WorkflowRun | None:
        """End a run that no process executes, with its turn taken; its definition is not needed, and may be missing.

        None when it has ended before, or when another process executes it, which then receives the command.
        """
        try:
            async with self._owned(id) as recorder:
                if not recorder.fold.is_open:
                    return None
                ended = WorkflowEnded(
                    status=WorkflowStatus.CANCELLED,
                    why=why,
                    by=self.journal.by,
                    inbox_version=await self.journal.version(inbox(id)),
                    at_us=self.clock.now_us(),
                )
                await recorder.append(ended)
                return recorder.fold
        except Held:
            return None

    async def retry(self, id: str, choose: Callable[[WorkflowRun], list[str]], *skipped: StepCompleted) -> WorkflowRun:
        """Record that a run is executed again, with its turn taken; `choose` says which of its steps begin again, and
        `skipped` are the outcomes of those that do not."""
        async with self._owned(id) as recorder:
            run = recorder.fold
            if run.done and not run.steps:
                hint = "start another workflow run"
                raise InvalidInput(f"the steps of {id} were removed by a cleanup, so it cannot be retried", hint=hint)
            steps = choose(run)
            overruled, at_us = await self.journal.version(inbox(id)), self.clock.now_us()
            retried = WorkflowRetried(steps=steps, overruled=overruled, by=self.journal.by, at_us=at_us)
            await recorder.append(retried, *skipped)
            return recorder.fold

    async def retry_child(self, id: str) -> None:
        """Record that a child whose parent is retried is executed again."""
        async with self.turn(id):
            await self.retry(id, steps_to_retry)

    async def free(self, id: str) -> None:
        """Remove the worktrees of the agents of a run that was cancelled, where everything in them is saved."""
        async with self._owned(id) as recorder:
            if recorder.fold.status == CANCELLED:
                await self._free_agents(recorder.fold)

    async def _free_agents(self, run: WorkflowRun) -> None:
        if agents := names(run, AGENT):
            from maos.runs.cleanup import Cleaner

            await Cleaner(self.clock, RunReader(self.journal), self.attempts()).free_agents(run.id, agents)

    async def remove(self, id: str) -> None:
        """Record that a run was removed, with its turn taken; Held while a process executes it."""
        async with self._owned(id) as recorder:
            await recorder.append(WorkflowRemoved(by=self.journal.by, at_us=self.clock.now_us()))

    @asynccontextmanager
    async def _owned(self, id: str) -> AsyncIterator[Recorder[WorkflowRun]]:
        """Write to a run that no process executes until the end of the block; Held while one does."""
        lease = await self._claim(id, await find_run(self.journal, id))
        try:
            yield self._recorder(await find_run(self.journal, id), lease)
        finally:
            await self.journal.release(lease)

    async def close(self) -> None:
        """Detach from every run that this process executes; each can be resumed."""
        tasks = [each.task for each in self._executions.values() if each.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _execute(self, execution: Execution) -> Handle[Any]:
        """Execute a run that this process has claimed, in a task of its own."""
        run = execution.run
        inbox = await self._mailbox.open(run.id, after=run.inbox_cursor, rest_s=INBOX_REST_S)
        try:
            for record in await inbox.backlog():
                execution.control.receive(record)
        except BaseException:
            inbox.close()
            raise
        execution.task = asyncio.create_task(self._run(execution, inbox))
        self._executions[run.id] = execution
        await asyncio.sleep(0)  # a task that is cancelled before its first step would not release the lease
        return execution.handle

    async def _run(self, execution: Execution, inbox: Inbox) -> WorkflowRun:
        id = execution.run.id
        try:
            async with inbox:
                run = await execution.execute(inbox)
            if run.status == CANCELLED:
                await self._free_agents(run)
            if run.status == CHANGED:
                self._unfit[id] = execution.definition.code
                log.write(log.WORKFLOWS, log.WORKFLOW_CHANGED, workflow=id, reason=run.why)
            return run
        except LeaseLost as error:
            log.write(log.WORKFLOWS, log.WORKFLOW_LOST, workflow=id, reason=error.what)
            raise
        finally:
            self._executions.pop(id, None)
            await self.journal.release(execution.recorder.lease)

    def _recorder(self, run: WorkflowRun, lease: Lease) -> Recorder[WorkflowRun]:
        return Recorder(self.journal, WORKFLOW_RUN, run, lease, lease_s=self._lease_s)

    @asynccontextmanager
    async def _released_on_error(self, lease: Lease) -> AsyncIterator[None]:
        try:
            yield
        except BaseException:
            await self.journal.release(lease)
            raise

    async def _claim(self, id: str, known: WorkflowRun | None) -> Lease:
        hint, is_open = f"`maos workflow show {id}` shows its status", known is None or known.is_open
        look = partial(WORKFLOW_RUN.load, self.journal, id)
        return await claim(self.journal, self.clock, stream(id), known, is_open=is_open, hint=hint, look=look)

    async def _claim_new(self, id: str) -> Lease | WorkflowRun:
        """Claim the right to begin a run; or return the one that another process has begun meanwhile."""
        try:
            lease = await self._claim(id, None)
        except Held:
            if (begun := await WORKFLOW_RUN.load(self.journal, id)) is None:
                raise
            return begun
        begun = await WORKFLOW_RUN.load(self.journal, id)
        if begun is not None:
            await self.journal.release(lease)
        return begun or lease


class Execution:
    """Runs the function of one workflow run in this process."""

    def __init__(
        self,
        engine: WorkflowEngine,
        recorder: Recorder[WorkflowRun],
        definition: Workflow[..., Any],
        *,
        on_change: str = REFUSE,
        code_before: str | None = None,
        even_paused: bool = True,
    ) -> None:
        self.recorder = recorder
        self.run = recorder.fold
        """What is recorded of it."""
        self.definition = definition
        self.record = RunRecord(recorder, engine.clock, code_before)
        self.control = Control(self.record)
        self.steps = Steps(self.control, engine.threads)
        start = partial(engine.start, on_change=on_change, even_paused=even_paused)
        self.children = Children(
            self.control,
            engine.journal,
            engine.attempts,
            start=start,
            stop=engine.stop,
            retry=engine.retry_child,
            even_paused=even_paused,
        )
        self.task: asyncio.Task[WorkflowRun] | None = None
        """The task of this process that executes it."""
        self.strays: set[asyncio.Task[Any]] = set()
        """Tasks that the function started by itself and that have executed a step."""

    @property
    def handle(self) -> Handle[Any]:
        """What a program holds of it."""
        return Handle(self.run, self.definition, self.task, partial(self.control.stop, by=self.recorder.journal.by))

    async def execute(self, inbox: Inbox) -> WorkflowRun:
        """Run the function until it has ended, is paused, or this task is cancelled, which detaches from the run."""
        self.record.open(on_trouble=self.control.abort)
        main = asyncio.create_task(self._call_function())
        self.control.begin(main)
        keeper = asyncio.create_task(self.recorder.keep_lease())
        listener = asyncio.create_task(inbox.deliver(self.control.receive))
        has_ended = False
        try:
            await asyncio.wait([main, keeper, listener], return_when=asyncio.FIRST_COMPLETED)
            self.record.check()
            if not main.done():
                (keeper if keeper.done() else listener).result()
            await self.control.idle()  # of tasks that the function has started and does not await
            await self.children.all_ended()
            self.control.is_closing = True
            self._conclude(main)
            await self.record.flush()
            has_ended = not self.run.is_open
            return self.run
        finally:
            self.control.is_closing = True
            tasks = (main, keeper, listener, *self.strays)
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

    def _conclude(self, main: asyncio.Task[Any]) -> None:
        """Record how the run ends, or why it stops."""
        record, control = self.record, self.control
        error = None if main.cancelled() else main.exception()
        missing = sorted(step_id for step_id in record.unseen if "~" not in step_id)
        if record.broken is not None:
            error = record.broken
        elif control.stop_as == PAUSED and (control.has_cancelled or main.cancelled()):
            return record.add(WorkflowPaused, why=control.why, by=control.by, inbox_version=control.inbox_version)
        elif control.stop_as == CANCELLED:
            status, version = WorkflowStatus.CANCELLED, control.inbox_version
            return record.add(WorkflowEnded, status=status, why=control.why, by=control.by, inbox_version=version)
        elif main.cancelled():
            error = asyncio.CancelledError("it cancelled itself")
        elif error is None and missing:
            error = record.changed(f"it ended without the steps {', '.join(missing[:5])} that are recorded")
        if isinstance(error, WorkflowChanged):
            return record.add(WorkflowCodeChanged, why=error.what, code=record.code_before)
        if error is None:
            try:
                result = values.plain(main.result(), f"what the workflow {self.run.name} returns", record.codec)
                return record.add(WorkflowEnded, status=WorkflowStatus.COMPLETED, result=result)
            except InvalidInput as unfit:
                error = unfit
        raised = values.error_data(error, record.codec)
        if cause := failed_step(error):
            raised["step"] = cause
        return record.add(WorkflowEnded, status=WorkflowStatus.FAILED, error=raised)


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
        number = self._strays[self.count] = self._strays.get(self.count, 0) + 1  # in the order of their first steps
        if task is not None:
            self.execution.strays.add(task)
            task.add_done_callback(self.execution.strays.discard)
        stray = Scope(self.execution, f"{self.prefix}{self.count}~{number}.", task)
        executor.set(stray)
        return stray

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


def _check_same(known: WorkflowRun, request: StartRequest, arguments: dict[str, Any]) -> None:
    """InvalidInput when a run under this id is of another workflow, with other arguments, or of another parent."""
    if (known.name, known.arguments) != (request.workflow.name, arguments):
        raise InvalidInput(
            f"there is a workflow {known.id!r} already, a {known.name} with other arguments", hint="use another id"
        )
    if known.parent != request.parent:
        raise InvalidInput(f"there is a workflow {known.id!r} already, of another parent", hint="use another id")


def _check_definition(known: WorkflowRun, workflow: Workflow[..., Any], on_change: str) -> None:
    """WorkflowChanged when the definition of a run has changed and that is to be refused."""
    if on_change not in (REFUSE, REPLAY):
        raise InvalidInput(f"on_change cannot be {on_change!r}", hint=f"use {REFUSE} or {REPLAY}")
    is_other = known.code not in ("", workflow.code)  # none is named after a retry, whose code may be corrected
    if known.is_open and is_other and on_change == REFUSE:
        raise WorkflowChanged(
            f"the definition of {known.name} has changed since {known.id} was begun",
            hint="give it a new version= and keep the old one beside it; or resume it with the new code if that "
            "executes the same steps (on_change='replay', `maos workflow resume --on-change replay`); "
            "`patched()` tells old runs from new ones",
        )


def _check_arguments(known: WorkflowRun, workflow: Workflow[..., Any]) -> None:
    """WorkflowChanged when a definition does not accept the arguments that a run was begun with."""
    try:
        values.bind(workflow.function, known.arguments, known.name)
    except InvalidInput as error:
        raise WorkflowChanged(
            f"the definition of {known.name} does not fit what {known.id} was begun with: {error.what}",
            hint="give it a new version= and keep the old one beside it, or let it accept the old arguments",
        ) from error
