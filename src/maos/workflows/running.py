"""A workflow that this process runs: calls with a recorded outcome get it, others are made and recorded.

Before a step begins, whatever ended before is on disk, and so is that the step begins. The end of a step and the
beginning of the next are one commit; if the function does something else in between, the end is committed at once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from maos.clock import MICROSECONDS, Clock
from maos.engine.recorder import Recorder
from maos.faults import crash_point
from maos.journal.codec import Event
from maos.journal.journal import Record
from maos.model.flow import (
    CANCELLED,
    COMPLETED,
    DONE,
    FAILED,
    GATE,
    PAUSED,
    SIGNAL,
    SLEEP,
    STARTED,
    STEP,
    UNKNOWN,
    VALUE,
    Call,
    Flow,
)
from maos.workflows import scopes, values
from maos.workflows.definition import NOT_DONE, Found, Step, Workflow, called
from maos.workflows.errors import Changed, StepFailed
from maos.workflows.policy import Policy
from maos.workflows.scopes import Scope

if TYPE_CHECKING:
    from maos.workflows.workflows import Workflows

NAP_S_MAX = 5.0
"""How long a sleeper sleeps before it looks at the clock again, which somebody may have put right."""
ENDS = ("call_done", "call_failed")


class Expired(TimeoutError):
    """A signal or an answer did not come in time."""


class RunningFlow:
    """One run of a workflow's function."""

    def __init__(
        self, recorder: Recorder[Flow], definition: Workflow[..., Any], clock: Clock, *, workflows: Workflows
    ) -> None:
        self.recorder = recorder
        self.workflows = workflows
        self._definition = definition
        self._clock = clock
        self._policy = Policy.of(recorder.fold.options)
        self._pending: list[Event] = []
        self._outcomes_pending = False
        self._flushing = asyncio.Lock()
        self._soon = False
        self._flusher: asyncio.Task[None] | None = None
        self._main: asyncio.Task[Any] | None = None
        self._trouble: BaseException | None = None
        self._leaving = ""
        self._why = ""
        self._busy = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._unseen = set(recorder.fold.calls)
        """Places of calls that were made before and not again yet."""
        self._signals = {name: deque(found) for name, found in recorder.fold.signals.items()}
        self._listeners: dict[str, deque[asyncio.Future[Any]]] = {}
        self._answers: dict[str, asyncio.Future[Mapping[str, Any]]] = {}
        self._early: dict[str, Mapping[str, Any]] = {}
        """Answers that are there before their question is asked again."""
        self._wished = recorder.fold.inbox_cursor
        self._progress = 0.0
        self._since_us = clock.now_us()

    @property
    def flow(self) -> Flow:
        """What is recorded of it."""
        return self.recorder.fold

    @property
    def id(self) -> str:
        """Its id."""
        return self.recorder.fold.id

    # --- the whole -------------------------------------------------------------------------------------------

    async def run(self) -> Flow:
        """Run the function until it has ended, is paused, or is let go of by being cancelled."""
        self._main = asyncio.create_task(self._call_function())
        keeper = asyncio.create_task(self.recorder.keep_lease())
        try:
            await asyncio.wait([self._main, keeper], return_when=asyncio.FIRST_COMPLETED)
            if self._trouble is not None:
                raise self._trouble
            if not self._main.done():
                keeper.result()
            await self._conclude(self._main)
            return self.flow
        finally:
            for task in (self._main, keeper, *([self._flusher] if self._flusher else [])):
                task.cancel()
            await asyncio.gather(self._main, keeper, return_exceptions=True)

    async def _call_function(self) -> Any:
        scope = Scope(self, "", asyncio.current_task())
        scopes.enter(scope)
        arguments = self.flow.arguments
        return await self._definition.function(*arguments.get("args", ()), **arguments.get("kwargs", {}))

    async def _conclude(self, main: asyncio.Task[Any]) -> None:
        if self._leaving:
            type_ = "flow_paused" if self._leaving == PAUSED else "flow_ended"
            self._note(type_, status=CANCELLED, why=self._why)
        elif main.cancelled():
            self._note("flow_ended", status=FAILED, error={"type": "CancelledError", "message": "it cancelled itself"})
        elif (error := main.exception()) is None:
            what = f"what the workflow {self.flow.name} returns"
            if self._unseen:
                places = ", ".join(sorted(self._unseen)[:5])
                error = self._changed(f"it ended without the calls {places}, which it had made before")
                self._note("flow_changed", why=str(error))
            else:
                self._note("flow_ended", status=COMPLETED, result=values.plain(main.result(), what))
        elif isinstance(error, Changed):
            self._note("flow_changed", why=str(error))
        else:
            self._note("flow_ended", status=FAILED, error=values.told(error))
        await self.flush()

    def let_go(self, leaving: str, why: str) -> None:
        """Have it paused, or ended as cancelled, once the steps that run have ended."""
        self._leaving, self._why = self._leaving or leaving, self._why or why
        self._leave_if_idle()

    def _leave_if_idle(self) -> None:
        if self._leaving and not self._busy and self._main is not None:
            self._main.cancel()

    # --- recording -------------------------------------------------------------------------------------------

    def _note(self, type_: str, /, **data: Any) -> None:
        """Have an event written with the next flush."""
        data["at_us"] = self._clock.now_us()
        self._pending.append(Event(type_, data))
        if type_ in ENDS:
            self._outcomes_pending = True

    async def flush(self, scope: Scope | None = None) -> None:
        """Everything noted so far is on disk when this returns; several branches share one commit."""
        if scope is not None and scope.prefix:
            await asyncio.sleep(0)  # let the other branches come as far
        async with self._flushing:
            if self._pending:
                events, self._pending, self._outcomes_pending = self._pending, [], False
                await self.recorder.append(*events)

    def _flush_soon(self) -> None:
        """Write what is noted if nobody else does it first, as the beginning of the next step would."""
        if not self._soon:
            self._soon = True
            asyncio.get_running_loop().call_soon(self._flush_if_pending)

    def _flush_if_pending(self) -> None:
        self._soon = False
        if self._pending and (self._flusher is None or self._flusher.done()):
            self._flusher = asyncio.get_running_loop().create_task(self._flush_now())

    async def _flush_now(self) -> None:
        try:
            await self.flush()
        except Exception as error:  # noqa: BLE001 - told to whoever waits for the workflow
            self._trouble = self._trouble or error
            if self._main is not None:
                self._main.cancel()

    def _known(self, place: str, kind: str, name: str, digest: str = "") -> Call | None:
        """The call that was made at this place before; Changed when it was another one."""
        call = self.flow.calls.get(place)
        self._unseen.discard(place)
        if call is None:
            return None
        if (call.kind, call.name) != (kind, name):
            raise self._changed(f"call {place} was the {call.kind} {call.name}, and is the {kind} {name} now")
        if digest and call.digest and call.digest != digest:
            raise self._changed(f"call {place}, the {kind} {name}, was made with other arguments before")
        return call

    def _changed(self, what: str) -> Changed:
        return Changed(
            f"the workflow {self.flow.name} does not do what it did before: {what}",
            hint="what differs from run to run (time, chance, the outside) belongs into a step; "
            "`patched()` and versions let old ones go on after a change",
        )

    async def _stay(self) -> None:
        """Make no new call once the workflow is to be let go of; steps of other branches end first."""
        if self._leaving:
            await self._idle.wait()
            raise asyncio.CancelledError

    # --- steps -----------------------------------------------------------------------------------------------

    async def step(self, scope: Scope, step: Step[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The outcome of a step: the recorded one, or that of calling it now."""
        place = scope.next_place()
        digest = values.digest(args, kwargs, f"an argument of {step.name}")
        call = self._known(place, STEP, step.name, digest)
        if call is not None and call.status in (DONE, FAILED):
            return self._outcome(call, step)
        await self._stay()
        tries = 1
        if call is None:
            await self._begin(scope, place, step, digest, args, kwargs)
        else:
            tries = call.tries
            if call.until_us:  # it had failed, and was to be tried again
                await self._begin_again(place, step, digest, call.until_us)
                tries += 1
            elif call.status == UNKNOWN or not step.idempotent:
                settled = await self._find_out(place, step, digest, args, kwargs)
                if settled is not None:
                    return self._outcome(settled, step)
                tries = self.flow.calls[place].tries
        return await self._do(place, step, digest, tries, args, kwargs)

    async def _begin(
        self, scope: Scope, place: str, step: Step[..., Any], digest: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        if step.idempotent:
            self._note("call_started", place=place, kind=STEP, name=step.name, digest=digest)
            if self._outcomes_pending and self._policy.every_step:
                await self.flush(scope)
            elif self._policy.every_step:
                self._flush_soon()
        else:
            about = {"given": self.workflows.without_secrets(values.shown(args, kwargs))} if args or kwargs else {}
            self._note("call_started", place=place, kind=STEP, name=step.name, digest=digest, about=about)
            await self.flush(scope)
        crash_point(f"flow:before {step.name}")

    async def _begin_again(self, place: str, step: Step[..., Any], digest: str, until_us: int) -> None:
        await self._until(until_us)
        self._note("call_started", place=place, kind=STEP, name=step.name, digest=digest)
        if not step.idempotent:
            await self.flush()

    async def _do(
        self,
        place: str,
        step: Step[..., Any],
        digest: str,
        tries: int,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        while True:
            try:
                result = values.plain(await self._try(place, step, args, kwargs), f"what the step {step.name} returns")
            except Exception as error:
                if tries <= step.retries:
                    until_us = self._clock.now_us() + int(step.pause_s(tries) * MICROSECONDS)
                    self._note("call_tried", place=place, error=values.told(error), until_us=until_us)
                    await self.flush()
                    await self._begin_again(place, step, digest, until_us)
                    tries += 1
                    continue
                self._note("call_failed", place=place, error=values.told(error))
                self._ended()
                raise StepFailed(step.name, values.told(error)) from error
            crash_point(f"flow:after {step.name}")
            self._note("call_done", place=place, result=result)
            self._ended()
            return values.typed(result, step.returns, f"what the step {step.name} returned")

    async def _try(self, place: str, step: Step[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self._busy += 1
        self._idle.clear()
        outside = scopes.enter(None)
        key = scopes.enter_step(f"{self.id}/{place}")
        try:
            if not step.timeout_s:
                return await called(step.function, args, kwargs)
            async with asyncio.timeout(step.timeout_s):
                return await called(step.function, args, kwargs)
        finally:
            scopes.leave_step(key)
            scopes.leave(outside)
            self._busy -= 1
            if not self._busy:
                self._idle.set()
                asyncio.get_running_loop().call_soon(self._leave_if_idle)

    def _ended(self) -> None:
        """Have an outcome written, at once or as the policy says."""
        checkpoint = self._policy.after_step(self._clock.steady_us())
        if checkpoint:
            self._checkpoint(checkpoint)
        if self._policy.every_step or checkpoint:
            self._flush_soon()

    def _outcome(self, call: Call, step: Step[..., Any]) -> Any:
        if call.status == FAILED:
            raise StepFailed(step.name, call.error or {})
        return values.typed(call.result, step.returns, f"what the step {step.name} returned")

    async def _find_out(
        self, place: str, step: Step[..., Any], digest: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Call | None:
        """What became of a step that was begun: its outcome, or None when it is to be done (again)."""
        if step.probe is not None:
            said = await called(step.probe, args, kwargs)
            if isinstance(said, Found):
                self._note("call_done", place=place, result=values.plain(said.result, f"the probe of {step.name}"))
                await self.flush()
                return self.flow.calls[place]
            if said == NOT_DONE:
                self._note("call_started", place=place, kind=STEP, name=step.name, digest=digest)
                await self.flush()
                return None
        if self.flow.calls[place].status != UNKNOWN:
            self._note("call_doubted", place=place)
            await self.flush()
        settled = await self._answer(place)
        version = settled["version"]
        if settled["outcome"] == "again":
            self._note("call_started", place=place, kind=STEP, name=step.name, digest=digest, inbox_version=version)
            await self.flush()
            return None
        if settled["outcome"] == "done":
            self._note("call_done", place=place, result=settled.get("value"), inbox_version=version)
        else:
            error = {"type": "", "message": settled.get("why") or "a person said that it failed"}
            self._note("call_failed", place=place, error=error, inbox_version=version)
        await self.flush()
        return self.flow.calls[place]

    # --- waiting ---------------------------------------------------------------------------------------------

    async def sleep(self, scope: Scope, seconds: float) -> None:
        """Until a moment that is recorded, so a restart does not begin it again."""
        place = scope.next_place()
        call = self._known(place, SLEEP, "sleep")
        if call is not None and call.status == DONE:
            return
        await self._stay()
        until_us = call.until_us if call else self._clock.now_us() + int(seconds * MICROSECONDS)
        if call is None:
            self._note("call_started", place=place, kind=SLEEP, name="sleep", until_us=until_us)
            await self.flush()
        await self._until(until_us)
        self._note("call_done", place=place)
        self._ended()

    async def signal(self, scope: Scope, name: str, timeout_s: float, type_: Any) -> Any:
        """The next signal of a name, in the order in which they were sent."""
        place = scope.next_place()
        call = self._known(place, SIGNAL, name)
        if call is None or call.status == STARTED:
            await self._stay()
            until_us = call.until_us if call else self._deadline(timeout_s)
            if call is None:
                self._note("call_started", place=place, kind=SIGNAL, name=name, until_us=until_us)
                await self.flush()
            try:
                value = await self._within(until_us, self._next_signal(name))
            except Expired as error:
                self._note("call_failed", place=place, error=values.told(error))
                await self.flush()
                raise
            self._note("call_done", place=place, result=value, signal=name)
            await self.flush()
        elif call.status == FAILED:
            raise Expired(f"no signal {name!r} came in time")
        else:
            value = call.result
        return values.typed(value, type_, f"the signal {name}")

    async def _next_signal(self, name: str) -> Any:
        waiting = self._signals.get(name)
        if waiting:
            return waiting.popleft()
        listener: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        listeners = self._listeners.setdefault(name, deque())
        listeners.append(listener)
        try:
            return await listener
        finally:
            if listener in listeners:
                listeners.remove(listener)

    async def gate(
        self, scope: Scope, question: str, choices: list[str], context: str, default: str | None, timeout_s: float
    ) -> str:
        """What a person answers; asked once, however often the workflow is interrupted."""
        place = scope.next_place()
        call = self._known(place, GATE, question)
        if call is None or call.status == STARTED:
            await self._stay()
            if call is None:
                about = {"choices": choices, "context": context}
                about |= {"default": default} if default is not None else {}
                until_us = self._deadline(timeout_s)
                self._note("call_started", place=place, kind=GATE, name=question, until_us=until_us, about=about)
                if self._policy.on_gates:
                    self._checkpoint("gate")
                await self.flush()
                call = self.flow.calls[place]
            try:
                answered = await self._within(call.until_us, self._answer(place))
            except Expired:
                if default is None:
                    self._note("call_failed", place=place, error={"type": "Expired", "message": "nobody answered"})
                    await self.flush()
                    raise
                answered = {"answer": default, "version": 0}
            self._note("call_done", place=place, result=answered["answer"], inbox_version=answered["version"])
            await self.flush()
            return str(answered["answer"])
        if call.status == FAILED:
            raise Expired(f"nobody answered {question!r} in time")
        return str(call.result)

    async def _answer(self, place: str) -> Mapping[str, Any]:
        if place in self._early:
            return self._early.pop(place)
        answered: asyncio.Future[Mapping[str, Any]] = asyncio.get_running_loop().create_future()
        self._answers[place] = answered
        try:
            return await answered
        finally:
            self._answers.pop(place, None)

    def wish(self, record: Record) -> None:
        """Something from the workflow's inbox; asked for twice, it is done once."""
        if record.version <= self._wished:
            return
        self._wished = record.version
        data = {**record.data, "version": record.version}
        if record.type == "signal_sent":
            name, value = data["name"], data.get("value")
            self._note("flow_signalled", name=name, value=value, inbox_version=record.version)
            self._flush_soon()
            listener = next((each for each in self._listeners.get(name, ()) if not each.done()), None)
            if listener is not None:
                listener.set_result(value)
            else:
                self._signals.setdefault(name, deque()).append(value)
        elif record.type in ("question_answered", "call_settled"):
            place = data["id"] if record.type == "question_answered" else data["place"]
            answered = self._answers.get(place)
            if answered is None:
                self._early.setdefault(place, data)
            elif not answered.done():
                answered.set_result(data)
        elif record.type == "cancel_asked":
            self.let_go(CANCELLED, data.get("why", ""))
        elif record.type == "pause_asked" and record.time_us >= self._since_us:  # else it was told to go on since
            self.let_go(PAUSED, data.get("why", ""))

    def _deadline(self, timeout_s: float) -> int:
        return self._clock.now_us() + int(timeout_s * MICROSECONDS) if timeout_s else 0

    async def _within(self, until_us: int, waiting: Awaitable[Any]) -> Any:
        task = asyncio.ensure_future(waiting)
        if not until_us:
            return await task
        timer = asyncio.create_task(self._until(until_us))
        try:
            done, _ = await asyncio.wait([task, timer], return_when=asyncio.FIRST_COMPLETED)
            if task in done:
                return task.result()
            raise Expired("it did not come in time")
        finally:
            task.cancel()
            timer.cancel()
            await asyncio.gather(task, timer, return_exceptions=True)

    async def _until(self, moment_us: int) -> None:
        while (left_us := moment_us - self._clock.now_us()) > 0:  # noqa: ASYNC110 - the clock rings for nobody
            await asyncio.sleep(min(left_us / MICROSECONDS, NAP_S_MAX))

    # --- other calls -----------------------------------------------------------------------------------------

    def value(self, scope: Scope, name: str, make: Callable[[], Any]) -> Any:
        """Something that would be different in another run; the first one counts."""
        place = scope.next_place()
        call = self._known(place, VALUE, name)
        if call is not None:
            return call.result
        made = make()
        self._note("call_done", place=place, kind=VALUE, name=name, result=made)
        return made

    def publish(self, scope: Scope, published: Mapping[str, Any]) -> None:
        """Let others see values while it runs."""
        place = scope.next_place()
        if self._known(place, VALUE, "publish") is not None:
            return
        self._progress = float(published.get("progress", self._progress) or 0)
        self._note("call_done", place=place, kind=VALUE, name="publish")
        self._note("flow_published", values=values.plain(dict(published), "what is published"))
        self._flush_soon()

    def patched(self, scope: Scope, name: str) -> bool:
        """Whether this run is to do what was changed: True unless it has been past this place before the change."""
        place = scope.peek_place()
        call = self.flow.calls.get(place)
        if call is None and any(_number(each, scope.prefix) > scope.count for each in self._unseen):
            return False
        if call is not None and (call.kind, call.name) != ("patch", name):
            return False
        scope.next_place()
        self._unseen.discard(place)
        if call is None:
            self._note("call_done", place=place, kind="patch", name=name)
        return True

    async def checkpoint(self, scope: Scope, name: str) -> None:
        """Make everything so far safe, under a name."""
        place = scope.next_place()
        if self._known(place, VALUE, "checkpoint") is not None:
            return
        self._note("call_done", place=place, kind=VALUE, name="checkpoint")
        self._checkpoint("manual", name)
        await self.flush()

    def _checkpoint(self, trigger: str, name: str = "") -> None:
        number = len(self.flow.checkpoints) + 1
        self._note("flow_checkpointed", name=name or f"{trigger}-{number}", trigger=trigger, progress=self._progress)

    async def elsewhere(
        self, scope: Scope, kind: str, name: str, digest: str, about: dict[str, Any], work: Callable[[str], Any]
    ) -> Any:
        """A call whose own record lies elsewhere, as that of a child or an agent: it is taken up, never begun twice."""
        place = scope.next_place()
        call = self._known(place, kind, name, digest)
        if call is not None and call.status == DONE:
            return call.result
        if call is not None and call.status == FAILED:
            raise StepFailed(name, call.error or {})
        await self._stay()
        if call is None:
            self._note("call_started", place=place, kind=kind, name=name, digest=digest, about=about)
            await self.flush()
        crash_point(f"flow:before {kind}")
        try:
            result = await work(place)
        except StepFailed as error:
            self._note("call_failed", place=place, error={"type": error.type, "message": error.message})
            await self.flush()
            raise
        self._note("call_done", place=place, result=result)
        self._ended()
        return result


def _number(place: str, prefix: str) -> int:
    """The number of a call in a branch; 0 when it belongs to another."""
    number = place.removeprefix(prefix) if place.startswith(prefix) else ""
    return int(number) if number.isdigit() else 0
