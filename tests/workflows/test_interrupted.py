"""Steps that were interrupted: called again only if that is harmless, else somebody finds out first (I31)."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import maos
from maos.app import Maos
from maos.workflows import NOT_DONE, Found, NotWaiting, StepFailed, Workflow, key
from tests.workflows.conftest import Engine
from tests.workflows.define import Outside, eventually, workflow

Probe = Callable[[int], Any]


class Bank:
    """A step that takes a while and is interrupted in it, and a workflow around it."""

    def __init__(self, *, idempotent: bool = False, probe: Probe | None = None, retries: int = 0) -> None:
        self.outside = Outside()
        self.keys: list[str] = []

        @maos.step(idempotent=idempotent, probe=probe, retries=retries, backoff_s=0)
        async def pay(amount: int) -> str:
            self.keys.append(key())
            return f"receipt {await self.outside.slow(amount)}"

        @workflow("bank")
        async def bank(amount: int) -> str:
            try:
                return await pay(amount)
            except StepFailed as error:
                return f"{error.type or 'told'}: {error.message}"

        self.definition: Workflow[..., Any] = bank

    async def interrupt(self, engine: Engine) -> None:
        """Let an engine end while the step runs."""
        async with engine() as m:
            await m.workflows.start(self.definition, 7, id="b")
            await eventually(lambda: self.outside.seen)
        assert self.outside.seen == [7]

    async def resume(self, m: Maos) -> Any:
        self.outside.hold.set()
        return await m.workflows.start(self.definition, 7, id="b")


async def test_an_idempotent_step_is_called_again_with_the_same_key(engine: Engine) -> None:
    bank = Bank(idempotent=True)
    await bank.interrupt(engine)
    async with engine() as m:
        assert await (await bank.resume(m)).result() == "receipt 7"
    assert bank.outside.seen == [7, 7]
    assert bank.keys == ["b/1", "b/1"]


async def test_another_step_is_not_called_again_and_its_outcome_is_unknown(engine: Engine) -> None:
    bank = Bank()
    await bank.interrupt(engine)
    async with engine() as m:
        handle = await bank.resume(m)
        await eventually(lambda: handle.run.unknown)
        assert handle.run.unknown["1"].about == {"given": "7"}
    async with engine() as m:
        handle = await bank.resume(m)
        assert list((await m.workflows.get("b")).unknown) == ["1"]
    assert bank.outside.seen == [7]


@pytest.mark.parametrize(
    ("outcome", "more", "said", "seen"),
    [
        ("done", {"value": "receipt 8"}, "receipt 8", [7]),
        ("failed", {"why": "the bank says no"}, "told: the bank says no", [7]),
        ("failed", {}, "told: a person said that it failed", [7]),
        ("again", {}, "receipt 7", [7, 7]),
    ],
)
@pytest.mark.parametrize("when", ["asked", "between", "early"])
async def test_a_person_can_say_what_became_of_it(
    engine: Engine, outcome: str, more: dict[str, Any], said: str, seen: list[int], when: str
) -> None:
    """While it waits for that, between two engines, and before any engine has noticed."""
    bank = Bank()
    await bank.interrupt(engine)
    async with engine() as m:
        if when == "early":
            await m.workflows.resolve("b", "1", outcome, **more)
        else:
            handle = await bank.resume(m)
            await eventually(lambda: handle.run.unknown)
            await (m.workflows.resolve("b", "1", outcome, **more) if when == "asked" else handle.pause())
            if when == "asked":
                assert await handle.result() == said
    if when == "between":
        async with engine() as m:
            await m.workflows.resolve("b", "1", outcome, **more)
    async with engine() as m:
        assert await (await bank.resume(m)).result() == said
    assert bank.outside.seen == seen


async def test_what_was_said_of_one_try_does_not_count_for_the_next(engine: Engine) -> None:
    """I31: said twice by mistake, with the step done again and interrupted again in between."""
    bank = Bank()
    await bank.interrupt(engine)
    async with engine() as m:
        for _ in range(2):
            await m.workflows.resolve("b", "1", "again")
        await m.workflows.start(bank.definition, 7, id="b")
        await eventually(lambda: bank.outside.seen == [7, 7])
    async with engine() as m:
        handle = await bank.resume(m)
        await eventually(lambda: handle.run.unknown)
        await m.workflows.resolve("b", "1", "done", value="receipt 7")
        assert await handle.result() == "receipt 7"
    assert bank.outside.seen == [7, 7]


async def test_what_a_person_said_is_not_lost_with_the_engine_that_heard_it_early(engine: Engine) -> None:
    """Mail that comes after it moves the place up to which mail was read; so it is recorded when it is heard."""
    bank = Bank()
    before = asyncio.Event()

    @workflow("late")
    async def late() -> str:
        await before.wait()
        return str(await bank.definition(7))

    before.set()
    async with engine() as m:
        await m.workflows.start(late, id="l")
        await eventually(lambda: bank.outside.seen)
    before.clear()
    async with engine() as m:
        await m.workflows.resolve("l", "1", "done", value="receipt 9")
        await m.workflows.signal("l", "anything")
        handle = await m.workflows.start(late, id="l")
        await eventually(lambda: handle.run.signals)
    before.set()
    async with engine() as m:
        assert await m.workflows.run(late, id="l") == "receipt 9"
    assert bank.outside.seen == [7]


async def test_there_is_nothing_to_settle_where_no_step_is_in_doubt(engine: Engine) -> None:
    bank = Bank()
    async with engine() as m:
        handle = await m.workflows.start(bank.definition, 7, id="b")
        await eventually(lambda: bank.outside.seen)
        await m.workflows.resolve("b", "1", "done", value="made up")  # it runs, and says itself what becomes of it
        with pytest.raises(NotWaiting, match="nothing to resolve at '2' of the workflow b"):
            await m.workflows.resolve("b", "2", "done")
        with pytest.raises(maos.InvalidInput, match="an outcome cannot be 'perhaps'"):
            await m.workflows.resolve("b", "1", "perhaps")
        await m.workflows.signal("b", "x")
        await eventually(lambda: handle.run.signals)
        bank.outside.hold.set()
        assert await handle.result() == "receipt 7"
        with pytest.raises(NotWaiting):
            await m.workflows.resolve("b", "1", "done")


@pytest.mark.parametrize("asynchronous", [True, False])
async def test_a_probe_that_finds_the_effect_gives_the_result(engine: Engine, asynchronous: bool) -> None:
    asked = []

    async def look(amount: int) -> Any:
        asked.append((amount, key()))
        return Found("receipt found")

    def look_in_a_thread(amount: int) -> Any:
        asked.append((amount, key()))
        return Found("receipt found")

    bank = Bank(probe=look if asynchronous else look_in_a_thread)
    await bank.interrupt(engine)
    async with engine() as m:
        assert await (await bank.resume(m)).result() == "receipt found"
    assert asked == [(7, "b/1")]
    assert bank.outside.seen == [7]


async def test_a_probe_that_finds_nothing_has_the_step_done(engine: Engine) -> None:
    bank = Bank(probe=lambda amount: NOT_DONE)
    await bank.interrupt(engine)
    async with engine() as m:
        handle = await bank.resume(m)
        assert await handle.result() == "receipt 7"
        assert handle.run.steps["1"].tries == 2
    assert bank.outside.seen == [7, 7]


@pytest.mark.parametrize("probe", [lambda amount: None, lambda amount: 1 / 0], ids=["silent", "failing"])
async def test_a_probe_that_cannot_tell_leaves_it_to_a_person(engine: Engine, probe: Probe) -> None:
    bank = Bank(probe=probe)
    await bank.interrupt(engine)
    async with engine() as m:
        handle = await bank.resume(m)
        await eventually(lambda: handle.run.unknown)
        failed = handle.run.unknown["1"].error or {"message": "division by zero"}
        assert failed["message"] == "division by zero"
        await m.workflows.resolve("b", "1", "done", value="receipt 8")
        assert await handle.result() == "receipt 8"


async def test_a_probe_can_call_steps_and_they_are_no_calls_of_the_workflow(engine: Engine) -> None:
    @maos.step
    async def ask(amount: int) -> Any:
        return Found(f"receipt {amount}")

    bank = Bank(probe=ask)
    await bank.interrupt(engine)
    async with engine() as m:
        handle = await bank.resume(m)
        assert await handle.result() == "receipt 7"
        assert list(handle.run.steps) == ["1"]


async def test_a_step_that_had_ended_when_the_engine_was_closed_is_not_in_doubt(engine: Engine) -> None:
    """What was noted is written before an engine goes."""
    outside = Outside()

    @maos.step
    async def pay() -> str:
        return str(outside.did("paid"))

    @workflow("closing")
    async def closing() -> str:
        said = await pay()
        if len(outside.seen) == 1:
            asyncio.get_running_loop().call_soon(ended.set)
            await asyncio.Event().wait()
        return said

    ended = asyncio.Event()
    async with engine() as m:
        await m.workflows.start(closing, id="c")
        await ended.wait()
    outside.seen.append("restarted")
    async with engine() as m:
        assert await m.workflows.run(closing, id="c") == "paid"
    assert outside.seen == ["paid", "restarted"]


async def test_secrets_are_not_written_into_what_a_person_is_shown(m: Maos) -> None:
    @maos.step
    async def login(token: str) -> None:
        return None

    secret = "ghp_" + "a1B2" * 9

    @workflow("login")
    async def run() -> None:
        await login(secret)

    handle = await m.workflows.start(run, id="s")
    await handle.result()
    assert secret not in str(handle.run.steps["1"].about)


async def test_a_step_that_the_workflow_stopped_waiting_for_is_not_begun_again(engine: Engine) -> None:
    """A time limit around a step passes again when the workflow runs again."""
    outside = Outside()

    @maos.step(idempotent=True)
    async def slow() -> str:
        return str(await outside.slow("begun"))

    @workflow("limited")
    async def limited() -> str:
        try:
            async with asyncio.timeout(0.05):
                await slow()
            said = "it was in time"
        except TimeoutError:
            said = "it was late"
        await maos.workflows.signal("go")
        return said

    async with engine() as m:
        handle = await m.workflows.start(limited, id="l")
        await eventually(lambda: handle.run.waiting)
        assert handle.run.steps["1"].status == "abandoned"
    outside.hold.set()
    async with engine() as m:
        await m.workflows.signal("l", "go")
        assert await m.workflows.run(limited, id="l") == "it was late"
    assert outside.seen == ["begun"]
