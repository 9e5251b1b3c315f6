"""Time limits of steps and around steps: what may have taken effect is neither repeated nor forgotten (I31)."""

import asyncio
import contextlib
import threading
from functools import partial
from typing import Any

import pytest

import maos
from maos.app import Maos
from maos.engine.recorder import Recorder
from maos.model.workflow import WorkflowRun
from maos.workflows import NOT_DONE, Found, Handle, StepFailed, signal
from maos.workflows.definition import StepDefinition
from tests.workflows.conftest import Engine
from tests.workflows.define import Outside, eventually, workflow


class Till:
    """A plain function that takes as long as the test wants, in a thread, as a step with a short time limit."""

    def __init__(self, **options: Any) -> None:
        self.begun = 0
        self.charged = 0
        self.go = threading.Event()
        self.failing: Exception | None = None
        self.step: StepDefinition[..., Any] = maos.step(timeout_s=0.02, backoff_s=0, name="charge", **options)(
            self.charge
        )

    def charge(self) -> str:
        self.begun += 1
        self.go.wait(30)
        if self.failing is not None:
            raise self.failing
        self.charged += 1
        return f"receipt {self.charged}"

    @property
    def definition(self) -> Any:
        @workflow("till")
        async def till() -> str:
            try:
                return str(await self.step())
            except StepFailed as error:
                return f"{error.type}: {error.message}"

        return till


async def test_a_thread_that_takes_too_long_is_in_doubt_until_it_says_what_became_of_it(m: Maos) -> None:
    """I31: it cannot be stopped, so it is not begun beside itself, nor said to have failed."""
    till = Till(retries=3)
    handle = await m.workflows.start(till.definition, id="t")
    await eventually(lambda: handle.run.unknown)
    assert handle.run.unknown["1"].error == {"type": "TimeoutError", "message": "it took longer than 0.02 s"}
    till.go.set()
    assert await handle.result() == "receipt 1"
    assert (till.begun, till.charged) == (1, 1)
    assert handle.run.steps["1"].status == "done"


async def test_a_thread_that_fails_late_has_failed_once(m: Maos) -> None:
    till = Till(retries=1)
    till.failing = ValueError("no money")
    handle = await m.workflows.start(till.definition, id="t")
    await eventually(lambda: handle.run.unknown)
    till.go.set()
    assert await handle.result() == "ValueError: no money"
    assert till.begun == 2
    assert handle.run.steps["1"].failures == 1


@pytest.mark.parametrize(
    ("outcome", "said", "charged"),
    [("done", "told", 0), ("failed", ": the bank says no", 0), ("again", "receipt 1", 1)],
)
async def test_a_person_can_settle_a_thread_that_takes_too_long(m: Maos, outcome: str, said: str, charged: int) -> None:
    """Even then it is not begun beside itself: another try waits for the end of this one."""
    till = Till()
    handle = await m.workflows.start(till.definition, id="t")
    await eventually(lambda: handle.run.unknown)
    await m.workflows.resolve("t", "1", outcome, value="told", why="the bank says no")
    if outcome == "again":
        await eventually(lambda: handle.run.steps["1"].tries == 2)
        await eventually(lambda: handle.run.unknown)  # it takes too long again, and is in doubt again
        assert till.charged == 0
        till.go.set()
    assert await handle.result() == said
    till.go.set()
    assert (till.begun, till.charged) in ((1, charged), (1, 1))


async def test_a_thread_is_awaited_though_its_workflow_was_paused_and_gone_on_with(m: Maos) -> None:
    till = Till()
    definition = till.definition
    handle = await m.workflows.start(definition, id="t")
    await eventually(lambda: handle.run.unknown)
    await handle.pause()
    handle = await m.workflows.resume("t", workflow=definition)
    await m.workflows.resolve("t", "1", "again")
    await eventually(lambda: handle.run.steps["1"].tries == 2)
    till.go.set()
    assert await handle.result() == "receipt 1"
    assert till.begun == 1


async def test_an_idempotent_thread_is_tried_again_only_when_it_has_ended(m: Maos) -> None:
    till = Till(idempotent=True, retries=1000)
    handle = await m.workflows.start(till.definition, id="t")
    await eventually(lambda: handle.run.steps and handle.run.steps["1"].failures >= 2)
    assert till.begun == 1
    till.go.set()
    assert await handle.result() == "receipt 1"
    assert till.begun == 1


