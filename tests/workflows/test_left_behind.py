"""Children and agents that their workflow waits for no more, or that others have or stop: none is forgotten (I32)."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import maos
from maos.app import Maos
from maos.engine.recorder import Recorder
from maos.engine.streams import WORKFLOW_RUN
from maos.errors import StoreUnavailable
from maos.model.attempt import Attempt
from maos.model.workflow import Step
from maos.runs.decisions import LIMIT_UNKNOWN_S
from maos.workflows import Handle, agent, child, children, record, signal
from maos.workflows.definition import StartRequest, StepFailed
from maos_testing.manual_clock import ManualClock
from tests.engine.conftest import processes_below
from tests.workflows.conftest import Engine
from tests.workflows.define import eventually, workflow

PATIENCE_S = 1.0
"""How long a parent waits for its child. On a busy machine too, the child has been started by then."""


@maos.workflow(name="left-kid")
async def kid() -> Any:
    return await signal("go")


@workflow("left-parent")
async def parent() -> Any:
    return await child(kid)


@workflow("left-impatient")
async def impatient() -> Any:
    try:
        async with asyncio.timeout(PATIENCE_S):
            return await child(kid)
    except TimeoutError:
        return "late"


async def status(m: Maos, id: str) -> tuple[str, str]:
    flow = await m.workflows.get(id)
    return flow.status, flow.why


def waits(m: Maos, id: str) -> Callable[[], bool]:
    """Whether a workflow waits for something."""
    return lambda: (running := m.workflows._engine._executions.get(id)) is not None and bool(running.run.waiting)


# --- children --------------------------------------------------------------------------------------------------------


async def test_a_child_that_its_parent_stopped_waiting_for_is_cancelled(engine: Engine) -> None:
    async with engine() as m:
        assert await m.workflows.run(impatient, id="p") == "late"
        assert await status(m, "p.1") == ("cancelled", "p does not wait for it any more")


async def test_a_parent_does_not_wait_for_a_child_it_left_before_it_goes_on(m: Maos) -> None:
    """A step of the child ends first; the function does not wait for that, only the end of the workflow does."""
    hold, seen = asyncio.Event(), []

    @maos.step
    async def slow() -> None:
        seen.append("begun")
        await hold.wait()

    @workflow("left-slow-kid")
    async def slow_kid() -> None:
        await slow()
        await slow()

    @workflow("left-hasty")
    async def hasty() -> str:
        task = asyncio.create_task(child(slow_kid))
        await signal("go")
        task.cancel()
        seen.append("went on")
        return "ended"

    handle = await m.workflows.start(hasty, id="p")
    await eventually(lambda: seen)
    await m.workflows.signal("p", "go")
    await eventually(lambda: "went on" in seen)
    assert handle.run.is_open
    [of_child] = [each for each in m.workflows._engine._executions.values() if each.run.id != "p"]
    await eventually(lambda: of_child.control.stop_as)
    hold.set()
    assert await handle.result() == "ended"
    assert [each.status async for each in m.workflows.all() if each.parent] == ["cancelled"]
    assert seen == ["begun", "went on"]


async def test_a_child_is_not_ended_before_it_is_on_disk_that_its_parent_left_it(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a parent that is killed in between would find it cancelled, and not that its own time was up."""
    append = Recorder.append
    seen: list[str] = []

    async def slow(self: Recorder[Any], *events: Any, **more: Any) -> None:
        if any(event.type == "step_abandoned" for event in events):
            await asyncio.sleep(0.05)
        await append(self, *events, **more)
        seen.extend(event.type for event in events if event.type in ("step_abandoned", "workflow_ended"))

    monkeypatch.setattr(Recorder, "append", slow)
    async with engine() as m:
        assert await m.workflows.run(impatient, id="p") == "late"
        while len(seen) < 3:  # the result can be read a moment before its recorder returns
            await asyncio.sleep(0.01)
    assert seen == ["step_abandoned", "workflow_ended", "workflow_ended"]


async def test_an_engine_can_be_closed_while_the_end_of_a_child_waits_for_the_disk(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record, "CLOSE_S_MAX", 0.01)
    append = Recorder.append
    stuck = asyncio.Event()

    async def hanging(self: Recorder[Any], *events: Any, **more: Any) -> None:
        if any(event.type == "step_abandoned" for event in events):
            stuck.set()
            await asyncio.Event().wait()
        await append(self, *events, **more)

    monkeypatch.setattr(Recorder, "append", hanging)
    async with engine() as m:
        await m.workflows.start(impatient, id="p")
        await stuck.wait()
    monkeypatch.setattr(Recorder, "append", append)
    async with engine() as m:
        assert await m.workflows.run(impatient, id="p") == "late"
        assert (await m.workflows.get("p.1")).status == "cancelled"


