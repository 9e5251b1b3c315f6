"""Steps: called once, recorded, and never called again; what they return is what a later run gets."""

import asyncio
import dataclasses
import enum
import itertools
import math
import threading
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import pydantic
import pytest

import maos
from maos.app import Maos
from maos.workflows import StepFailed, WorkflowFailed, key, signal
from maos_testing.manual_clock import ManualClock
from tests.workflows.conftest import Engine
from tests.workflows.define import Outside, eventually, workflow


async def test_a_step_is_recorded_once_and_never_called_again(engine: Engine) -> None:
    """R-1001, I29."""
    outside = Outside()

    @maos.step
    async def charge(amount: int) -> str:
        outside.did(amount)
        return f"charged {amount}"

    @workflow("billing")
    async def billing() -> list[str]:
        first = await charge(1)
        await signal("go")
        return [first, await charge(2)]

    async with engine() as m:
        handle = await m.workflows.start(billing, id="b")
        await eventually(lambda: handle.run.waiting)
    assert outside.seen == [1]
    async with engine() as m:
        await m.workflows.signal("b", "go")
        assert await m.workflows.run(billing, id="b") == ["charged 1", "charged 2"]
        assert outside.seen == [1, 2]
        assert await m.workflows.run(billing, id="b") == ["charged 1", "charged 2"]
    assert outside.seen == [1, 2]


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Point:
    x: int
    at: datetime
    tags: tuple[str, ...] = ()


class Order(msgspec.Struct):
    name: str
    points: list[Point]
    body: bytes = b""


NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
VALUES: list[tuple[Any, Any]] = [
    (None, None),
    (int, 7),
    (int, 1 << 70),
    (float, 0.5),
    (bool, True),
    (str, "grün \N{SNOWMAN}"),
    (bytes, b"\x00\xff"),
    (datetime, NOON),
    (timedelta, timedelta(seconds=90)),
    (Decimal, Decimal("1.10")),
    (UUID, UUID(int=7)),
    (Path, Path("/tmp/x")),
    (Colour, Colour.RED),
    (Point, Point(1, NOON, ("a", "b"))),
    (Order, Order("o", [Point(1, NOON)], b"x")),
    (list[Point], [Point(1, NOON)]),
    (dict[str, Order], {"a": Order("o", [])}),
    (dict[int, str], {1: "one"}),
    (tuple[int, str], (1, "a")),
    (set[int], {3, 1, 2}),
    (Point | None, None),
    (Point | None, Point(1, NOON)),
]


@pytest.mark.parametrize(("annotation", "value"), VALUES, ids=lambda each: getattr(each, "__name__", str(each))[:30])
async def test_a_result_is_the_same_in_the_first_run_and_in_every_later_one(
    m: Maos, annotation: Any, value: Any
) -> None:
    seen: list[Any] = []

    async def made() -> Any:
        return value

    made.__annotations__["return"] = annotation
    step = maos.step(made)

    @workflow("typed")
    async def typed() -> None:
        seen.append(await step())
        await signal("go")

    handle = await m.workflows.start(typed, id="t")
    await eventually(lambda: handle.run.waiting)
    await handle.pause()
    await m.workflows.signal("t", "go")
    await m.workflows.run(typed, id="t")
    assert seen == [value, value]
    assert [type(each) for each in seen] == [type(value)] * 2


async def test_without_an_annotation_a_result_is_plain_data_in_every_run(m: Maos) -> None:
    seen: list[Any] = []

    @maos.step
    async def made():  # type: ignore[no-untyped-def]  # that it says nothing is the point
        return {"pair": (1, 2), "point": Point(1, NOON), 3: {2, 1}}

    @workflow("plain")
    async def plain() -> None:
        seen.append(await made())
        await signal("go")

    handle = await m.workflows.start(plain, id="p")
    await eventually(lambda: handle.run.waiting)
    await handle.pause()
    await m.workflows.signal("p", "go")
    await m.workflows.run(plain, id="p")
    expected = {"pair": [1, 2], "point": {"x": 1, "at": "2030-01-01T12:00:00Z", "tags": []}, "3": [1, 2]}
    assert seen == [expected, expected]


