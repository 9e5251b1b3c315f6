"""The life of a workflow: paused, cancelled, gone on with, from this process and from others."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

import maos
from maos.app import Maos
from maos.engine.ownership import Held
from maos.engine.recorder import Recorder
from maos.errors import LeaseLost
from maos.workflows import (
    NotWaiting,
    WorkflowFailed,
    child,
    gate,
    now,
    publish,
    random,
    signal,
    sleep,
    step,
    unique,
    values,
)
from tests.workflows.conftest import Engine
from tests.workflows.define import Outside, eventually, workflow

outside = Outside()


@pytest.fixture(autouse=True)
def fresh() -> None:
    outside.seen.clear()
    outside.hold = asyncio.Event()


@step
async def slow(what: str) -> str:
    return str(await outside.slow(what))


@maos.workflow(name="life-two-steps")
async def two_steps() -> list[str]:
    return [await slow("one"), await slow("two")]


@maos.workflow(name="life-waiting")
async def waiting() -> Any:
    return await signal("go")


@pytest.mark.parametrize("other", [False, True], ids=["here", "elsewhere"])
@pytest.mark.parametrize("leaving", ["pause", "cancel"])
async def test_a_step_that_runs_ends_before_its_workflow_is_let_go_of(
    engine: Engine, leaving: str, other: bool
) -> None:
    """Asked in the process that runs it, and in another one."""
    async with engine() as m, engine() as n:
        handle = await m.workflows.start(two_steps, id="t")
        await eventually(lambda: outside.seen)
        asked = n if other else m
        await (asked.workflows.pause("t", why="later") if leaving == "pause" else asked.workflows.cancel("t"))
        await eventually(lambda: m.workflows._engine._executions["t"].control.stop_as)
        assert handle.run.status == "running"
        outside.hold.set()
        flow = await handle.wait()
        assert flow.status == ("paused" if leaving == "pause" else "cancelled")
        assert flow.steps["1"].result == "one"
        assert list(flow.steps) == ["1"]
    async with engine() as m:
        if leaving == "pause":
            assert await (await m.workflows.resume("t")).result() == ["one", "two"]
        else:
            with pytest.raises(WorkflowFailed, match="t is cancelled"):
                await (await m.workflows.resume("t")).result()
    assert outside.seen == ["one", "two"][: 2 if leaving == "pause" else 1]


async def test_a_step_whose_beginning_is_being_written_runs_before_its_workflow_is_let_go_of(
    m: Maos, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I31: else nobody would know that it was never called."""
    append = Recorder.append

    async def late(self: Recorder[Any], *events: Any, **more: Any) -> None:
        if events[0].type == "step_started":
            writing.set()
            await asyncio.sleep(0.02)
        await append(self, *events, **more)

    writing = asyncio.Event()
    monkeypatch.setattr(Recorder, "append", late)
    outside.hold.set()
    handle = await m.workflows.start(two_steps, id="t")
    await writing.wait()
    flow = await handle.pause()
    assert (flow.status, outside.seen) == ("paused", ["one"])
    assert [call.status for call in flow.steps.values()] == ["done"]


async def test_a_workflow_that_ends_while_it_is_to_be_paused_has_ended(m: Maos) -> None:
    @workflow("one")
    async def one() -> str:
        return await slow("one")

    handle = await m.workflows.start(one)
    await eventually(lambda: outside.seen)
    pausing = asyncio.create_task(handle.pause())
    await asyncio.sleep(0)
    outside.hold.set()
    assert (await pausing).status == "completed"


async def test_a_workflow_that_nobody_runs_is_cancelled_when_it_is_taken_up(engine: Engine) -> None:
    async with engine() as m:
        handle = await m.workflows.start(two_steps, id="t")
        await eventually(lambda: outside.seen)
        outside.hold.set()
        await handle.pause()
    async with engine() as m:
        await m.workflows.cancel("t", why="not needed")
    async with engine() as m:
        flow = await (await m.workflows.resume("t")).wait()
    assert (flow.status, flow.why) == ("cancelled", "not needed")
    assert outside.seen == ["one"]


