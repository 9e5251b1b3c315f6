"""Several things at once in one workflow: in order, limited, and the same in every run."""

import asyncio
from typing import Any

import pytest

import maos
from maos.app import Maos
from maos.workflows import StepFailed, WorkflowFailed, gather, parallel, signal
from tests.workflows.conftest import Engine
from tests.workflows.define import Outside, eventually, workflow


async def test_results_come_in_the_order_of_the_items_whichever_ends_first(m: Maos) -> None:
    @maos.step
    async def work(n: int) -> int:
        await asyncio.sleep(0.001 * (5 - n))
        return n

    @workflow("ordered")
    async def ordered() -> list[list[int]]:
        return [await parallel(work, range(5)), await gather(*map(work, range(5))), await gather(), []]

    assert await m.workflows.run(ordered) == [[0, 1, 2, 3, 4], [0, 1, 2, 3, 4], [], []]


async def test_no_more_run_at_once_than_allowed(m: Maos) -> None:
    running, most = 0, 0

    @maos.step
    async def work(n: int) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.002)
        running -= 1
        return n

    @workflow("limited")
    async def limited() -> list[int]:
        return await parallel(work, range(12), limit=3)

    assert await m.workflows.run(limited) == list(range(12))
    assert most == 3


async def test_all_that_began_end_before_the_first_failure_is_raised_and_no_more_begin(engine: Engine) -> None:
    """And those that did not begin then do not begin in a later run either."""
    outside = Outside()

    @maos.step
    async def work(n: int) -> int:
        outside.did(n)
        if n == 1:
            raise ValueError("no")
        await asyncio.sleep(0.02)
        return n

    @workflow("failing")
    async def failing() -> str:
        try:
            await parallel(work, range(6), limit=3)
        except StepFailed as error:
            said = str(error)
        await signal("go")
        return said

    async with engine() as m:
        handle = await m.workflows.start(failing, id="f")
        await eventually(lambda: handle.run.waiting)
        assert sorted(outside.seen) == [0, 1, 2]
        assert {call.status for step_id, call in handle.run.steps.items() if ":" in step_id} == {"done", "failed"}
    async with engine() as m:
        await m.workflows.signal("f", "go")
        assert await m.workflows.run(failing, id="f") == "work failed: ValueError: no"
    assert sorted(outside.seen) == [0, 1, 2]


async def test_a_branch_that_had_begun_goes_on_though_another_had_failed(engine: Engine) -> None:
    """Though in this run the failure is known before the branch comes to its first call."""
    outside = Outside()
    is_slow = False

    @maos.step(idempotent=True)
    async def work(n: int) -> int:
        outside.did(n)
        if n == 1:
            await eventually(lambda: 2 in outside.seen)
            raise ValueError("no")
        if n == 2 and outside.seen.count(2) == 1:
            await asyncio.Event().wait()
        return n

    async def branch(n: int) -> int:
        found = await work(n)
        if n == 0 and is_slow:
            await asyncio.sleep(0.05)  # nothing to record
        return found

    @workflow("failing")
    async def failing() -> str:
        try:
            await parallel(branch, range(3), limit=2)
        except StepFailed as error:
            return str(error)
        return "no failure"

    async with engine() as m:
        handle = await m.workflows.start(failing, id="f")
        await eventually(lambda: handle.run.done == 2)
    is_slow = True
    async with engine() as m:
        handle = await m.workflows.start(failing, id="f")
        assert await handle.result() == "work failed: ValueError: no"
    assert sorted(outside.seen) == [0, 1, 2, 2]


async def test_the_first_of_several_failures_is_that_of_the_first_item(m: Maos) -> None:
    @maos.step
    async def work(n: int) -> int:
        await asyncio.sleep(0.001 * (3 - n))
        raise ValueError(f"no {n}")

    @workflow("failing")
    async def failing() -> list[int]:
        return await parallel(work, range(3))

    with pytest.raises(WorkflowFailed, match="no 0"):
        await m.workflows.run(failing)


@pytest.mark.parametrize("how", ["gather", "parallel", "asyncio", "group", "tasks"])
async def test_branches_interrupted_in_the_middle_go_on_each_from_its_own_place(engine: Engine, how: str) -> None:
    """I29: of 3 branches with 3 steps each, those that had ended are not called again, whichever way they began."""
    outside = Outside()
    stop_at = {(0, 1), (1, 2), (2, 0)}

    @maos.step(idempotent=True)
    async def work(branch: int, n: int) -> int:
        if (branch, n) in stop_at:
            return int(await outside.slow(branch)) * 10 + n
        outside.did((branch, n))
        return branch * 10 + n

    async def branch(number: int) -> list[int]:
        return [await work(number, n) for n in range(3)]

    @workflow("branching")
    async def branching() -> list[list[int]]:
        if how == "gather":
            return await gather(*map(branch, range(3)))
        if how == "parallel":
            return await parallel(branch, range(3))
        if how == "asyncio":
            return list(await asyncio.gather(*map(branch, range(3))))
        if how == "group":
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(branch(n)) for n in range(3)]
            return [task.result() for task in tasks]
        begun = [asyncio.create_task(branch(n)) for n in range(2)]
        last = await branch(2)  # the workflow's own task makes calls while the others run
        return [*[await each for each in begun], last]

    async with engine() as m:
        handle = await m.workflows.start(branching, id="b")
        await eventually(lambda: sorted(map(str, outside.seen)) == sorted(map(str, [(0, 0), 0, (1, 0), (1, 1), 1, 2])))
        await eventually(lambda: handle.run.done == 3)
    outside.seen.clear()
    outside.hold.set()
    async with engine() as m:
        handle = await m.workflows.start(branching, id="b")
        assert await handle.result() == [[0, 1, 2], [10, 11, 12], [20, 21, 22]]
        assert all(call.status == "done" for call in handle.run.steps.values())
    assert sorted(map(str, outside.seen)) == sorted(map(str, [0, (0, 2), 1, 2, (2, 1), (2, 2)]))


