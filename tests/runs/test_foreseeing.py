"""What a dry run says of an interrupted agent is what it is then told, word for word: with the real Claude Code, and of
a command that a person has changed."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import maos
from maos.app import Maos
from maos.clock import SystemClock
from maos.engine.attempts import Attempts
from maos.holder import process_tree
from maos.model.plan import Plan, Task
from maos.runs.results import RunResults
from maos.runs.worker import AgentWorker
from maos_testing.model_stub import ModelStub, ScriptStep, ToolCall
from tests.engine import claude_engine
from tests.engine.test_claude import transcribed
from tests.engine.test_what_survives import holder_of, until

WORK = ToolCall(name="Bash", input={"command": "echo once >> effects; sleep 3", "description": "x"})


@pytest.fixture
async def stub() -> AsyncIterator[ModelStub]:
    async with ModelStub(
        {"tool": [ScriptStep(text="I begin.", calls=[WORK]), ScriptStep(text="It is done.")]}
    ) as running:
        yield running


@pytest.fixture
async def attempts(m: Maos, home: Path, stub: ModelStub) -> AsyncIterator[Attempts]:
    engine = claude_engine.engine(m, home, stub.url)
    yield engine
    await engine.close()


async def test_a_dry_run_foresees_the_exact_words(m: Maos, attempts: Attempts, tmp_path: Path) -> None:
    """R-201, R-206, I31: the engine lets go, the agent is killed in the middle of a tool, a message has come."""
    tasks = [Task(name="a", task="SCRIPT=tool", tools=["Bash"]), Task(name="b", command=["true"], needs=["a"])]
    run = await m.runs.create(Plan(tasks=tasks), folder=tmp_path, options={"kind": "claude", "in_place": True})
    carrying = asyncio.create_task(m.runs.execute(run.id, worker=AgentWorker(attempts)))
    agent = f"{run.id}.a"

    async def in_the_tool() -> bool:
        try:
            attempt = await attempts.get(agent)
            begun = bool(attempt.tools_open) and (tmp_path / "effects").exists()
            return begun and transcribed(attempts, attempt)
        except maos.NotFound:
            return False

    await until(in_the_tool)
    carrying.cancel()
    await asyncio.gather(carrying, return_exceptions=True)
    await attempts.close()
    run = await m.runs.get(run.id)
    results = RunResults(m.journal, SystemClock(), attempts)
    alive = {each.task: each.what for each in await results.preview(run)}
    assert alive == {"a": "taken_up", "b": "begun"}

    pid = (await attempts.get(agent)).pid

    victims = (holder_of(pid), pid)

    async def gone() -> bool:
        seen = [process_tree.look(victim) for victim in victims]
        return all(each is None or each.state in "ZX" for each in seen)

    for victim in victims:
        os.kill(victim, signal.SIGKILL)
    await until(gone)
    await m.bus.send("r-x.other", agent, "the tests are red")
    foreseen = {each.task: each for each in await results.preview(run)}
    assert foreseen["a"].what == "resumed"
    assert [tool.input["command"] for tool in foreseen["a"].unknown] == ["echo once >> effects; sleep 3"]
    assert "the tests are red" in foreseen["a"].words
    assert "It is unknown whether these tool calls took effect" in foreseen["a"].words

    run = await m.runs.execute(run.id, worker=AgentWorker(attempts))
    assert run.status == "completed"
    told = await attempts.get(agent)
    assert (told.number, told.order["task"]) == (2, foreseen["a"].words)
    assert (tmp_path / "effects").read_text() == "once\n"


async def test_a_dry_run_foresees_what_a_person_has_changed(m: Maos, tmp_path: Path) -> None:
    tasks = [Task(name="a", command=["sh", "-c", "exit 3"]), Task(name="b", task="as text", command=["false"])]
    run = await m.runs.create(Plan(tasks=tasks), folder=tmp_path, options={"in_place": True})
    run = await m.runs.execute(run.id)
    await m.runs.retry(run.id, tasks=["a"], command=["echo", "it is", "changed"])
    await m.runs.retry(run.id, tasks=["b"], command=["true"])
    run = await m.runs.get(run.id)
    foreseen = {each.task: each.words for each in await m.runs.preview(run)}
    assert foreseen == {"a": "echo 'it is' changed", "b": "as text"}
    await m.runs.resume(run.id)
    run = await m.runs.execute(run.id)
    assert run.status == "completed"
    told = {name: (await m.agents.get(f"{run.id}.{name}")).order["task"] for name in run.tasks}
    assert told == foreseen
