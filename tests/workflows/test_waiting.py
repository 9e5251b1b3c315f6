"""Sleeps, signals and questions: waited for over any number of restarts."""

import asyncio
import dataclasses
from typing import Any

import pytest

import maos
from maos.app import Maos
from maos.model.message import inbox
from maos.workflows import NotWaiting, Workflow, gate, gather, signal, sleep
from maos_testing.manual_clock import ManualClock
from tests.workflows.conftest import Engine
from tests.workflows.define import eventually, workflow

HOUR_S = 3600


# --- sleeps ----------------------------------------------------------------------------------------------------


@workflow("sleeper")
async def sleeper(seconds: float) -> str:
    await sleep(seconds)
    return "awake"


async def test_a_sleep_ends_when_it_should_though_nobody_ran_it_for_a_while(timed: Engine, clock: ManualClock) -> None:
    async with timed() as m:
        handle = await m.workflows.start(sleeper, 24 * HOUR_S, id="s")
        await eventually(lambda: handle.run.waiting)
        clock.advance(23 * HOUR_S)
    clock.advance(HOUR_S / 2)
    async with timed() as m:
        handle = await m.workflows.start(sleeper, 24 * HOUR_S, id="s")
        await asyncio.sleep(0.02)
        assert handle.run.waiting, "it was not slept long enough"
        assert handle.run.is_open
        clock.advance(HOUR_S / 2)
        assert await handle.result() == "awake"


async def test_a_sleep_that_ended_while_nobody_ran_it_is_over_at_once(timed: Engine, clock: ManualClock) -> None:
    async with timed() as m:
        handle = await m.workflows.start(sleeper, HOUR_S, id="s")
        await eventually(lambda: handle.run.waiting)
    clock.advance(2 * HOUR_S)
    async with timed() as m:
        assert await m.workflows.run(sleeper, HOUR_S, id="s") == "awake"


async def test_a_sleeper_looks_at_a_clock_that_was_put_right(timed: Engine, clock: ManualClock) -> None:
    async with timed() as m:
        handle = await m.workflows.start(sleeper, 1000 * HOUR_S, id="s")
        await eventually(lambda: handle.run.waiting)
        clock.advance(-HOUR_S)
        await asyncio.sleep(0.01)
        assert handle.run.waiting
        clock.advance(1001 * HOUR_S)
        assert await handle.result() == "awake"


# --- signals ----------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Payment:
    amount: int


@workflow("paid")
async def paid(times: int) -> list[int]:
    return [(await signal("paid", type=Payment)).amount for _ in range(times)]


async def test_signals_are_heard_in_the_order_in_which_they_were_sent(engine: Engine) -> None:
    """Before anybody waits, while somebody does, and while nobody runs it."""
    async with engine() as m:
        handle = await m.workflows.start(paid, 5, id="p")
        await m.workflows.signal("p", "paid", Payment(1))
        await m.workflows.signal("p", "other", "ignored")
        await m.workflows.signal("p", "paid", {"amount": 2})
        await eventually(lambda: handle.run.done == 2)
    async with engine() as m:
        for amount in (3, 4):
            await m.workflows.signal("p", "paid", Payment(amount))
    async with engine() as m:
        handle = await m.workflows.start(paid, 5, id="p")
        await eventually(lambda: handle.run.done == 4)
        await m.workflows.signal("p", "paid", Payment(5))
        assert await handle.result() == [1, 2, 3, 4, 5]


async def test_a_signal_sent_twice_under_one_key_is_heard_once(engine: Engine) -> None:
    async with engine() as m:
        handle = await m.workflows.start(paid, 2, id="p")
        for _ in range(3):
            await m.workflows.signal("p", "paid", Payment(1), key="invoice-1")
        await eventually(lambda: handle.run.done == 1)
    async with engine() as m:
        await m.workflows.signal("p", "paid", Payment(1), key="invoice-1")
        with pytest.raises(maos.KeyReused):
            await m.workflows.signal("p", "paid", Payment(9), key="invoice-1")
        await m.workflows.signal("p", "paid", Payment(2), key="invoice-2")
        assert await m.workflows.run(paid, 2, id="p") == [1, 2]