async def test_a_wish_to_pause_counts_until_somebody_says_to_go_on(engine: Engine) -> None:
    """Going on with everything is no word about one that somebody wants paused."""
    async with engine() as m:
        handle = await m.workflows.start(waiting, id="w")
        await eventually(lambda: handle.run.waiting)
    async with engine() as m:
        await m.workflows.pause("w", why="later")
    async with engine() as m:
        (handle,) = await m.workflows.resume_all()
        assert (await handle.wait()).status == "paused"
        assert await m.workflows.resume_all() == []
    async with engine() as m:
        await m.workflows.signal("w", "go", 7)
        assert await (await m.workflows.resume("w")).result() == 7


async def test_who_says_to_go_on_means_it_though_a_wish_to_pause_was_never_heard(engine: Engine) -> None:
    async with engine() as m:
        handle = await m.workflows.start(waiting, id="w")
        await eventually(lambda: handle.run.waiting)
    async with engine() as m:
        await m.workflows.pause("w")
        await m.workflows.signal("w", "other")
    async with engine() as m:
        handle = await m.workflows.resume("w")
        await eventually(lambda: handle.run.signals)
        assert not m.workflows._engine._executions["w"].control.stop_as
        await m.workflows.signal("w", "go", 7)
        assert await handle.result() == 7


async def test_a_wish_to_pause_that_was_overruled_counts_no_more(engine: Engine) -> None:
    """Whoever takes it up later goes by what the person said last, though no mail was read up to there."""
    async with engine() as m:
        handle = await m.workflows.start(waiting, id="w")
        await eventually(lambda: handle.run.waiting)
    async with engine() as m:
        await m.workflows.pause("w")
        handle = await m.workflows.resume("w")
        assert handle.run.inbox_cursor == 0
    async with engine() as m:
        await m.workflows.signal("w", "other")
        (handle,) = await m.workflows.resume_all()
        await eventually(lambda: handle.run.signals)
        assert not m.workflows._engine._executions["w"].control.stop_as
        await m.workflows.pause("w")
        assert (await handle.wait()).status == "paused"


async def test_a_paused_workflow_does_not_pause_again_for_the_same_wish(engine: Engine) -> None:
    async with engine() as m:
        handle = await m.workflows.start(waiting, id="w")
        await m.workflows.pause("w")
        assert (await handle.wait()).status == "paused"
        handle = await m.workflows.resume("w")
        await asyncio.sleep(0.02)
        assert handle.run.status == "running"
        await m.workflows.pause("w")
        assert (await handle.wait()).status == "paused"


async def test_an_id_that_exists_is_gone_on_with_and_other_arguments_are_refused(m: Maos) -> None:
    @workflow("echo")
    async def echo(n: int) -> list[Any]:
        return [n, await signal("go")]

    first, second = await asyncio.gather(
        m.workflows.start(echo, 1, id="e"), m.workflows.start(echo, 1, id="e")
    )  # fmt: skip
    with pytest.raises(maos.InvalidInput, match="there is a workflow 'e' already, a echo with other arguments"):
        await m.workflows.run(echo, 2, id="e")
    await m.workflows.signal("e", "go", "gone")
    assert await first.result() == await second.result() == [1, "gone"]
    assert await m.workflows.run(echo, 1, id="e") == [1, "gone"]
    flow = await m.workflows.get("e")
    assert flow.claims == 0


async def test_without_an_id_each_is_another(m: Maos) -> None:
    @workflow("short")
    async def short() -> None: ...

    handles = [await m.workflows.start(short) for _ in range(3)]
    assert len({handle.id for handle in handles}) == 3


