"""A workflow that this process runs: calls with a recorded outcome get it, others are made and recorded.

Before a step begins, whatever ended before is on disk, and so is that the step begins. The end of a step and the
beginning of the next are one commit; if the function does something else in between, the end is committed at once.

Every call that is awaited gives other tasks a turn, also when its outcome is known already: so tasks that an author
starts make their first calls in the same order, whether the workflow runs for the first time or again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from maos.clock import MICROSECONDS, Clock
from maos.engine.recorder import Recorder
from maos.errors import Corrupt, InvalidInput, MaosError
from maos.faults import crash_point
from maos.journal.journal import Record
from maos.model.workflow import (
    CANCELLED,
    COMPLETED,
    DONE,
    FAILED,
    GATE,
    LEFT,
    PAUSED,
    SIGNAL,
    SLEEP,
    UNKNOWN,
    VALUE,
    Step,
    WorkflowRun,
)
from maos.workflows import elsewhere, moments, scopes, values
from maos.workflows.checkpoints import Checkpoints
from maos.workflows.definition import StepDefinition, Workflow
from maos.workflows.errors import StepFailed, WorkflowChanged
from maos.workflows.mail import WorkflowInbox
from maos.workflows.notes import RecordWriter
from maos.workflows.recall import Recall
from maos.workflows.scopes import Scope
from maos.workflows.stepping import Stepping

if TYPE_CHECKING:
    from maos.workflows.workflows import Workflows


class WaitExpired(TimeoutError):
    """A signal or an answer did not come in time."""


class WorkflowExecution:
    """One run of a workflow's function."""

    def __init__(
        self,
        recorder: Recorder[WorkflowRun],
        definition: Workflow[..., Any],
        clock: Clock,
        *,
        workflows: Workflows,
        on_change: str = "",
        code_before: str = "",
        is_insisted: bool = True,
    ) -> None:
        self.recorder = recorder
        self.workflows = workflows
        self.definition = definition
        self.on_change = on_change
        """What to do about children whose code has changed."""
        self.is_insisted = is_insisted
        """Whether somebody said that this one is to go on, whatever of it was paused or stopped."""
        self.clock = clock
        self.notes = RecordWriter(recorder, clock, self._in_trouble)
        self.checkpoints = Checkpoints(recorder.fold, self.notes, workflows.journal, clock)
        self.mail = WorkflowInbox(
            recorder.fold, self.notes, unreached=self._is_unreached, let_go=self.let_go
        )  # fmt: skip
        self._stepping = Stepping(self)
        self._code_before = code_before or recorder.fold.code
        self._main: asyncio.Task[Any] | None = None
        self._broken: WorkflowChanged | None = None
        self._closing = False
        self.leaving = ""
        """Paused or cancelled, if that is to be done with it."""
        self._why = ""
        self._wish = 0
        self._is_told = False
        self.unseen = set(recorder.fold.steps)
        """Places of calls that were made before and not again yet."""
        self.strays: set[asyncio.Task[Any]] = set()
        """Tasks that the function started by itself and that have made a call."""
        self._ending: set[asyncio.Task[Any]] = set()
        """Of children and agents that were told to end."""
        self.recall = Recall(self)

    @property
    def flow(self) -> WorkflowRun:
        """What is recorded of it."""
        return self.recorder.fold

    @property
    def id(self) -> str:
        """Its id."""
        return self.recorder.fold.id

    # --- the whole -------------------------------------------------------------------------------------------

    async def run(self) -> WorkflowRun:
        """Run the function until it has ended, is paused, or is let go of by being cancelled."""
        self.notes.begin()
        self._main = asyncio.create_task(self._call_function())
        self._leave_if_idle()
        keeper = asyncio.create_task(self.recorder.keep_lease())
        has_ended = False
        try:
            await asyncio.wait([self._main, keeper], return_when=asyncio.FIRST_COMPLETED)
            if self.notes.trouble is not None:
                raise self.notes.trouble
            if not self._main.done():
                keeper.result()
            await self._stepping.idle()  # of tasks that the function has started and left alone
            await self._all_ended()
            self._closing = True
            self._conclude(self._main)
            await self.notes.flush()
            has_ended = not self.flow.is_open
            return self.flow
        finally:
            self._closing = True
            tasks = (self._main, keeper, *self.strays)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self.notes.close()
            if has_ended:  # and that is on disk
                for ending in elsewhere.left_over(self):
                    self.end(ending)
            await self._all_ended()

    async def _call_function(self) -> Any:
        scopes.enter(Scope(self, "", asyncio.current_task()))
        args, kwargs = values.given(self.definition.function, self.flow.arguments, self.flow.name)
        return await self.definition.function(*args, **kwargs)

    def _conclude(self, main: asyncio.Task[Any]) -> None:
        error = None if main.cancelled() else main.exception()
        unmade = sorted(step_id for step_id in self.unseen if "~" not in step_id)
        if self._broken is not None:
            self._note_changed(self._broken)
        elif self.leaving == PAUSED and (self._is_told or main.cancelled()):
            self.notes.note("workflow_paused", why=self._why, inbox_version=self._wish)
        elif self.leaving == CANCELLED:
            self.notes.note("workflow_ended", status=CANCELLED, why=self._why, inbox_version=self._wish)
        elif main.cancelled():
            self._note_failed({"type": "CancelledError", "message": "it cancelled itself"})
        elif isinstance(error, WorkflowChanged):
            self._note_changed(error)
        elif error is not None:
            self._note_failed(values.told(error))
        elif unmade:
            self._note_changed(self.changed(f"it ended without the calls {', '.join(unmade[:5])} that it had made"))
        else:
            try:
                result = values.plain(main.result(), f"what the workflow {self.flow.name} returns")
            except InvalidInput as unfit:
                self._note_failed(values.told(unfit))
            else:
                self.notes.note("workflow_ended", status=COMPLETED, result=result)

    def _note_failed(self, error: Mapping[str, Any]) -> None:
        self.notes.note("workflow_ended", status=FAILED, error=error)

    def _note_changed(self, error: WorkflowChanged) -> None:
        self.notes.note("workflow_changed", why=error.what, code=self._code_before)

    def let_go(self, leaving: str, why: str, wish: int = 0) -> None:
        """Have it paused, or ended as cancelled, once the steps that run have ended."""
        if not self.leaving:
            self.leaving, self._why, self._wish = leaving, why, wish
        self._leave_if_idle()

    def _leave_if_idle(self) -> None:
        if self.leaving and not self._is_told and not self._stepping.busy and self._main is not None:
            self._is_told = self._main.cancel()  # False when it has just ended

    def step_ended(self) -> None:
        """Go, if that is what was waited for, when whoever called the step has had a turn."""
        if self.leaving:
            asyncio.get_running_loop().call_soon(self._leave_if_idle)

    def _in_trouble(self) -> None:
        if self._main is not None:
            self._main.cancel()

    # --- what it has begun elsewhere -------------------------------------------------------------------------

    @property
    def gives_up(self) -> bool:
        """Whether a child or an agent is wanted no more whose call is cancelled now: nobody will ask for it again."""
        return self.leaving == CANCELLED or not (self._is_stopping or self.leaving)

    def end(self, ending: Coroutine[Any, Any, Any]) -> None:
        """Have something end that was begun elsewhere; nobody waits for it but the end of the workflow."""

        async def end() -> None:
            try:
                await self.notes.flush()  # that nobody waits for it any more, or whoever goes on would ask for it again
                await ending
            finally:
                ending.close()

        self._ending.add(asyncio.create_task(end()))

    async def _all_ended(self) -> None:
        while self._ending:
            ending = list(self._ending)
            await asyncio.gather(*ending, return_exceptions=True)  # those still open are found by whoever serves
            self._ending.difference_update(ending)

    # --- calls that were made before -------------------------------------------------------------------------

    async def known(self, step_id: str, kind: str, name: str, digest: str = "") -> Step | None:
        """The call that was made at this place before; Changed when it was another one."""
        call = self.recorded(step_id, kind, name, digest)
        if call is not None:
            await asyncio.sleep(0)
            if call.status == LEFT:  # the function did not wait for its end, and will not now
                await asyncio.get_running_loop().create_future()
        if (self.leaving or self._broken or self.notes.trouble) and (call is None or call.status not in (DONE, FAILED)):
            await self._stay()
        return call

    def recorded(self, step_id: str, kind: str, name: str, digest: str = "") -> Step | None:
        """The same, at once."""
        call = self.flow.steps.get(step_id)
        if call is None:
            return None
        self.unseen.discard(step_id)
        if (call.kind, call.name) != (kind, name):
            raise self.changed(f"call {step_id} was the {call.kind} {call.name!r}, and is the {kind} {name!r} now")
        if digest and call.digest and call.digest != digest:
            raise self.changed(f"call {step_id}, the {kind} {name!r}, was made with other arguments before")
        return call

    def changed(self, what: str) -> WorkflowChanged:
        """What is raised in the function; whatever it does about it, the workflow goes no further."""
        self._broken = self._broken or WorkflowChanged(
            f"the workflow {self.flow.name} does not do what it did before: {what}",
            hint="what differs from run to run (time, chance, the outside) belongs into a step; "
            "`patched()` and versions let old ones go on after a change",
        )
        return self._broken

    async def _stay(self) -> None:
        """Make no new call once the workflow is to be let go of; steps of other branches end first."""
        if self.notes.trouble is not None:
            raise self.notes.trouble
        if self._broken is not None:
            raise self._broken
        await self._stepping.idle()
        raise asyncio.CancelledError

    def _is_unreached(self, step_id: str) -> bool:
        return step_id in self.unseen

    @property
    def _is_stopping(self) -> bool:
        """Whether a call that is cancelled now is cancelled by us, and not by the function."""
        return self._closing or self._is_told or self.notes.trouble is not None or self._broken is not None

    async def stay_in_doubt(self, step_id: str) -> None:
        """Pause when the function stops waiting for a step of which nobody knows what became (I31)."""
        if self._is_stopping:
            return
        call = self.flow.steps[step_id]
        if call.status != UNKNOWN:
            self.notes.note("step_unknown", step_id=step_id)
        self.let_go(PAUSED, f"nobody knows what became of call {step_id}, the step {call.name}: settle it, then resume")
        await asyncio.get_running_loop().create_future()

    @contextmanager
    def waiting(self, step_id: str) -> Iterator[None]:
        """Note that the function stopped waiting for a call, so that it does so again when it runs again."""
        try:
            yield
        except asyncio.CancelledError:
            if not (self._is_stopping or self.leaving):
                self.notes.note("step_abandoned", step_id=step_id)
                self.notes.flush_soon()
            raise

    # --- steps -----------------------------------------------------------------------------------------------

    async def step(
        self, scope: Scope, step: StepDefinition[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """The outcome of a step: the recorded one, or that of calling it now."""
        return await self._stepping.step(scope.next_place(), step, args, kwargs)

    async def ended(self, step_id: str) -> None:
        """Have the outcome of a call written, at once or as the policy says."""
        try:
            await self.checkpoints.ended(step_id)
        except Corrupt as error:
            raise self._give_up(error) from error

    def _give_up(self, error: MaosError) -> MaosError:
        """End this run of it, and let nothing more be written, whatever the function does about it."""
        self.notes.trouble = self.notes.trouble or error
        self._in_trouble()
        return error

    # --- waiting ---------------------------------------------------------------------------------------------

    async def sleep(self, scope: Scope, seconds: float) -> None:
        """Until a moment that is recorded, so a restart does not begin it again."""
        step_id = scope.next_place()
        call = await self.known(step_id, SLEEP, "sleep")
        if call is not None and call.status == DONE:
            return
        until_us = call.until_us if call else self.clock.now_us() + int(seconds * MICROSECONDS)
        with self.waiting(step_id):
            if call is None:
                self.notes.note("step_started", step_id=step_id, kind=SLEEP, name="sleep", until_us=until_us)
                await self.notes.flush()
            await self.until(until_us)
            self.notes.note("step_completed", step_id=step_id)
            await self.ended(step_id)

    async def signal(self, scope: Scope, name: str, timeout_s: float, type_: Any) -> Any:
        """The next signal of a name, in the order in which they were sent."""
        step_id = scope.next_place()
        call = await self.known(step_id, SIGNAL, name)
        if call is not None and call.status == FAILED:
            raise WaitExpired(f"no signal {name!r} came in time")
        is_heard = call is not None and call.status == DONE
        value = call.result if call and is_heard else await self._wait_for_signal(step_id, name, call, timeout_s)
        return values.typed(value, type_, f"the signal {name!r}")

    async def _wait_for_signal(self, step_id: str, name: str, call: Step | None, timeout_s: float) -> Any:
        """Its value. Nothing is awaited once it is noted: else a time limit could end just then, and the record would
        say that the function heard a signal which it did not."""
        with self.waiting(step_id):
            if call is None:
                until_us = self._deadline(timeout_s)
                self.notes.note("step_started", step_id=step_id, kind=SIGNAL, name=name, until_us=until_us)
                await self.notes.flush()
            until_us = self.flow.steps[step_id].until_us
            try:
                version, value = await self.mail.signal(name, lambda listener: self._wait(listener, until_us))
            except WaitExpired as error:
                self.notes.note("step_failed", step_id=step_id, error=values.told(error))
                raise WaitExpired(f"no signal {name!r} came in time") from error
            else:
                self.notes.note("step_completed", step_id=step_id, result=value, signal=name, signal_version=version)
                return value
            finally:
                self.recall.note_new()
                self.notes.flush_soon()

    async def gate(
        self, scope: Scope, question: str, choices: list[str], context: str, default: str | None, timeout_s: float
    ) -> str:
        """What a person answers; asked once, however often the workflow is interrupted."""
        step_id = scope.next_place()
        call = await self.known(step_id, GATE, question)
        if call is None or call.status not in (DONE, FAILED):
            with self.waiting(step_id):
                if call is None:
                    await self._ask(step_id, question, choices, context, default, timeout_s)
                call = await self._wait_for_answer(step_id, default)
        if call.status == FAILED:
            raise WaitExpired(f"nobody answered {question!r} in time")
        return str(call.result)

    async def _ask(
        self, step_id: str, question: str, choices: list[str], context: str, default: str | None, timeout_s: float
    ) -> None:
        about = {name: said for name, said in (("choices", choices), ("context", context)) if said}
        about |= {"default": default} if default is not None else {}
        until_us = self._deadline(timeout_s)
        self.notes.note("step_started", step_id=step_id, kind=GATE, name=question, until_us=until_us, about=about)
        try:
            await self.checkpoints.asked(step_id)
        except Corrupt as error:
            raise self._give_up(error) from error

    async def _wait_for_answer(self, step_id: str, default: str | None) -> Step:
        until_us = self.flow.steps[step_id].until_us
        try:
            await self.mail.settled(step_id, lambda answered: self._wait(answered, until_us))
        except WaitExpired:
            if not self.mail.is_settled(step_id):
                if default is None:
                    self.notes.note(
                        "step_failed", step_id=step_id, error={"type": "Expired", "message": "nobody answered"}
                    )
                else:
                    self.notes.note("step_completed", step_id=step_id, result=default)
        await self.notes.flush()
        return self.flow.steps[step_id]

    def _deadline(self, timeout_s: float) -> int:
        return self.clock.now_us() + int(timeout_s * MICROSECONDS) if timeout_s else 0

    async def _wait(self, future: asyncio.Future[None], until_us: int) -> None:
        """Wait for a future, or raise Expired at a time."""

        async def expire() -> None:
            await self.until(until_us)
            if not future.done():
                future.set_exception(WaitExpired("it did not come in time"))

        timer = asyncio.create_task(expire()) if until_us else None
        try:
            await future
        finally:
            if timer is not None:
                timer.cancel()

    async def until(self, moment_us: int) -> None:
        """Wait until the clock says so."""
        await moments.until(self.clock, moment_us)

    # --- other calls -----------------------------------------------------------------------------------------

    async def checkpoint(self, scope: Scope, name: str) -> None:
        """Make everything so far safe, under a name."""
        step_id = scope.next_place()
        if await self.known(step_id, VALUE, "checkpoint") is not None:
            return
        self.notes.note("step_completed", step_id=step_id, kind=VALUE, name="checkpoint")
        try:
            await self.checkpoints.make("manual", name)
        except Corrupt as error:
            raise self._give_up(error) from error

    async def elsewhere(
        self, scope: Scope, kind: str, name: str, digest: str, about: dict[str, Any], work: Callable[[str], Any]
    ) -> Any:
        """A call whose own record lies elsewhere, as that of a child or an agent: it is taken up, never begun twice."""
        step_id = scope.next_place()
        call = await self.known(step_id, kind, name, digest)
        if call is not None and call.status == DONE:
            return call.result
        if call is not None and call.status == FAILED:
            raise StepFailed(name, call.error or {})
        with self.waiting(step_id):
            if call is None:
                self.notes.note("step_started", step_id=step_id, kind=kind, name=name, digest=digest, about=about)
                await self.notes.flush()
            crash_point(f"flow:before {kind}")
            try:
                result = await work(step_id)
            except StepFailed as error:
                self.notes.note("step_failed", step_id=step_id, error={"type": error.type, "message": error.message})
                await self.ended(step_id)
                raise
            except elsewhere.INFRASTRUCTURE as error:  # which says nothing about the call
                raise self._give_up(error) from error
            self.notes.note("step_completed", step_id=step_id, result=result)
            await self.ended(step_id)
        return result

    def receive(self, record: Record) -> None:
        """Something from the workflow's inbox."""
        self.mail.deliver(record)