async def test_nothing_can_be_sent_to_a_workflow_that_has_ended_or_never_was(m: Maos) -> None:
    @workflow("short")
    async def short() -> None:
        return None

    await m.workflows.run(short, id="s")
    with pytest.raises(NotWaiting, match="the workflow s is completed"):
        await m.workflows.signal("s", "late")
    with pytest.raises(maos.NotFound):
        await m.workflows.signal("nobody", "hello")
    with pytest.raises(maos.InvalidInput, match="the signal odd cannot be recorded"):
        await m.workflows.signal("s", "odd", object())


async def test_a_signal_that_does_not_come_in_time_is_given_up_in_every_run(timed: Engine, clock: ManualClock) -> None:
    @workflow("impatient")
    async def impatient() -> list[str]:
        said = []
        for _ in range(2):
            try:
                await signal("paid", timeout_s=60)
                said.append("paid")
            except TimeoutError as error:
                said.append(str(error))
        await signal("go")
        return said

    async with timed() as m:
        handle = await m.workflows.start(impatient, id="i")
        await eventually(lambda: handle.run.waiting)
        clock.advance(59)
    clock.advance(2)
    async with timed() as m:
        handle = await m.workflows.start(impatient, id="i")
        await eventually(lambda: handle.run.done == 1)
        await m.workflows.signal("i", "paid")
        await eventually(lambda: handle.run.done == 2)
    async with timed() as m:
        await m.workflows.signal("i", "go")
        assert await m.workflows.run(impatient, id="i") == ["no signal 'paid' came in time", "paid"]


@pytest.mark.parametrize("timeout_s", [0, HOUR_S])
async def test_a_signal_that_came_as_somebody_stopped_waiting_goes_to_the_next(m: Maos, timeout_s: float) -> None:
    tasks = []

    @workflow("handed-on")
    async def handed_on() -> Any:
        tasks.extend(asyncio.create_task(signal("paid", timeout_s=timeout_s)) for _ in range(2))
        await asyncio.wait(tasks)
        return await tasks[1]

    handle = await m.workflows.start(handed_on, id="h")
    await eventually(lambda: len(handle.run.waiting) == 2)
    other = await m.workflows.start(handed_on, id="other")
    await m.workflows.signal("other", "paid", 1)
    [sent] = [each async for each in m.journal.read(inbox("other"))]
    m.workflows._engine._executions["h"].control.receive(sent)
    tasks[0].cancel()
    assert await handle.result() == 1
    await other.pause()


async def test_two_branches_that_wait_for_one_name_lose_and_double_nothing_in_a_crash(engine: Engine) -> None:
    """Each signal is consumed by its place in the inbox, not by its turn."""
    hold = asyncio.Event()

    async def with_limit() -> Any:
        return await signal("paid", timeout_s=HOUR_S)

    async def without() -> Any:
        found = await signal("paid")
        await hold.wait()
        return found

    @workflow("pair")
    async def pair() -> list[Any]:
        return await gather(with_limit(), without(), without())

    async with engine() as m:
        handle = await m.workflows.start(pair, id="p")
        await eventually(lambda: len(handle.run.waiting) == 3)
        for n in (1, 2):
            await m.workflows.signal("p", "paid", n)
        await eventually(lambda: handle.run.done == 2)
    hold.set()
    async with engine() as m:
        await m.workflows.signal("p", "paid", 3)
        assert sorted(await m.workflows.run(pair, id="p")) == [1, 2, 3]


async def test_a_signal_of_another_type_than_is_waited_for_fails_the_workflow(m: Maos) -> None:
    handle = await m.workflows.start(paid, 1, id="p")
    await m.workflows.signal("p", "paid", "seven")
    flow = await handle.wait()
    assert flow.error is not None
    assert "the signal 'paid' is not what its signature says" in flow.error["message"]