async def test_a_child_that_nobody_waited_for_ends_with_its_parent(m: Maos) -> None:
    @workflow("left-careless")
    async def careless() -> str:
        tasks = [asyncio.create_task(child(kid, id="k"))]
        await signal("go")
        return f"{len(tasks)} begun"

    handle = await m.workflows.start(careless, id="p")
    await eventually(waits(m, "k"))
    await m.workflows.signal("p", "go")
    assert await handle.result() == "1 begun"
    assert (await m.workflows.get("k")).status == "cancelled"


async def test_a_child_whose_parent_has_ended_is_found_and_cancelled(engine: Engine) -> None:
    """As after a kill between the end of the parent and that of the child."""
    async with engine() as m:
        await m.workflows.start(parent, id="p")
        await eventually(waits(m, "p.1"))
        await (await m.workflows.resume("p.1")).pause()
    async with engine() as m:
        assert await m.workflows.resume_all() == []  # its parent takes it up
        ended = {"status": "failed", "at_us": (await m.workflows.get("p")).changed_us}
        await m.journal.append(WORKFLOW_RUN.stream("p"), maos.Event("workflow_ended", ended))
        assert await m.workflows.resume_all() == []
        assert await status(m, "p.1") == ("cancelled", "p does not wait for it any more")


async def test_a_parent_waits_for_a_child_that_another_process_runs(engine: Engine) -> None:
    async with engine() as m:
        await m.workflows.start(parent, id="p")
        await eventually(waits(m, "p.1"))
    async with engine() as m, engine() as n:
        theirs = await m.workflows.resume("p.1")
        handle = await n.workflows.resume("p", workflow=parent)
        await eventually(lambda: handle.run.claims == 1)
        await n.workflows.signal("p.1", "go", 5)
        assert await theirs.result() == 5
        assert await handle.result() == 5


async def test_a_parent_takes_up_a_child_whose_process_has_gone(engine: Engine) -> None:
    async with engine() as m:
        await m.workflows.start(parent, id="p")
        await eventually(waits(m, "p.1"))
    async with engine() as n:
        async with engine() as m:
            await m.workflows.resume("p.1")
            handle = await n.workflows.resume("p", workflow=parent)
            await asyncio.sleep(children.HELD_S)
            assert not waits(n, "p.1")()
        await eventually(waits(n, "p.1"))
        await n.workflows.signal("p.1", "go", 5)
        assert await handle.result() == 5


@pytest.mark.parametrize(("leaving", "found"), [("pause", "paused"), ("cancel", "cancelled")])
async def test_a_child_that_another_process_runs_is_let_go_of_with_its_parent(
    engine: Engine, leaving: str, found: str
) -> None:
    async with engine() as m:
        await m.workflows.start(parent, id="p")
        await eventually(waits(m, "p.1"))
    async with engine() as m, engine() as n:
        theirs = await m.workflows.resume("p.1")
        handle = await n.workflows.resume("p", workflow=parent)
        await (n.workflows.pause("p") if leaving == "pause" else n.workflows.cancel("p"))
        assert (await handle.wait()).status == found
        assert (await theirs.wait()).status == found