async def test_arguments_of_a_workflow_are_what_its_signature_says(m: Maos) -> None:
    seen: list[Any] = []

    @workflow("argued")
    async def argued(point: Point, *more: Point, at: datetime, **others: bytes) -> Order:
        seen.append((point, more, at, others))
        return Order("o", [point])

    given = Point(1, NOON)
    result = await m.workflows.run(argued, given, given, at=NOON, rest=b"\xff", id="a")
    assert seen == [(given, (given,), NOON, {"rest": b"\xff"})]
    assert result == Order("o", [given])
    assert await m.workflows.run(argued, given, given, at=NOON, rest=b"\xff", id="a") == result


async def test_a_workflow_that_cannot_be_called_so_is_refused_before_it_begins(m: Maos) -> None:
    @workflow("argued")
    async def argued(n: int) -> int:
        return n

    with pytest.raises(maos.InvalidInput, match="missing a required argument: 'n'"):
        await m.workflows.start(argued, id="a")
    with pytest.raises(maos.InvalidInput, match=r"the argument n .*Expected `int`, got `str`"):
        await m.workflows.start(argued, "seven", id="a")
    with pytest.raises(maos.NotFound):
        await m.workflows.get("a")


class Unfit:
    pass


NESTED: list[Any] = []
for _ in range(200):
    NESTED = [NESTED]


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (Unfit(), "a Unfit is no plain data"),
        ([math.nan], "not finite"),
        (math.inf, "not finite"),
        ("\ud800", "surrogates not allowed"),
        (NESTED, "too deep"),
    ],
    ids=["class", "nan", "infinite", "surrogate", "deep"],
)
async def test_a_result_that_cannot_be_recorded_fails_the_step_and_is_not_tried_again(
    m: Maos, value: Any, why: str
) -> None:
    outside = Outside()

    @maos.step(retries=3, backoff_s=0)
    async def made() -> Any:
        outside.did("made")
        return value

    @workflow("unfit")
    async def unfit() -> str:
        try:
            await made()
        except StepFailed as error:
            return str(error)
        return "recorded"

    said = await m.workflows.run(unfit)
    assert said.startswith("made failed: InvalidInput: what the step made returns cannot be recorded")
    assert why in said
    assert outside.seen == ["made"]


async def test_a_result_that_is_not_what_the_signature_says_fails_the_step(m: Maos) -> None:
    @maos.step
    async def made() -> int:
        return "seven"  # type: ignore[return-value]

    @workflow("wrong")
    async def wrong() -> int:
        return await made()

    with pytest.raises(WorkflowFailed, match=r"is not what its signature says: Expected `int`, got `str`"):
        await m.workflows.run(wrong)


async def test_a_workflow_whose_result_cannot_be_recorded_has_failed(m: Maos) -> None:
    """I32: it does not stay open for ever."""

    @workflow("unfit")
    async def unfit() -> Any:
        return Unfit()

    with pytest.raises(WorkflowFailed, match="cannot be recorded"):
        await m.workflows.run(unfit, id="u")
    assert (await m.workflows.get("u")).status == "failed"


async def test_arguments_that_cannot_be_recorded_are_refused(m: Maos) -> None:
    @maos.step
    async def use(it: Any) -> None:
        raise AssertionError("it is not called")

    @workflow("unfit")
    async def unfit() -> None:
        await use(Unfit())

    with pytest.raises(WorkflowFailed, match="an argument of use cannot be recorded"):
        await m.workflows.run(unfit)


async def test_a_step_that_fails_can_be_caught_and_is_not_called_again(engine: Engine) -> None:
    outside = Outside()

    @maos.step
    async def fetch(url: str) -> str:
        outside.did(url)
        raise ConnectionError(f"{url} is down")

    @workflow("caught")
    async def caught() -> list[str]:
        try:
            await fetch("a")
        except StepFailed as error:
            said = [error.name, error.type, error.message]
        await signal("go")
        return said

    async with engine() as m:
        handle = await m.workflows.start(caught, id="c")
        await eventually(lambda: handle.run.waiting)
    async with engine() as m:
        await m.workflows.signal("c", "go")
        assert await m.workflows.run(caught, id="c") == ["fetch", "ConnectionError", "a is down"]
    assert outside.seen == ["a"]


