"""Steps of a workflow that wait: for a time, a signal, or the answer of a person."""

from __future__ import annotations

import asyncio
from typing import Any

from maos.clock import MICROSECONDS, Clock
from maos.model.workflow import DONE, FAILED, GATE, SIGNAL, SLEEP, Step
from maos.workflows import values
from maos.workflows.control import Control
from maos.workflows.inbox import WorkflowInbox
from maos.workflows.record import RunRecord

NAP_S_MAX = 5.0
"""How long a sleeper sleeps before it looks at the clock again, which may be set meanwhile."""


class Expired(TimeoutError):
    """A signal or an answer did not come in time."""


async def until(clock: Clock, time_us: int) -> None:
    """Wait until the clock shows a time."""
    while (left_us := time_us - clock.now_us()) > 0:  # noqa: ASYNC110 - no clock calls back
        await asyncio.sleep(min(left_us / MICROSECONDS, NAP_S_MAX))


class Waits:
    """Waits for times, signals and answers in one workflow run."""

    def __init__(self, control: Control, record: RunRecord, inbox: WorkflowInbox, clock: Clock) -> None:
        self._control = control
        self._record = record
        self._inbox = inbox
        self._clock = clock

    async def sleep(self, step_id: str, seconds: float) -> None:
        """Wait until a time that is recorded, so a restart does not begin it again."""
        step = await self._control.recorded(step_id, SLEEP, "sleep")
        if step is not None and step.status == DONE:
            return
        until_us = step.until_us if step else self._clock.now_us() + int(seconds * MICROSECONDS)
        with self._control.waiting(step_id):
            if step is None:
                self._record.add_started(step_id, SLEEP, "sleep", until_us=until_us)
                await self._record.flush()
            await until(self._clock, until_us)
            self._record.add_completed(step_id)
            await self._record.write_outcome(step_id)

    async def signal(self, step_id: str, name: str, timeout_s: float, type_: Any) -> Any:
        """Return the next signal of a name, in the order in which they were sent."""
        step = await self._control.recorded(step_id, SIGNAL, name)
        if step is not None and step.status == FAILED:
            raise Expired(f"no signal {name!r} came in time")
        if step is not None and step.status == DONE:
            value = step.result
        else:
            value = await self._wait_for_signal(step_id, name, step, timeout_s)
        return values.typed(value, type_, f"the signal {name!r}")

    async def _wait_for_signal(self, step_id: str, name: str, step: Step | None, timeout_s: float) -> Any:
        """Return its value. Nothing is awaited once its event is added: else a time limit could end just then, and the
        record would say that the function received a signal which it did not."""
        with self._control.waiting(step_id):
            if step is None:
                self._record.add_started(step_id, SIGNAL, name, until_us=self._deadline(timeout_s))
                await self._record.flush()
            until_us = self._record.run.steps[step_id].until_us
            try:
                version, value = await self._inbox.signal(name, lambda listener: self._wait(listener, until_us))
            except Expired as error:
                self._record.add_failed(step_id, values.error_data(error))
                raise Expired(f"no signal {name!r} came in time") from error
            else:
                self._record.add_completed(step_id, value, signal=name, signal_version=version)
                return value
            finally:
                self._record.mark_new()
                self._record.flush_soon()

    async def gate(
        self, step_id: str, question: str, choices: list[str], context: str, default: str | None, timeout_s: float
    ) -> str:
        """Return what a person answers; asked once, however often the workflow is interrupted."""
        step = await self._control.recorded(step_id, GATE, question)
        if step is None or step.status not in (DONE, FAILED):
            with self._control.waiting(step_id):
                if step is None:
                    given = {"choices": choices or None, "context": context or None, "default": default}
                    about = {name: value for name, value in given.items() if value is not None}
                    until_us = self._deadline(timeout_s)
                    self._record.add_started(step_id, GATE, question, until_us=until_us, about=about)
                    await self._record.write_question(step_id)
                step = await self._wait_for_answer(step_id, default)
        if step.status == FAILED:
            raise Expired(f"no answer to {question!r} came in time")
        return str(step.result)

    async def _wait_for_answer(self, step_id: str, default: str | None) -> Step:
        until_us = self._record.run.steps[step_id].until_us
        try:
            await self._inbox.wait_for(step_id, lambda answered: self._wait(answered, until_us))
        except Expired:
            if not self._inbox.is_resolved(step_id):
                if default is None:
                    self._record.add_failed(step_id, {"type": "Expired", "message": "no answer came in time"})
                else:
                    self._record.add_completed(step_id, default)
        await self._record.flush()
        return self._record.run.steps[step_id]

    def _deadline(self, timeout_s: float) -> int:
        return self._clock.now_us() + int(timeout_s * MICROSECONDS) if timeout_s else 0

    async def _wait(self, future: asyncio.Future[None], until_us: int) -> None:
        """Wait for a future, or raise Expired at a time."""

        async def expire() -> None:
            await until(self._clock, until_us)
            if not future.done():
                future.set_exception(Expired("it did not come in time"))

        timer = asyncio.create_task(expire()) if until_us else None
        try:
            await future
        finally:
            if timer is not None:
                timer.cancel()
