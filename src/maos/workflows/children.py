"""Child workflow runs and agents of a workflow run: each has a record of its own, is begun once, and resumed after a
crash."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from maos.engine.consent import NotAgreed
from maos.engine.ownership import Held
from maos.engine.streams import WORKFLOW_RUN
from maos.errors import (
    Conflict,
    Corrupt,
    HistoryLost,
    InvalidInput,
    LeaseLost,
    NotFound,
    StoreUnavailable,
    UnknownFormat,
)
from maos.faults import crash_point
from maos.holder.agent_process import StartFailed
from maos.journal.journal import Journal
from maos.model import workflow as model
from maos.model.attempt import Attempt
from maos.model.events.run import TaskReleased
from maos.model.events.workflow import StepCompleted, StepFailure, StepStarted
from maos.model.run import TaskState
from maos.model.status import AttemptStatus, TaskStatus
from maos.model.workflow import WorkflowChanged, WorkflowRun
from maos.runs.decisions import Outcome, what_follows
from maos.workflows import values
from maos.workflows.control import Control
from maos.workflows.definition import Handle, StartRequest, StepFailed
from maos.workflows.record import find_run, until

if TYPE_CHECKING:
    from maos.engine.attempts import Attempts
    from maos.engine.live import LiveAttempt

INFRASTRUCTURE = (StoreUnavailable, LeaseLost, Conflict, Corrupt, HistoryLost, UnknownFormat)
"""Errors that say nothing about a child or an agent itself: this execution ends, and the run can be resumed."""
HELD_S = 0.25
"""How often the status of a run or an agent that another process executes is read."""
NAME_CHARS_MAX = 64

Begin = Callable[[], Coroutine[Any, Any, "LiveAttempt | None"]]
Start = Callable[[StartRequest], Awaitable[Handle[Any]]]
"""Starts a child, or resumes it."""
Stop = Callable[[str, str, str], Coroutine[Any, Any, None]]
"""Has the child of an id paused or cancelled, for a reason, whichever process executes it."""


def name_of(parent: str, step_id: str) -> str:
    """The name of the child or the agent of a step: the same in every execution."""
    name = f"{parent}.{step_id.replace(':', '-').replace('~', '_')}"
    if len(name) > NAME_CHARS_MAX:
        name = f"{parent[:40]}.{hashlib.sha256(name.encode()).hexdigest()[:20]}"
    return name


def names(parent: WorkflowRun, kind: str, *statuses: str) -> list[str]:
    """The children or the agents whose steps have one of these statuses; without any, all of them."""
    return [
        str(step.about.get("id") or name_of(parent.id, step_id))
        for step_id, step in parent.steps.items()
        if step.kind == kind and (not statuses or step.status in statuses)
    ]


class Children:
    """Starts, resumes and ends the children and the agents of one workflow run."""

    def __init__(
        self,
        control: Control,
        journal: Journal,
        attempts: Callable[[], Attempts],
        *,
        start: Start,
        stop: Stop,
        retry: Callable[[str], Awaitable[Any]],
        even_paused: bool,
    ) -> None:
        self._control = control
        self._record = control.record
        self._journal = journal
        self._attempts = attempts
        self._start = start
        self._stop = stop
        self._retry = retry
        self._even_paused = even_paused
        """Whether this run was explicitly resumed, so that children and agents that were paused or stopped are too."""
        self._ending: set[asyncio.Task[Any]] = set()
        """Tasks that end children and agents."""

    async def execute(
        self,
        step_id: str,
        kind: str,
        name: str,
        own: str,
        digest: str,
        about: Mapping[str, Any],
        work: Callable[[], Awaitable[Any]],
    ) -> Any:
        """Execute a step that has a record of its own, under the name `own`: it is resumed, never begun twice.
        StepFailed when it fails."""
        step = await self._control.recorded(step_id, kind, name, digest)
        if step is not None and step.status == model.DONE:
            return step.result
        if step is not None and step.status == model.FAILED:
            raise StepFailed(name, step.error or {}, step_id=step_id)
        with self._control.waiting(step_id):
            if step is None:
                about = {**about, **await self._reopen(kind, own)}
                self._record.add(StepStarted, step_id=step_id, kind=kind, name=name, digest=digest, about=about)
                await self._record.flush()
            crash_point(f"workflow:before {kind}")
            try:
                result = await work()
            except StepFailed as error:
                error.step_id = step_id
                raised = {"type": error.type, "message": error.message}
                raised |= {"traceback": error.traceback} if error.traceback else {}
                self._record.add(StepFailure, step_id=step_id, error=raised)
                await self._record.write_outcome(step_id)
                raise
            except INFRASTRUCTURE as error:  # which says nothing about the step
                raise self._record.give_up(error) from error
            self._record.add(StepCompleted, step_id=step_id, result=result)
            await self._record.write_outcome(step_id)
        return result

    async def _reopen(self, kind: str, own: str) -> dict[str, int]:
        """Before a step begins again that a retry has chosen: have its child executed again, and return how many
        attempts its agent had before."""
        if not self._record.run.retries:
            return {}
        if kind == model.CHILD:
            known = await WORKFLOW_RUN.load(self._journal, own)
            if known is not None and known.status in (model.FAILED, model.CANCELLED):
                await self._retry(own)
            return {}
        attempt = await self._attempts().newest(own)
        return {} if attempt is None else {"attempts": attempt.number}

    async def run_child(self, request: StartRequest) -> Any:
        """Start or resume a child, and wait for it; it is paused and cancelled with its parent."""
        id = request.id
        try:
            while True:
                try:
                    run = await (await self._begin(request)).wait()
                    break
                except (Held, LeaseLost):  # another process runs it: wait for its end, or for that of the process
                    await asyncio.sleep(HELD_S)
                    run = await find_run(self._journal, id)
                    if run.status != model.RUNNING:
                        break
        except asyncio.CancelledError:
            control = self._control
            if status := model.CANCELLED if control.abandons else control.stop_as:
                why = f"was {status}" if control.stop_as else "does not wait for it any more"
                self._end(self._stop(id, status, f"{request.parent} {why}"))
            raise
        if run.status == model.COMPLETED:
            return run.result
        if run.status == model.CHANGED:
            raise self._record.changed(f"its child {id} has changed: {run.why}")
        if run.status == model.PAUSED:
            await self._control.pause(f"its child {id} was paused: {run.why}".rstrip(": "))
        raise StepFailed(request.workflow.name, run.error or {"type": "Cancelled", "message": f"{id} was {run.status}"})

    async def _begin(self, request: StartRequest) -> Handle[Any]:
        try:
            return await self._start(request)
        except (WorkflowChanged, NotFound) as error:
            raise self._record.changed(f"its child {request.id} cannot be resumed: {error.what}") from error
        except NotAgreed as error:
            await self._control.pause(error.what)

    async def run_agent(self, step_id: str, name: str, task: str, given: dict[str, Any]) -> tuple[str, str]:
        """Start, adopt or resume an agent, and wait for it; it is stopped when its parent is cancelled. What it
        answered, and in which form that is: "json", or empty for text.

        One that a person stops pauses its parent, and is resumed when the parent is explicitly resumed.
        """
        attempts, tries, is_watched = self._attempts(), 0, True
        earlier = int(self._record.run.steps[step_id].about.get("attempts", 0))
        attempt = await attempts.newest(name)
        if attempt is None:
            attempt = await self._run_attempt(name, partial(attempts.start, task, name=name, **given))
        elif attempt.number <= earlier and not attempt.is_open:  # it ended before the workflow run was retried
            changed = {"argv": given["argv"], "instead": task if task != attempt.task else ""}
            attempt = await self._run_attempt(name, partial(attempts.resume, name, **changed))
        else:
            is_watched = False
            for each in (await attempts.history(name))[earlier:-1]:
                retry = _retry(each, tries, self._record.clock.now_us())
                tries += retry is not None and retry.counts
        while attempt.is_open or attempt.failure or await attempts.has_unheard(attempt):
            if attempt.status == AttemptStatus.STOPPED and (is_watched or not self._even_paused):
                await self._control.pause(f"its agent {name} was stopped")
            begin: Begin = partial(attempts.adopt, name)
            if not attempt.is_open:
                retry = _retry(attempt, tries, self._record.clock.now_us())
                if retry is None:
                    raise StepFailed(name, _agent_error(attempt))
                tries += retry.counts
                await until(self._record.clock, retry.not_before_us)
                begin = partial(attempts.resume, name, like={**given, "task": task})
            attempt, is_watched = await self._run_attempt(name, begin), True
        return attempt.result or attempt.last_text, attempt.result_form

    async def _run_attempt(self, name: str, begin: Begin) -> Attempt:
        """Begin an attempt and wait for its end; or for that of one that another process has."""
        attempts = self._attempts()
        begun: asyncio.Task[LiveAttempt | None] | None = None
        try:
            while True:
                begun = asyncio.create_task(begin())
                try:
                    await asyncio.wait([begun])
                    running = begun.result()
                    return await attempts.get(name) if running is None else await running.wait()
                except (Held, LeaseLost):  # wait for its end, or for that of the process
                    begun, begin = None, partial(attempts.adopt, name)
                    await asyncio.sleep(HELD_S)
                except NotAgreed as error:
                    await self._control.pause(error.what)
                except (StartFailed, NotFound, InvalidInput) as error:
                    raise StepFailed(
                        name, {**values.error_data(error, self._journal.codec), "type": "start_failed"}
                    ) from error
        except asyncio.CancelledError:
            if self._control.abandons:
                self._end(stop_agent(attempts, name, begun))
            elif begun is not None:
                begun.cancel()
                await asyncio.gather(begun, return_exceptions=True)
            raise

    def _end(self, ending: Coroutine[Any, Any, Any]) -> None:
        """Have a child or an agent end; only the end of this run waits for it."""

        async def end() -> None:
            try:
                await self._record.flush()  # that the step was abandoned, or the next execution would begin it again
                await ending
            finally:
                ending.close()

        self._ending.add(asyncio.create_task(end()))

    def end_left_over(self) -> None:
        """End the children and agents that are left when the run has ended: those that its function did not wait for,
        or that it did not come to again before it was cancelled."""
        run = self._record.run
        for name in names(run, model.CHILD, model.STARTED, model.ABANDONED):
            self._end(self._stop(name, model.CANCELLED, f"{run.id} is {run.status}"))
        for name in names(run, model.AGENT, model.STARTED, model.ABANDONED):
            self._end(stop_agent(self._attempts(), name))

    async def all_ended(self) -> None:
        """Return when the children and agents that are being ended have ended."""
        while self._ending:
            ending = list(self._ending)
            await asyncio.gather(*ending, return_exceptions=True)  # `serve` finds those that are still open
            self._ending.difference_update(ending)


def _agent_error(attempt: Attempt) -> dict[str, str]:
    """What is recorded of an agent that has failed; a Python function says where, with a traceback."""
    found = {"type": attempt.failure, "message": attempt.message}
    return found | ({"traceback": attempt.traceback} if attempt.traceback else {})


def _retry(attempt: Attempt, tries: int, now_us: int) -> TaskReleased | None:
    """When and how an agent is resumed after an attempt that failed or did not hear all its messages, as that of a task
    of a run would be; None when it is not."""
    task = TaskState(name=attempt.agent, plan={}, needs=[], status=TaskStatus.RUNNING, tries=tries)
    outcome = Outcome(
        failure=attempt.failure or "unheard",
        message=attempt.message,
        reset_us=attempt.reset_us,
        at_us=attempt.ended_us,
    )
    following = what_follows(task, outcome, now_us)
    return following if isinstance(following, TaskReleased) else None


async def stop_agent(attempts: Attempts, name: str, begun: asyncio.Task[LiveAttempt | None] | None = None) -> None:
    """Have an agent stopped, whichever process runs it, if any does; `begun` is the task that begins it here."""
    running = await begun if begun is not None else None
    try:
        if running is None and (await attempts.get(name)).is_open:
            running = await attempts.adopt(name)
    except NotFound:
        return  # it was never begun
    except Held:
        await attempts.stop(name)
        return
    if running is not None:
        await running.stop()
        await running.wait()