async def test_a_step_that_nobody_catches_fails_the_workflow(m: Maos) -> None:
    @maos.step
    async def fetch() -> str:
        raise ConnectionError("down")

    @workflow("failing")
    async def failing() -> str:
        return await fetch()

    with pytest.raises(WorkflowFailed, match="f is failed: StepFailed: fetch failed: ConnectionError: down"):
        await m.workflows.run(failing, id="f")
    flow = await m.workflows.get("f")
    error = flow.error or {}
    assert (flow.status, error["type"], error["message"], error["step"]) == (
        "failed", "StepFailed", "fetch failed: ConnectionError: down", "1",
    )  # fmt: skip


async def test_a_step_is_tried_again_after_pauses_that_double_and_outlive_the_engine(
    timed: Engine, clock: ManualClock
) -> None:
    times: list[float] = []

    @maos.step(retries=3, backoff_s=10)
    async def fetch() -> str:
        times.append(clock.now_us() / 1e6)
        if len(times) < 4:
            raise ConnectionError(f"down {len(times)}")
        return "up"

    @workflow("tried")
    async def tried() -> str:
        return await fetch()

    async with timed() as m:
        handle = await m.workflows.start(tried, id="t")
        await eventually(lambda: handle.run.steps and handle.run.steps["1"].until_us)
        error = handle.run.steps["1"].error or {}
        assert (error["type"], error["message"]) == ("ConnectionError", "down 1")
        clock.advance(9.9)
    async with timed() as m:
        handle = await m.workflows.start(tried, id="t")
        await asyncio.sleep(0.02)
        assert len(times) == 1, "the pause was begun again, or not kept"
        for pause_s in (0.1, 20, 40):
            tries = len(times)
            clock.advance(pause_s)
            await eventually(lambda tries=tries: len(times) == tries + 1)
            await eventually(lambda: not handle.run.is_open or handle.run.steps["1"].until_us)
        assert await handle.result() == "up"
        assert (handle.run.steps["1"].tries, handle.run.steps["1"].error) == (4, None)
    assert [round(later - before, 3) for before, later in itertools.pairwise(times)] == [10, 20, 40]


async def test_a_step_fails_for_good_when_its_tries_are_used_up_also_across_restarts(
    timed: Engine, clock: ManualClock
) -> None:
    outside = Outside()

    @maos.step(retries=2, backoff_s=1)
    async def fetch() -> str:
        outside.did("try")
        raise ConnectionError("down")

    @workflow("tried")
    async def tried() -> str:
        return await fetch()

    for tries in (1, 2):
        async with timed() as m:
            handle = await m.workflows.start(tried, id="t")
            await eventually(lambda handle=handle: handle.run.steps and handle.run.steps["1"].until_us)
            await eventually(lambda tries=tries: len(outside.seen) == tries)
        clock.advance(10)
    async with timed() as m:
        with pytest.raises(WorkflowFailed, match="fetch failed: ConnectionError: down"):
            await m.workflows.run(tried, id="t")
    assert len(outside.seen) == 3


async def test_a_step_that_takes_too_long_is_given_up(m: Maos) -> None:
    @maos.step(timeout_s=0.01, idempotent=True)
    async def slow() -> None:
        await asyncio.Event().wait()

    @maos.step
    async def hasty() -> None:
        raise TimeoutError("the server was slow")

    @workflow("limited")
    async def limited() -> list[str]:
        said = []
        for each in (slow, hasty):
            try:
                await each()
            except StepFailed as error:
                said.append(f"{error.type}: {error.message}")
        return said

    assert await m.workflows.run(limited) == [
        "TimeoutError: it took longer than 0.01 s",
        "TimeoutError: the server was slow",
    ]