async def test_a_wish_for_one_that_is_not_there_reaches_no_other_whose_id_begins_so(m: Maos) -> None:
    handle = await m.workflows.start(waiting, id="order-71")
    for wish in (
        m.workflows.signal("order-7", "go"), m.workflows.cancel("order-7"), m.workflows.pause("order-7"),
        m.workflows.answer("order-7", "1", "yes"), m.workflows.resolve("order-7", "1", "again"),
        m.workflows.get("order-7"), m.workflows.resume("order-7"), m.workflows.forget(["order-7"]),
        m.workflows.get(""),
    ):  # fmt: skip
        with pytest.raises(maos.NotFound, match=r"there is no workflow '(order-7)?'"):
            await wish
    await m.workflows.signal("order-71", "go", 71)
    assert await handle.result() == 71
    with pytest.raises(maos.NotFound, match="there is no run 'r-'"):
        await m.runs.get("r-")
    with pytest.raises(maos.InvalidInput):
        await m.workflows.start(waiting, id="not/a/name")


async def test_one_workflow_is_run_by_one_process_at_a_time(engine: Engine) -> None:
    async with engine() as m, engine() as n:
        handle = await m.workflows.start(waiting, id="w")
        for attempt in (n.workflows.start(waiting, id="w"), n.workflows.resume("w")):
            with pytest.raises(Held, match=r"workflow/w is run by process \d+"):
                await attempt
        assert await n.workflows.resume_all() == []
        await n.workflows.signal("w", "go", "from elsewhere")
        assert await handle.result() == "from elsewhere"


async def test_whoever_lost_a_workflow_to_another_process_does_nothing_more_for_it(engine: Engine) -> None:
    """I31: what the first one still does cannot be recorded, and no further step begins, whatever the author caught."""

    @workflow("stubborn")
    async def stubborn() -> list[str]:
        found = []
        for each in ("one", "two", "three"):
            try:
                found.append(await slow(each))
            except Exception:  # noqa: BLE001 - as people write
                found.append("never mind")
        return found

    async with engine() as m, engine() as n:
        first = await m.workflows.start(stubborn, id="s")
        await eventually(lambda: outside.seen)
        running = m.workflows._engine._executions["s"]
        await m.journal.release(running.recorder.lease)  # as if it had run out while the machine slept
        second = await n.workflows.start(stubborn, id="s")
        await eventually(lambda: second.run.unknown)
        outside.hold.set()
        with pytest.raises(LeaseLost):
            await first.wait()
        assert outside.seen == ["one"]
        await n.workflows.resolve("s", "1", "done", value="one")
        assert await second.result() == ["one", "two", "three"]
    assert outside.seen == ["one", "two", "three"]


async def test_everything_that_nobody_runs_is_gone_on_with_if_its_definition_is_known(engine: Engine) -> None:
    @workflow("life-unknown-here")
    async def unknown_here() -> Any:
        return await signal("go")

    async with engine() as m:
        for id in ("a", "b", "paused"):
            await m.workflows.start(waiting, id=id)
        await m.workflows.start(unknown_here, id="stranger")
        await (await m.workflows.resume("paused")).pause()
    async with engine() as m:
        handles = await m.workflows.resume_all()
        assert sorted(handle.id for handle in handles) == ["a", "b"]
        assert await m.workflows.resume_all() == []
        for handle in handles:
            await m.workflows.signal(handle.id, "go", handle.id)
        assert sorted([await handle.result() for handle in handles]) == ["a", "b"]
        assert (await m.workflows.get("stranger")).status == "running"


# --- time, chance, and what others see -------------------------------------------------------------------------------


async def test_time_and_chance_are_the_same_in_every_run(engine: Engine) -> None:
    """I15."""
    seen = []

    @workflow("chance")
    async def chance() -> list[Any]:
        seen.append([now(), unique(), random(), unique()])
        await signal("go")
        return [str(each) for each in seen[-1]]

    async with engine() as m:
        handle = await m.workflows.start(chance, id="c")
        await eventually(lambda: handle.run.waiting)
    async with engine() as m:
        await m.workflows.signal("c", "go")
        await m.workflows.run(chance, id="c")
    assert seen[0] == seen[1]
    assert seen[0][1] != seen[0][3]
    assert 0 <= seen[0][2] < 1