# --- questions ----------------------------------------------------------------------------------------------------


def asking(**how: Any) -> Workflow[..., Any]:
    @workflow("asking")
    async def asking() -> str:
        try:
            return await gate("Publish it?", **how)
        except TimeoutError as error:
            return str(error)

    return asking


async def test_a_question_is_asked_once_and_the_first_answer_counts(engine: Engine) -> None:
    definition = asking(choices=["yes", "no"], context="version 2")
    async with engine() as m:
        handle = await m.workflows.start(definition, id="q")
        await eventually(lambda: handle.run.waiting)
        asked = handle.run.waiting["1"]
        assert (asked.name, asked.about) == ("Publish it?", {"choices": ["yes", "no"], "context": "version 2"})
    async with engine() as m:
        handle = await m.workflows.start(definition, id="q")
        with pytest.raises(maos.InvalidInput, match="'perhaps' is no answer to 'Publish it\\?'"):
            await m.workflows.answer("q", "1", "perhaps")
        with pytest.raises(NotWaiting, match="asks nothing at '2'") as told:
            await m.workflows.answer("q", "2", "yes")
        assert told.value.hint == "open now: 1 (Publish it?)"
    async with engine() as m:
        await m.workflows.answer("q", "1", "no")
        await m.workflows.answer("q", "1", "yes")
    async with engine() as m:
        assert await m.workflows.run(definition, id="q") == "no"
        types = [record.type async for record in m.journal.read("workflow/q")]
    assert types.count("step_started") == 1


async def test_an_answer_while_it_is_waited_for_is_heard_at_once(m: Maos) -> None:
    handle = await m.workflows.start(asking(), id="q")
    await eventually(lambda: handle.run.waiting)
    await m.workflows.answer("q", "1", "as you like")
    assert await handle.result() == "as you like"


async def test_nobody_answers_in_time_and_the_default_counts(timed: Engine, clock: ManualClock) -> None:
    definition = asking(choices=["yes", "no"], default="no", timeout_s=HOUR_S)
    async with timed() as m:
        handle = await m.workflows.start(definition, id="q")
        await eventually(lambda: handle.run.waiting)
        clock.advance(HOUR_S - 1)
    async with timed() as m:
        handle = await m.workflows.start(definition, id="q")
        await asyncio.sleep(0.02)
        assert handle.run.waiting
        clock.advance(2)
        assert await handle.result() == "no"
        with pytest.raises(NotWaiting):
            await m.workflows.answer("q", "1", "yes")


async def test_nobody_answers_in_time_and_there_is_no_default(timed: Engine, clock: ManualClock) -> None:
    definition = asking(timeout_s=HOUR_S)
    async with timed() as m:
        handle = await m.workflows.start(definition, id="q")
        await eventually(lambda: handle.run.waiting)
        clock.advance(2 * HOUR_S)
        assert await handle.result() == "no answer to 'Publish it?' came in time"


async def test_a_default_has_to_be_one_of_the_choices(m: Maos) -> None:
    handle = await m.workflows.start(asking(choices=["yes"], default="no"), id="q")
    flow = await handle.wait()
    assert flow.error is not None
    assert flow.error["message"] == "the default 'no' is not one of the choices"


async def test_an_answer_is_not_lost_with_the_engine_that_heard_it_early(engine: Engine) -> None:
    hold = asyncio.Event()
    hold.set()

    @workflow("late")
    async def late() -> str:
        await hold.wait()
        return await gate("Publish it?")

    async with engine() as m:
        handle = await m.workflows.start(late, id="q")
        await eventually(lambda: handle.run.waiting)
    hold.clear()
    async with engine() as m:
        await m.workflows.answer("q", "1", "yes")
        await m.workflows.signal("q", "anything")
        handle = await m.workflows.start(late, id="q")
        await eventually(lambda: handle.run.signals)
    hold.set()
    async with engine() as m:
        assert await m.workflows.run(late, id="q") == "yes"