async def test_a_plain_function_runs_in_a_thread_and_holds_up_nobody(m: Maos) -> None:
    both = threading.Barrier(2, timeout=30)
    keys: set[str] = set()

    @maos.step()
    def meet(n: int) -> int:
        keys.add(key())
        both.wait()  # would never pass if one ran after the other
        return n

    @workflow("meeting")
    async def meeting() -> list[int]:
        return await maos.workflows.gather(meet(1), meet(2))

    assert await m.workflows.run(meeting, id="m") == [1, 2]
    assert keys == {"m/1:1.1", "m/1:2.1"}


async def test_a_step_within_a_step_is_a_plain_call(m: Maos) -> None:
    @maos.step
    async def inner() -> int:
        return 1

    @maos.step
    async def outer() -> int:
        return await inner() + 1

    @workflow("nested")
    async def nested() -> int:
        return await outer()

    handle = await m.workflows.start(nested)
    assert await handle.result() == 2
    assert list(handle.run.steps) == ["1"]


async def test_a_step_that_runs_is_recorded_before_it_has_any_effect(m: Maos) -> None:
    """I31: the intent is on disk before, for steps of both kinds."""
    recorded: list[str] = []

    async def look(step_id: str) -> None:
        recorded.append((await m.workflows.get("r")).steps[step_id].status)

    once = maos.step(look)
    often = maos.step(idempotent=True)(look)

    @workflow("recorded")
    async def run() -> None:
        await once("1")
        await often("2")

    handle = await m.workflows.start(run, id="r")
    await handle.result()
    assert recorded == ["started", "started"]


async def test_an_outcome_is_on_disk_though_the_workflow_does_something_else_next(m: Maos) -> None:
    """However many outcomes come while others are being written."""
    hold = asyncio.Event()

    @maos.step
    async def work(n: int) -> int:
        for _ in range(n):
            await asyncio.sleep(0)
        return n

    @workflow("busy")
    async def busy() -> None:
        await maos.workflows.parallel(work, range(20), limit=20)
        await hold.wait()

    handle = await m.workflows.start(busy, id="b")
    await eventually(lambda: handle.run.done == 20)
    assert (await m.workflows.get("b")).done == 20
    hold.set()
    await handle.result()


async def test_a_step_that_fails_is_logged_with_stable_keys(m: Maos, caplog: pytest.LogCaptureFixture) -> None:
    @maos.step
    async def refused() -> None:
        raise ValueError("no money")

    @workflow("logged")
    async def logged() -> None:
        await refused()

    with pytest.raises(WorkflowFailed):
        await m.workflows.run(logged, id="l")
    [warning] = [each for each in caplog.records if each.name == "maos.workflows" and each.levelname == "WARNING"
                 and getattr(each, "action", "").startswith("step.")]  # fmt: skip
    found = {name: getattr(warning, name) for name in ("action", "workflow", "step", "reason")}
    assert found == {"action": "step.failed", "workflow": "l", "step": "1", "reason": "no money"}


class Item(pydantic.BaseModel):
    name: str
    price: float = pydantic.Field(gt=0)


async def test_pydantic_models_are_accepted_checked_and_returned(engine: Engine) -> None:
    """B4: as arguments and results, in lists and dictionaries, also after a restart; maos does not import pydantic."""

    @maos.step
    def double(items: list[Item]) -> list[Item]:
        return [Item(name=each.name, price=2 * each.price) for each in items]

    @maos.step
    def wrong() -> Item:
        return {"name": "x", "price": -1}  # type: ignore[return-value]

    @workflow("pricing")
    async def pricing(item: Item) -> dict[str, Item]:
        [doubled] = await double([item])
        return {"doubled": doubled}

    @workflow("unfit")
    async def unfit() -> Item:
        return await wrong()

    for _ in range(2):
        async with engine() as m:
            assert await m.workflows.run(pricing, Item(name="a", price=2), id="p") == {
                "doubled": Item(name="a", price=4)
            }
    async with engine() as m:
        with pytest.raises(maos.InvalidInput, match="greater than 0"):
            await m.workflows.start_with(pricing, [{"name": "a", "price": 0}], {})
        with pytest.raises(WorkflowFailed, match="greater than 0"):
            await m.workflows.run(unfit)
