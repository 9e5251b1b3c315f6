"""The engine of workflow runs: it claims them and executes each in a task of this process."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from maos.bus.mailbox import Inbox, Mailbox
from maos.clock import Clock
from maos.engine import consent, ownership
from maos.engine.claims import Held, claim
from maos.engine.recorder import Recorder
from maos.engine.types import WORKFLOW_RUN
from maos.errors import InvalidInput, LeaseLost, NotFound
from maos.journal.journal import Journal
from maos.model.attempt import check_agent, check_run
from maos.model.events.workflow import WorkflowClaimed, WorkflowEnded, WorkflowStarted
from maos.model.message import inbox
from maos.model.status import WorkflowStatus
from maos.model.workflow import CHANGED, PAUSED, WorkflowRun, stream
from maos.store.contract import Lease
from maos.workflows import values
from maos.workflows.children import Service
from maos.workflows.definition import StartRequest, Workflow, find
from maos.workflows.errors import WorkflowChanged
from maos.workflows.execution import Execution
from maos.workflows.handle import Handle
from maos.workflows.record import CheckpointPolicy

if TYPE_CHECKING:
    from maos.engine.attempts import Attempts

logger = logging.getLogger("maos.workflows")

REFUSE, REPLAY = "refuse", "replay"
"""What is done about a run whose definition has changed: it is not resumed, or it is if it executes the same steps."""
INBOX_REST_S = 0.01
"""How long a command may lie in the inbox: looking after every commit would cost a quarter of what a step does."""


async def find_run(journal: Journal, id: str) -> WorkflowRun:
    """Return a workflow run by its id; raise NotFound when there is none."""
    found = await WORKFLOW_RUN.load(journal, id)
    if found is None:
        raise NotFound(f"there is no workflow {id!r}", hint="`maos workflow list` lists them")
    return found


class WorkflowEngine:
    """Claims workflow runs and executes them in this process."""

    def __init__(
        self,
        journal: Journal,
        clock: Clock,
        *,
        mailbox: Mailbox,
        service: Service,
        attempts: Callable[[], Attempts],
        lease_s: float,
    ) -> None:
        self._journal = journal
        self._clock = clock
        self._mailbox = mailbox
        self._service = service
        self._attempts = attempts
        self._lease_s = lease_s
        self._executions: dict[str, Execution] = {}
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._unfit: dict[str, str] = {}
        """Runs that executed other steps than before when this process executed them last, and with which code."""
        self._threads: WeakValueDictionary[str, asyncio.Task[Any]] = WeakValueDictionary()
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

    async def start(
        self, request: StartRequest, *, on_change: str = REFUSE, even_paused: bool = True
    ) -> Handle[Any]:  # fmt: skip
        """Start a run, or resume the one of that id; on disk when this returns."""
        CheckpointPolicy.of(request.options)
        workflow = request.workflow
        id = check_agent(request.id) if request.id else f"w-{secrets.token_hex(3)}"
        arguments = values.arguments(workflow.function, request.args, request.kwargs, workflow.name)
        async with self.turn(id):
            known: WorkflowRun | Lease | None = await WORKFLOW_RUN.load(self._journal, id)
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

    async def _begin(self, id: str, lease: Lease, request: StartRequest, arguments: dict[str, Any]) -> Handle[Any]:
        """Record that a run begins, and execute it."""
        workflow = request.workflow
        async with self._released_on_error(lease):
            recorder = Recorder(self._journal, WORKFLOW_RUN, WorkflowRun(id=id), lease, lease_s=self._lease_s)
            started = WorkflowStarted(
                name=workflow.name,
                definition=workflow.version,
                code=workflow.code,
                arguments=arguments,
                options={**request.options, "where": workflow.where},
                parent=request.parent,
                owner=ownership.identity(lease),
                at_us=self._clock.now_us(),
            )
            await recorder.append(started)
        return await self._execute(recorder, workflow)

    async def resume(
        self, known: WorkflowRun, workflow: Workflow[..., Any], on_change: str, *, even_paused: bool = True
    ) -> Handle[Any]:
        """Claim a run and execute it, with its turn taken; of one that has ended, the handle has only the result."""
        running = self.handle(known.id)
        if running is not None:
            return running
        _check_definition(known, workflow, on_change)
        if not known.is_open or (known.status == PAUSED and not even_paused):
            return Handle(known, workflow)
        _check_arguments(known, workflow)
        await consent.check(self._journal, known.id)
        lease = await self._claim(known.id, known)
        overruled = await self._journal.version(inbox(known.id)) if even_paused else 0
        async with self._released_on_error(lease):
            run = await find_run(self._journal, known.id)
            if not run.is_open:  # the process that executed it ended it meanwhile
                await self._journal.release(lease)
                return Handle(run, workflow)
            code_before = run.code
            recorder = Recorder(self._journal, WORKFLOW_RUN, run, lease, lease_s=self._lease_s)
            claimed = WorkflowClaimed(
                owner=ownership.identity(lease),
                code=workflow.code,
                overruled=overruled or None,
                at_us=self._clock.now_us(),
            )
            await recorder.append(claimed)
        return await self._execute(
            recorder, workflow, on_change=on_change, code_before=code_before, even_paused=even_paused
        )

    async def end(self, id: str, why: str) -> WorkflowRun | None:
        """End a run that no process executes, with its turn taken; its definition is not needed, and may be missing.

        None when it has ended before, or when another process executes it, which then receives the command.
        """
        try:
            lease = await self._claim(id, await find_run(self._journal, id))
        except Held:
            return None
        try:
            run = await find_run(self._journal, id)
            if not run.is_open:
                return None
            recorder = Recorder(self._journal, WORKFLOW_RUN, run, lease, lease_s=self._lease_s)
            version, at_us = await self._journal.version(inbox(id)), self._clock.now_us()
            await recorder.append(
                WorkflowEnded(status=WorkflowStatus.CANCELLED, why=why, inbox_version=version, at_us=at_us)
            )
        finally:
            await self._journal.release(lease)
        return run

    async def close(self) -> None:
        """Detach from every run that this process executes; each can be resumed."""
        tasks = [each.task for each in self._executions.values() if each.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _execute(self, recorder: Recorder[WorkflowRun], workflow: Workflow[..., Any], **how: Any) -> Handle[Any]:
        """Execute a run that this process has claimed, in a task of its own."""
        execution = Execution(
            recorder, workflow, self._journal, self._clock,
            service=self._service, attempts=self._attempts, threads=self._threads, **how,
        )  # fmt: skip
        run = execution.run
        inbox = await self._mailbox.open(run.id, after=run.inbox_cursor, rest_s=INBOX_REST_S)
        try:
            for record in await inbox.backlog():
                execution.inbox.receive(record)
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
            if run.status == CHANGED:
                self._unfit[id] = execution.definition.code
                extra = {"action": "workflow.changed", "workflow": id, "reason": run.why}
                logger.warning("workflow run %s stopped, its code has changed: %s", id, run.why, extra=extra)
            return run
        except LeaseLost as error:
            extra = {"action": "workflow.claim_lost", "workflow": id, "reason": error.what}
            logger.warning("workflow run %s was claimed by another engine: %s", id, error.what, extra=extra)
            raise
        finally:
            self._executions.pop(id, None)
            await self._journal.release(execution.recorder.lease)

    @asynccontextmanager
    async def _released_on_error(self, lease: Lease) -> AsyncIterator[None]:
        try:
            yield
        except BaseException:
            await self._journal.release(lease)
            raise

    async def _claim(self, id: str, known: WorkflowRun | None) -> Lease:
        hint, is_open = f"`maos workflow show {id}` shows its status", known is None or known.is_open
        look = partial(WORKFLOW_RUN.load, self._journal, id)
        return await claim(self._journal, self._clock, stream(id), known, is_open=is_open, hint=hint, look=look)

    async def _claim_new(self, id: str) -> Lease | WorkflowRun:
        """Claim the right to begin a run; or return the one that another process has begun meanwhile."""
        try:
            lease = await self._claim(id, None)
        except Held:
            if (begun := await WORKFLOW_RUN.load(self._journal, id)) is None:
                raise
            return begun
        begun = await WORKFLOW_RUN.load(self._journal, id)
        if begun is not None:
            await self._journal.release(lease)
        return begun or lease


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
    if known.is_open and known.code != workflow.code and on_change == REFUSE:
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
