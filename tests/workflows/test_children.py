"""Workflows as parts of others, and agents as parts of workflows: begun once, taken up after anything."""

import asyncio
import os
import signal as signals
import subprocess
import sys
from pathlib import Path

import pytest

import maos
from maos.app import Maos
from maos.workflows import StepFailed, WorkflowFailed, agent, child, gather, signal, sleep
from tests.engine.conftest import processes_below
from tests.workflows import agent_life
from tests.workflows.conftest import Engine
from tests.workflows.define import Outside, eventually, workflow

outside = Outside()


@pytest.fixture(autouse=True)
def fresh() -> None:
    outside.seen.clear()


@maos.step
async def charge(amount: int) -> int:
    return int(outside.did(amount))


@workflow("bill")
async def bill(amount: int) -> int:
    charged = await charge(amount)
    await signal("sent")
    return charged + 1


@workflow("month")
async def month(amounts: list[int]) -> list[int]:
    return await gather(*(child(bill, amount) for amount in amounts))


async def both_wait(m: Maos) -> None:
    running = m.workflows._engine._executions
    await eventually(lambda: all(each in running and running[each].run.waiting for each in ("m.1-1.1", "m.1-2.1")))


async def test_children_have_records_of_their_own_and_go_on_with_their_parent(engine: Engine) -> None:
    """R-1001, I29."""
    async with engine() as m:
        await m.workflows.start(month, [1, 2], id="m")
        await both_wait(m)
        found = {flow.id: flow.parent async for flow in m.workflows.all()}
        assert found == {"m": "", "m.1-1.1": "m", "m.1-2.1": "m"}
    async with engine() as m:
        handle = await m.workflows.start(month, [1, 2], id="m")
        await both_wait(m)
        for each in ("m.1-1.1", "m.1-2.1"):
            await m.workflows.signal(each, "sent")
        assert await handle.result() == [2, 3]
    assert sorted(outside.seen) == [1, 2]


async def test_a_child_that_ended_while_its_parent_was_away_is_not_begun_again(engine: Engine) -> None:
    async with engine() as m:
        await m.workflows.start(month, [1], id="m")
        await eventually(lambda: "m.1-1.1" in m.workflows._engine._executions and outside.seen)
    async with engine() as m:
        await m.workflows.signal("m.1-1.1", "sent")
        await (await m.workflows.resume("m.1-1.1", workflow=bill)).result()
        assert await m.workflows.run(month, [1], id="m") == [2]
    assert outside.seen == [1]


async def test_a_child_that_fails_can_be_caught(m: Maos) -> None:
    @workflow("broken")
    async def broken() -> None:
        raise ValueError("no")

    @workflow("parent")
    async def parent() -> str:
        try:
            await child(broken, id="c")
        except StepFailed as error:
            return f"{error.name}: {error.type}: {error.message}"
        return "no failure"

    assert await m.workflows.run(parent, id="p") == "broken: ValueError: no"
    assert await m.workflows.run(parent, id="p") == "broken: ValueError: no"
    assert (await m.workflows.get("c")).status == "failed"


async def test_children_are_cancelled_with_their_parent(engine: Engine) -> None:
    """I32: none is left open when the parent has ended, though the process ends right after."""
    async with engine() as m:
        handle = await m.workflows.start(month, [1, 2], id="m")
        await both_wait(m)
        await m.workflows.cancel("m", why="too expensive")
        flow = await handle.wait()
        assert (flow.status, flow.why) == ("cancelled", "too expensive")
    async with engine() as m:
        found = {flow.id: (flow.status, flow.why) async for flow in m.workflows.all()}
        assert found["m.1-1.1"] == found["m.1-2.1"] == ("cancelled", "m was cancelled")
        with pytest.raises(WorkflowFailed, match="m is cancelled: too expensive"):
            await m.workflows.run(month, [1, 2], id="m")