async def test_a_store_that_is_away_says_nothing_about_a_child(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run of the parent ends; the parent does not."""

    async with engine() as m:
        with monkeypatch.context() as patched:
            start_now = m.workflows._engine.start

            async def start(request: StartRequest, **how: Any) -> Handle[Any]:
                handle = await start_now(request, **how)
                if request.parent:
                    raise StoreUnavailable("the disk is gone", written=False)
                return handle

            patched.setattr(m.workflows._engine, "start", start)
            with pytest.raises(StoreUnavailable, match="the disk is gone"):
                await m.workflows.run(parent, id="p")
        assert (await m.workflows.get("p")).status == "running"
        await m.workflows.signal("p.1", "go", 5)
        assert await m.workflows.run(parent, id="p") == 5


async def test_a_child_that_was_paused_is_not_gone_on_with_by_whoever_goes_on_with_everything(engine: Engine) -> None:
    """Somebody who says that the parent is to go on means the child too."""

    @maos.workflow(name="left-known-parent")
    async def known_parent() -> Any:
        return await child(kid)

    async with engine() as m:
        await m.workflows.start(known_parent, id="p")
        await eventually(waits(m, "p.1"))
    async with engine() as m:
        await m.workflows.pause("p.1")
    async with engine() as m:
        [handle] = await m.workflows.resume_all()
        assert (await handle.wait()).status == "paused"
        assert (await m.workflows.get("p.1")).status == "paused"
        handle = await m.workflows.resume("p")
        await eventually(waits(m, "p.1"))
        await m.workflows.signal("p.1", "go", 5)
        assert await handle.result() == 5


# --- agents ----------------------------------------------------------------------------------------------------------


def building(folder: Path, *, limit_s: float = 60) -> Any:
    """A workflow with an agent that works until there is a file."""
    script = "echo x >> begun; until [ -e go ]; do sleep 0.02; done; echo built"

    @workflow("left-building")
    async def build() -> str:
        try:
            async with asyncio.timeout(None if (folder / "begun").exists() else limit_s):
                return await agent(argv=["sh", "-c", script], cwd=str(folder), in_place=True)
        except TimeoutError:
            return "late"

    return build


def begun(folder: Path) -> int:
    return (folder / "begun").read_text().count("x") if (folder / "begun").exists() else 0


async def test_an_agent_is_stopped_when_its_workflow_is_cancelled(engine: Engine, tmp_path: Path, home: Path) -> None:
    async with engine() as m:
        handle = await m.workflows.start(building(tmp_path), id="b")
        await eventually(lambda: begun(tmp_path))
        await m.workflows.cancel("b")
        assert (await handle.wait()).status == "cancelled"
        assert (await m.agents.get("b.1")).status == "stopped"
    assert processes_below(home) == []


async def test_an_agent_is_stopped_though_its_workflow_was_cancelled_while_nobody_ran_it(
    engine: Engine, tmp_path: Path, home: Path
) -> None:
    build = building(tmp_path)
    async with engine() as m:
        await m.workflows.start(build, id="b")
        await eventually(lambda: begun(tmp_path))
    async with engine() as m:
        await m.workflows.cancel("b")
        assert (await m.workflows.get("b")).status == "cancelled"
        assert (await m.agents.get("b.1")).status == "stopped"
    assert processes_below(home) == []


async def test_an_agent_is_stopped_when_its_workflow_stops_waiting_for_it(
    engine: Engine, tmp_path: Path, home: Path
) -> None:
    async with engine() as m:
        assert await m.workflows.run(building(tmp_path, limit_s=0.8), id="b") == "late"
        assert (await m.agents.get("b.1")).status == "stopped"
    assert processes_below(home) == []


async def test_an_agent_that_a_person_stops_pauses_its_workflow(engine: Engine, tmp_path: Path) -> None:
    """It goes on when somebody says that the workflow is to go on, and not by itself."""
    build = building(tmp_path)
    async with engine() as m:
        handle = await m.workflows.start(build, id="b")
        await eventually(lambda: begun(tmp_path))
        await m.agents.stop("b.1", grace_s=0.1)
        flow = await handle.wait()
        assert (flow.status, flow.why, begun(tmp_path)) == ("paused", "its agent b.1 was stopped", 1)
        (tmp_path / "go").touch()
        assert await (await m.workflows.resume("b", workflow=build)).result() == "built"
    assert begun(tmp_path) == 2


async def test_an_agent_that_cannot_start_has_failed(m: Maos, tmp_path: Path) -> None:
    @workflow("left-no-program")
    async def build() -> str:
        try:
            return await agent(argv=["no-such-program-anywhere"], cwd=str(tmp_path), in_place=True)
        except StepFailed as error:
            return error.type

    assert await m.workflows.run(build, id="b") == "start_failed"
    assert (await m.workflows.get("b")).steps["1"].status == "failed"


class Limited:
    """Attempts that meet a rate limit each time, by the clock of the test."""

    def __init__(self, clock: ManualClock, failures: list[str]) -> None:
        self.clock = clock
        self.failures = failures
        self.begun_us: list[int] = []

    async def newest(self, name: str) -> None:
        return None

    async def start(self, task: str, *, name: str) -> "Limited":
        return self

    async def resume(self, name: str, *, like: Any) -> "Limited":
        return self

    async def adopt(self, name: str) -> "Limited":
        return self

    async def has_unheard(self, attempt: Attempt) -> bool:
        return False

    async def wait(self) -> Attempt:
        self.begun_us.append(self.clock.now_us())
        failure = self.failures.pop(0) if self.failures else ""
        number = len(self.begun_us)
        return Attempt(
            id=f"a.{number}",
            agent="a",
            number=number,
            status="failed" if failure else "done",
            failure=failure,
            result="" if failure else "built",
            ended_us=self.clock.now_us(),
        )


async def test_a_rate_limit_without_a_known_end_is_waited_for(clock: ManualClock) -> None:
    """By the one table of failures: limits do not count as tries, and are not met in a loop."""
    attempts = Limited(clock, ["rate_limited"] * 5 + ["crashed"] * 3)
    begun = SimpleNamespace(steps={"1": Step(kind="agent")})
    timed = SimpleNamespace(record=SimpleNamespace(clock=clock, run=begun))
    agents = children.Children(timed, None, lambda: attempts, start=None, stop=None, retry=None, even_paused=True)  # type: ignore[arg-type]
    working = asyncio.create_task(agents.run_agent("1", "a", "build", {}))
    for met in range(1, 6):
        await eventually(lambda met=met: len(attempts.begun_us) == met)
        await asyncio.sleep(20 * record.NAP_S_MAX)
        assert len(attempts.begun_us) == met
        clock.advance(LIMIT_UNKNOWN_S)
    assert await working == ("built", "")
    assert len(attempts.begun_us) == 9
