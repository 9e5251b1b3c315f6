"""A conversation with the real Claude Code goes back: it remembers what it knew then, and nothing that came later."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from maos.app import Maos
from maos.clock import SystemClock
from maos.engine import checkpoints
from maos.engine.attempts import Attempts
from maos.model.plan import Task
from maos.runs.worker import AgentWorker
from maos.travel import points_in_time
from maos.travel.service import TimeTravel
from maos_testing.model_stub import ModelStub, ScriptStep, ToolCall
from tests.agents.claude.stage import charged
from tests.engine import claude_engine
from tests.runs.commands import until
from tests.travel.conftest import on_disk, order, repository


def write(name: str, *more: str) -> list[ToolCall]:
    """A tool that leaves a file."""
    command = "; ".join((f"echo {name} > {name}.txt", *more))
    return [ToolCall(name="Bash", input={"command": command, "description": "x"})]


@pytest.fixture
async def stub(tmp_path: Path) -> AsyncIterator[ModelStub]:
    waits = f"touch {tmp_path}/reached; until test -e {tmp_path}/on; do sleep 0.02; done"
    steps = [
        ScriptStep(text="I write the first.", calls=write("one")),
        ScriptStep(text="Now I wait.", calls=write("two", waits)),
        ScriptStep(text="I write the last.", calls=write("three")),
        ScriptStep(text="All is written."),
    ]
    async with ModelStub({"work": steps}) as running:
        yield running


@pytest.fixture
async def attempts(m: Maos, home: Path, stub: ModelStub) -> AsyncIterator[Attempts]:
    engine = claude_engine.engine(m, home, stub.url)
    yield engine
    await engine.close()


async def test_a_conversation_goes_back_with_its_files(
    tmp_path: Path, m: Maos, attempts: Attempts, stub: ModelStub
) -> None:
    """R-702, R-703: it goes on in its own session, in a folder of its own, from what it had said and heard by then."""
    task = Task(name="w", task="SCRIPT=work", kind="claude", tools=["Bash"])
    run = await order(m, repository(tmp_path), [task])
    carrying = asyncio.create_task(m.runs.execute(run.id, worker=AgentWorker(attempts)))

    async def reached() -> bool:
        if not (tmp_path / "reached").exists():
            return False
        attempt = await attempts.get(run.agent("w"))
        return attempt.tools_done == 1 and bool(attempt.tools_open)

    await until(reached)
    await checkpoints.make(m.journal, SystemClock(), await m.runs.get(run.id), "mark")

    async def saved() -> bool:
        return "mark" in {each.name for each in (await attempts.get(run.agent("w"))).checkpoints}

    await until(saved)
    (tmp_path / "on").touch()
    run = await carrying
    assert (run.status, run.tasks["w"].result) == ("completed", "All is written.")
    first = await attempts.get(run.agent("w"))

    travel = TimeTravel(m.journal, SystemClock(), m.runs, attempts)
    journey = await travel.rollback(run.id, await points_in_time.named(m.journal, run, "mark"))
    assert [(each.what, each.checkpoint, each.remembers) for each in journey.steps] == [("continues", "mark", True)]
    run = await m.runs.get(run.id)
    branched = await attempts.get(run.agent("w"))
    tree = Path(branched.order["cwd"])
    assert on_disk(tree).keys() == {"first.txt", "one.txt", "two.txt"}
    assert next(iter(branched.tools_open.values())).name == "Bash", "nobody knows whether the second took effect"
    asked = len(stub.requests)
    run = await m.runs.execute(run.id, worker=AgentWorker(attempts))
    assert (run.status, run.tasks["w"].result) == ("completed", "All is written.")
    second = await attempts.get(run.agent("w"))
    assert (second.number, second.session, second.agent) == (2, first.session, f"{run.id}.w.b1")
    heard = json.dumps(stub.requests[asked].body["messages"])
    assert "I write the first." in heard
    assert "was rolled back to an earlier point in time" in heard
    assert str(tree) in heard
    assert "All is written." not in heard
    assert first.order["cwd"] not in heard.replace(str(tree), ""), "it is told of no folder but its own"
    assert on_disk(tree).keys() == {"first.txt", "one.txt", "two.txt", "three.txt"}
    assert journey.cost_usd > 0
    assert run.spent.cost_usd == pytest.approx(charged(stub)), "what was given up stays spent, and counts once"