async def test_what_is_published_is_seen_from_outside(engine: Engine) -> None:
    @workflow("publishing")
    async def publishing() -> None:
        publish(progress=10, phase="begun")
        publish(progress=50)
        await signal("go")
        publish(phase="ended")

    async with engine() as m, engine() as n:
        handle = await m.workflows.start(publishing, id="p")
        await eventually(lambda: handle.run.waiting)
        while not (await n.workflows.get("p")).waiting:
            await asyncio.sleep(0.005)
        assert (await n.workflows.get("p")).published == {"progress": 50, "phase": "begun"}
    async with engine() as m:
        await m.workflows.signal("p", "go")
        await m.workflows.run(publishing, id="p")
        assert (await m.workflows.get("p")).published == {"progress": 50, "phase": "ended"}
        types = [record.type async for record in m.journal.read("workflow/p")]
    assert types.count("workflow_published") == 3


async def test_progress_is_a_number(m: Maos) -> None:
    @workflow("wrong")
    async def wrong() -> None:
        publish(progress="half")

    with pytest.raises(WorkflowFailed, match="progress cannot be 'half'"):
        await m.workflows.run(wrong)


# --- without a journal -----------------------------------------------------------------------------------------------


@workflow("everything")
async def everything() -> list[Any]:
    publish(progress=1)
    await sleep(0.001)
    await maos.workflows.checkpoint("here")
    return [await slow("a"), isinstance(unique(), str), now() is not None, random() < 1]


async def test_with_persistence_off_a_workflow_runs_all_the_same() -> None:
    """R-1001: as the plain function that it is, or in memory."""
    outside.hold.set()
    assert await everything() == ["a", True, True, True]
    async with maos.open(":memory:") as m:
        assert await m.workflows.run(everything) == ["a", True, True, True]
    assert outside.seen == ["a", "a"]


async def test_what_needs_somebody_else_says_that_it_needs_a_workflow() -> None:
    for call, name in ((signal("x"), "signal"), (gate("x"), "gate"), (maos.workflows.agent("x"), "agent")):
        with pytest.raises(maos.InvalidInput, match=rf"{name}\(\) works in a workflow only"):
            await call
    with pytest.raises(maos.InvalidInput, match=r"key\(\) works in a step"):
        maos.workflows.key()


async def test_a_workflow_that_is_called_within_another_is_a_part_of_it(m: Maos) -> None:
    outside.hold.set()

    @workflow("whole")
    async def whole() -> list[str]:
        return await two_steps()

    handle = await m.workflows.start(whole)
    assert await handle.result() == ["one", "two"]
    assert list(handle.run.steps) == ["1", "2"]


async def test_a_workflow_that_cancels_itself_has_failed(m: Maos) -> None:
    @workflow("suicidal")
    async def suicidal() -> None:
        raise asyncio.CancelledError

    with pytest.raises(WorkflowFailed, match="it cancelled itself"):
        await m.workflows.run(suicidal)


def test_limits_of_steps_are_not_negative() -> None:
    with pytest.raises(maos.InvalidInput, match="a limit of step 'slow' is negative"):
        maos.step(retries=-1)(slow.function)


def test_importing_maos_imports_no_workflows(tmp_path: Path) -> None:
    """Programs that only look at a database do not pay for them."""
    import subprocess

    code = "import sys, maos; print([name for name in sys.modules if name.startswith('maos.workflows')])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


async def test_a_signal_under_the_same_key_may_be_repeated_even_after_the_end(m: Maos) -> None:
    """Whoever did not hear that it was sent sends it again, with its keys in whatever order."""
    handle = await m.workflows.start(waiting, id="w")
    await m.workflows.signal("w", "go", {"a": 1, "b": 2}, key="k")
    await m.workflows.signal("w", "go", {"b": 2, "a": 1}, key="k")
    assert await handle.result() == {"a": 1, "b": 2}
    await m.workflows.signal("w", "go", {"a": 1, "b": 2}, key="k")
    with pytest.raises(maos.KeyReused):
        await m.workflows.signal("w", "go", {"a": 2}, key="k")
    for key in (None, "another"):
        with pytest.raises(NotWaiting, match="the workflow w is completed"):
            await m.workflows.signal("w", "go", key=key)
    assert await m.journal.version("inbox/w") == 1