def is_unknown(handle: Handle, tries: int) -> bool:
    return bool(handle.run.unknown) and handle.run.unknown["1"].tries == tries


async def test_a_step_that_was_cancelled_by_its_limit_is_in_doubt_unless_it_is_idempotent(m: Maos) -> None:
    """What it had begun may have taken effect when it was cancelled."""
    outside = Outside()

    @maos.step(timeout_s=0.02, retries=1, backoff_s=0)
    async def pay() -> str:
        return str(await outside.slow("paid"))

    @workflow("paying")
    async def paying() -> str:
        return str(await pay())

    handle = await m.workflows.start(paying, id="p")
    for tries in (1, 2):
        await eventually(partial(is_unknown, handle, tries))
        assert len(outside.seen) == tries
        if tries == 1:
            await m.workflows.resolve("p", "1", "again")
    await m.workflows.resolve("p", "1", "done", value="settled")
    assert await handle.result() == "settled"


@pytest.mark.parametrize(
    ("found", "said", "tries"),
    [(Found("found"), "found", 1), (NOT_DONE, "TimeoutError: it took longer than 0.02 s", 2)],
    ids=["found", "not done"],
)
async def test_a_probe_says_what_became_of_a_step_that_took_too_long(
    m: Maos, found: Any, said: str, tries: int
) -> None:
    """If nothing did, it is a try that failed, and tried again as often as its author said."""
    outside = Outside()

    @maos.step(timeout_s=0.02, retries=1, backoff_s=0, probe=lambda: found)
    async def pay() -> str:
        return str(await outside.slow("paid"))

    @workflow("paying")
    async def paying() -> str:
        try:
            return str(await pay())
        except StepFailed as error:
            return f"{error.type}: {error.message}"

    assert await m.workflows.run(paying, id="p") == said
    assert len(outside.seen) == tries


@pytest.mark.parametrize("probed", [False, True])
async def test_a_limit_around_a_step_in_doubt_pauses_the_workflow(engine: Engine, probed: bool) -> None:
    """I31: whoever goes on without knowing would go on with a wrong record."""
    outside = Outside()

    async def never() -> None:
        await asyncio.Event().wait()

    @maos.step(probe=never if probed else None)
    async def pay() -> str:
        return str(await outside.slow("paid"))

    @workflow("limited")
    async def limited() -> str:
        try:
            async with asyncio.timeout(0.05 if outside.seen else 60):
                return str(await pay())
        except TimeoutError:
            return "gave up"

    async with engine() as m:
        await m.workflows.start(limited, id="l")
        await eventually(lambda: outside.seen)
    async with engine() as m:
        flow = await (await m.workflows.resume("l", workflow=limited)).wait()
        assert (flow.status, list(flow.unknown)) == ("paused", ["1"])
        assert flow.why == "the outcome of step 1, pay, is unknown: resolve it, then resume"
        await m.workflows.resolve("l", "1", "done", value="settled")
        assert await (await m.workflows.resume("l", workflow=limited)).result() == "settled"
    assert outside.seen == ["paid"]


async def test_a_limit_that_ends_while_a_signal_is_written_is_not_heard_with_it(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The function and its record say the same: it heard the signal, or it did not."""
    append = Recorder.append

    async def late(self: Recorder[WorkflowRun], *events: Any, **more: Any) -> None:
        if any("signal_version" in event.data for event in events):
            with contextlib.suppress(RuntimeError):  # it is over: the function has gone on
                limit.reschedule(asyncio.get_running_loop().time())
            await asyncio.sleep(0.05)
        await append(self, *events, **more)

    monkeypatch.setattr(Recorder, "append", late)
    outside = Outside()

    @maos.step
    async def do(what: str) -> str:
        return str(outside.did(what))

    limit: asyncio.Timeout

    @workflow("shop")
    async def shop() -> str:
        nonlocal limit
        try:
            async with asyncio.timeout(60) as limit:
                await signal("paid")
        except TimeoutError:
            await do("refund")
        else:
            await do("ship")
        await signal("end")
        return "ended"

    async with engine() as m:
        handle = await m.workflows.start(shop, id="s")
        await eventually(lambda: handle.run.waiting)
        await m.workflows.signal("s", "paid")
        await eventually(lambda: outside.seen and handle.run.waiting)
    async with engine() as m:
        await m.workflows.signal("s", "end")
        assert await m.workflows.run(shop, id="s") == "ended"
    assert len(outside.seen) == 1