async def test_a_child_that_was_cancelled_alone_has_failed_for_its_parent(m: Maos) -> None:
    handle = await m.workflows.start(month, [1, 2], id="m")
    await both_wait(m)
    await m.workflows.cancel("m.1-1.1")
    await m.workflows.signal("m.1-2.1", "sent")
    with pytest.raises(WorkflowFailed, match=r"bill failed: Cancelled: m\.1-1\.1 was cancelled"):
        await handle.result()


async def test_children_are_paused_with_their_parent_and_a_parent_with_its_child(engine: Engine) -> None:
    async with engine() as m:
        handle = await m.workflows.start(month, [1, 2], id="m")
        await both_wait(m)
        await handle.pause("lunch")
        assert {flow.status async for flow in m.workflows.all()} == {"paused"}
        handle = await m.workflows.resume("m", workflow=month)
        await both_wait(m)
        await m.workflows.pause("m.1-2.1", why="a break")
        flow = await handle.wait()
        assert (flow.status, flow.why) == ("paused", "its child m.1-2.1 was paused: a break")
        assert {flow.status async for flow in m.workflows.all()} == {"paused"}
    async with engine() as m:
        for each in ("m.1-1.1", "m.1-2.1"):
            await m.workflows.signal(each, "sent")
        assert await (await m.workflows.resume("m", workflow=month)).result() == [2, 3]
    assert sorted(outside.seen) == [1, 2]


async def test_an_id_that_belongs_to_another_workflow_is_refused(m: Maos) -> None:
    @workflow("parent")
    async def parent() -> int:
        return int(await child(bill, 1, id="b"))

    await m.workflows.start(bill, 1, id="b")
    with pytest.raises(WorkflowFailed, match="there is a workflow 'b' already, of another parent"):
        await m.workflows.run(parent, id="p")


async def test_children_of_children_have_names_however_deep(m: Maos) -> None:
    @workflow("deep")
    async def deep(depth: int) -> int:
        return 1 + await child(deep, depth - 1) if depth else 0

    assert await m.workflows.run(deep, 12, id="a-workflow-with-a-rather-long-name") == 12
    names = [flow.id async for flow in m.workflows.all()]
    assert len(set(names)) == 13
    assert max(map(len, names)) <= 64


async def test_outside_of_a_workflow_a_child_is_a_plain_call() -> None:
    @workflow("plain")
    async def plain(n: int) -> int:
        await sleep(0.001)
        return n + 1

    assert await child(plain, 1) == 2


# --- agents ----------------------------------------------------------------------------------------------------------


async def test_an_agent_answers_once_and_its_failure_can_be_caught(engine: Engine, tmp_path: Path) -> None:
    effects = tmp_path / "effects"

    @workflow("asking")
    async def asking() -> list[str]:
        here = {"cwd": str(tmp_path), "in_place": True}
        said = await agent(argv=["sh", "-c", f"echo x >> {effects}; echo all tests pass"], **here)
        try:
            await agent(argv=["sh", "-c", f"echo y >> {effects}; exit 3"], **here)
        except StepFailed as error:
            return [said, error.type]
        return [said]

    async with engine() as m:
        first = await m.workflows.run(asking, id="a")
        assert first[0] == "all tests pass"
        assert len(first) == 2
    async with engine() as m:
        assert await m.workflows.run(asking, id="a") == first
    assert effects.read_text().split().count("x") == 1


async def test_an_agent_outlives_the_engine_that_is_killed_and_is_taken_up(tmp_path: Path, home: Path) -> None:
    """R-201: the agent works on while no engine runs, and is not begun again."""
    folder = tmp_path / "work"
    folder.mkdir()
    command = [sys.executable, agent_life.__file__, tmp_path / "maos.db", home, folder]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL) as engine:
        try:
            await eventually((folder / "begun").exists)
        finally:
            os.kill(engine.pid, signals.SIGKILL)
    (folder / "go").touch()
    result = await asyncio.wait_for(agent_life.live(str(tmp_path / "maos.db"), home, folder), 60)
    assert result == "built"
    assert (folder / "begun").read_text() == "x\n"
    assert processes_below(home) == []