async def test_one_that_nobody_can_run_any_more_is_cancelled_and_cleaned_up(engine: Engine) -> None:
    """Its code is gone, or another one by now, and so is that of its children."""

    @workflow("inner")
    async def inner() -> object:
        return await signal("go")

    @workflow("outer")
    async def outer() -> object:
        return await child(inner, id="i")

    async with engine() as m:
        handle = await m.workflows.start(outer, id="o")
        await eventually(lambda: "i" in m.workflows._engine._executions)
    async with engine() as m:
        with pytest.raises(maos.NotFound, match="no workflow 'outer' is defined"):
            await m.workflows.resume("o")
        await m.workflows.cancel("o", why="it is gone")
        flow = await m.workflows.get("o")
        assert (flow.status, flow.why, flow.inbox_cursor) == ("cancelled", "it is gone", 1)
        assert (await m.workflows.get("i")).status == "cancelled"
        assert await m.workflows.forget(["o", "i"]) > 0
        with pytest.raises(NotWaiting):
            await m.workflows.cancel("o")
    assert handle.id == "o"


async def test_one_that_runs_elsewhere_is_cancelled_by_whoever_runs_it(engine: Engine) -> None:
    async with engine() as m, engine() as n:
        handle = await m.workflows.start(waiting, id="w")
        await n.workflows.cancel("w", why="not needed")
        assert (await handle.wait()).status == "cancelled"
        records = [each.type async for each in n.journal.read("workflow/w")]
        assert records.count("workflow_ended") == 1


async def test_two_processes_that_run_the_same_id_have_one_result(engine: Engine) -> None:
    begun = []

    @workflow("slow")
    async def slow() -> object:
        begun.append(1)
        return await signal("go")

    async with engine() as m, engine() as n:
        both = [asyncio.create_task(each.workflows.run(slow, id="w")) for each in (m, n)]
        await eventually(lambda: m.workflows._engine._executions or n.workflows._engine._executions)
        await asyncio.sleep(0.3)  # the other one finds it begun
        await m.workflows.signal("w", "go", 7)
        assert await asyncio.gather(*both) == [7, 7]
    assert begun == [1]


async def test_two_processes_that_begin_the_same_id_at_once_have_one_result(engine: Engine) -> None:
    """Whichever is faster, and however soon it has ended."""
    begun = []

    @workflow("quick")
    async def quick(number: int) -> int:
        begun.append(number)
        return number

    async with engine() as m, engine() as n:
        for number in range(8):
            both = [each.workflows.run(quick, number, id=f"w{number}") for each in (m, n)]
            assert await asyncio.gather(*both) == [number, number]
    assert begun == list(range(8))


async def test_one_that_follows_takes_over_when_the_other_is_gone(engine: Engine) -> None:
    async with engine() as n:
        async with engine() as m:
            await m.workflows.start(waiting, id="w")
            following = asyncio.create_task(n.workflows.run(waiting, id="w"))
            await asyncio.sleep(0.3)
            assert not following.done()
        await eventually(lambda: n.workflows._engine._executions)
        await n.workflows.signal("w", "go", "over")
        assert await following == "over"


async def test_two_keys_that_are_one_as_text_are_refused(m: Maos) -> None:
    """JSON would keep one of them."""
    for value in ({1: 2, "1": 3}, [{"deep": {1.5: 2, "1.5": 3}}]):
        with pytest.raises(maos.InvalidInput, match="two of its keys are the same as text"):
            await m.workflows.start(waiting, value)
    assert values.plain({1: 2, "2": 3}, "it") == {"1": 2, "2": 3}