async def test_a_task_keeps_its_place_though_the_workflow_is_faster_when_it_runs_again(engine: Engine) -> None:
    """A task is numbered by when it was begun, not by how far the workflow's own calls are by then."""
    outside = Outside()

    @maos.step
    async def work(name: str) -> str:
        return str(outside.did(name))

    @workflow("besides")
    async def besides() -> list[str]:
        aside = asyncio.create_task(work("aside"))
        found = [await work("one"), await work("two"), await aside]
        later = asyncio.create_task(work("later"))
        found += [await work("three"), await later]
        await signal("go")
        return found

    async with engine() as m:
        handle = await m.workflows.start(besides, id="b")
        await eventually(lambda: handle.run.waiting)
    async with engine() as m:
        await m.workflows.signal("b", "go")
        assert await m.workflows.run(besides, id="b") == ["one", "two", "aside", "three", "later"]
    assert sorted(outside.seen) == ["aside", "later", "one", "three", "two"]


async def test_a_group_that_failed_fails_in_the_same_way_again(engine: Engine) -> None:
    """TaskGroup cancels the step of a sibling; that is neither repeated nor asked about in a later run."""
    outside = Outside()

    @maos.step
    async def work(name: str) -> str:
        return str(await outside.slow(name))

    @maos.step
    async def fail() -> None:
        await eventually(lambda: outside.seen)
        raise ValueError("no")

    @workflow("grouped")
    async def grouped() -> str:
        said = "no failure"
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(fail())
                group.create_task(work("cancelled"))
        except* StepFailed as errors:
            said = str(errors.exceptions[0])
        after = asyncio.create_task(signal("go"))
        return f"{said}, {await after}"

    async with engine() as m:
        handle = await m.workflows.start(grouped, id="g")
        await eventually(lambda: handle.run.waiting)
    async with engine() as m:
        await m.workflows.signal("g", "go", 7)
        assert await m.workflows.run(grouped, id="g") == "fail failed: ValueError: no, 7"
    assert outside.seen == ["cancelled"]


async def test_branches_within_branches_keep_their_places(engine: Engine) -> None:
    outside = Outside()

    @maos.step
    async def work(at: str) -> str:
        return str(outside.did(at))

    async def inner(at: str) -> list[str]:
        found: list[str] = await parallel(work, [f"{at}.{n}" for n in range(2)])
        return [await work(at), *found]

    @workflow("nested")
    async def nested() -> Any:
        found = await gather(inner("a"), asyncio.gather(inner("b"), inner("c")))
        await signal("go")
        return found

    async with engine() as m:
        handle = await m.workflows.start(nested, id="n")
        await eventually(lambda: handle.run.waiting)
    once = sorted(outside.seen)
    assert len(once) == len(set(once)) == 9
    async with engine() as m:
        await m.workflows.signal("n", "go")
        expected = [["a", "a.0", "a.1"], [["b", "b.0", "b.1"], ["c", "c.0", "c.1"]]]
        assert await m.workflows.run(nested, id="n") == expected
    assert sorted(outside.seen) == once


async def test_a_branch_cancelled_while_others_are_written_down_disturbs_nobody(m: Maos) -> None:
    """A write that was begun is ended, whoever stops waiting for it."""

    @maos.step
    async def work(n: int) -> int:
        return n

    @workflow("hasty")
    async def hasty() -> int:
        kept = [asyncio.create_task(work(n)) for n in range(5)]
        for n in range(5, 50):
            hurried = asyncio.create_task(work(n))
            for _ in range(n % 7):
                await asyncio.sleep(0)
            hurried.cancel()
        return sum([await each for each in kept])

    assert await m.workflows.run(hasty) == 10


async def test_a_task_that_nobody_waits_for_ends_its_step_before_the_workflow_ends(m: Maos) -> None:
    """I32: no step is left without an outcome."""
    outside = Outside()
    tasks = []

    @maos.step
    async def work() -> str:
        await asyncio.sleep(0.01)
        return str(outside.did("done"))

    @workflow("careless")
    async def careless() -> str:
        tasks.append(asyncio.create_task(work()))
        await asyncio.sleep(0.005)
        return "ended"

    handle = await m.workflows.start(careless)
    assert await handle.result() == "ended"
    assert outside.seen == ["done"]
    assert [call.status for call in handle.run.steps.values()] == ["done"]
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_branches_that_are_cancelled_before_they_begin_leave_nothing_behind(m: Maos) -> None:
    @maos.step
    async def work(n: int) -> int:
        return n

    @workflow("hasty")
    async def hasty() -> str:
        task = asyncio.create_task(gather(work(1), work(2)))  # type: ignore[var-annotated]
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return "ended"

    assert await m.workflows.run(hasty) == "ended"


async def test_a_limit_below_one_is_refused(m: Maos) -> None:
    with pytest.raises(maos.InvalidInput, match="at least one"):
        await parallel(asyncio.sleep, [1], limit=0)


async def test_outside_of_a_workflow_they_are_plain(m: Maos) -> None:
    async def twice(n: int) -> int:
        return 2 * n

    assert await gather(twice(1), twice(2)) == [2, 4]
    assert await parallel(twice, range(3), limit=2) == [0, 2, 4]
