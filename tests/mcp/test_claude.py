"""The real Claude Code with a scripted model, at its own door: it reports, asks a person, is killed and asks again."""

import json
import os
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from maos.agents import kinds
from maos.clock import SystemClock
from maos.engine.attempt_spec import ToolServers
from maos.engine.attempts import Attempts
from maos.model import tool_calls
from maos.model.attempt import Attempt
from maos.model.message import inbox
from maos.model.question import question_id
from maos.model.run import agent_name
from maos.settings import DatabaseName
from maos_testing.model_stub import ModelStub, ScriptStep, ToolCall
from tests.agents.claude.stage import environment
from tests.engine.conftest import processes_below
from tests.mcp.conftest import World

QUESTION = "May I delete it?"
ASK = ToolCall(name="mcp__maos__ask_person", input={"question": QUESTION, "choices": ["yes", "no"], "wait_s": 100})
FOUND = ToolCall(name="mcp__maos__report_discovery", input={"text": "the cache leaks", "keyword": "found"})
SCRIPT = [
    ScriptStep(text="I report.", calls=[FOUND]),
    ScriptStep(calls=[ASK]),
    ScriptStep(calls=[ASK]),
    ScriptStep(text="All right."),
]


@pytest.fixture
async def stub() -> AsyncIterator[ModelStub]:
    async with ModelStub(SCRIPT) as running:
        yield running


@pytest.fixture
async def attempts(world: World, stub: ModelStub, tmp_path: Path) -> AsyncIterator[Attempts]:
    home = tmp_path / "home"
    engine = Attempts(
        world.m.journal,
        SystemClock(),
        dialect=kinds.dialect,
        folder=home,
        environment=environment(stub),
        tool_servers=ToolServers(DatabaseName(str(world.path))),
    )
    yield engine
    await engine.close()
    for pid in processes_below(home):
        os.kill(pid, signal.SIGKILL)


async def begin(attempts: Attempts, world: World, folder: Path) -> Any:
    return await attempts.start(
        "find the leak",
        kind="claude",
        name=agent_name(world.run.id, "writer"),
        cwd=folder,
        in_place=True,
        permission="deny",
        run=world.run.id,
        time_limit_s=120,
    )


def answers(stub: ModelStub) -> str:
    """Everything the model was told in the end."""
    return json.dumps(stub.requests[-1].body["messages"])


async def test_it_reports_and_asks_and_is_answered(
    world: World, attempts: Attempts, stub: ModelStub, tmp_path: Path, wait_for: Callable[..., Any]
) -> None:
    """R-104, R-207: without permission for anything else, it has the tools of its door."""
    running = await begin(attempts, world, tmp_path)
    await wait_for(lambda: world.events(inbox(world.run.id), "question_asked"), 60)
    await world.runs.answer(world.run.id, question_id(QUESTION), "yes")
    attempt: Attempt = await running.wait()
    assert (attempt.status, attempt.result) == ("done", "All right.")
    assert answers(stub).count("Answer (person): yes") == 2
    [told] = await world.events(inbox(agent_name(world.run.id, "reader")), "message_sent")
    assert (told["type"], told["text"]) == ("discovery", "the cache leaks")
    names = [each["name"] for each in stub.requests[0].body["tools"]]
    [recorded] = attempt.order["mcp"]
    assert recorded["env"] == ["MAOS_ATTEMPT", "MAOS_DB", "MAOS_HOME", "MAOS_RUN"], "names, and no values"
    assert {f"mcp__maos__{each}" for each in ("report_progress", "send_message", "save_state")} <= set(names)


async def test_killed_while_it_asks_it_asks_once_and_finds_the_answer_when_it_is_resumed(
    world: World, attempts: Attempts, stub: ModelStub, tmp_path: Path, wait_for: Callable[..., Any]
) -> None:
    """R-206, R-207, I31: the door of the next attempt is one for that attempt."""
    running = await begin(attempts, world, tmp_path)
    await wait_for(lambda: world.events(inbox(world.run.id), "question_asked"), 60)
    os.kill(running.attempt.pid, signal.SIGKILL)
    assert (await running.wait()).status == "failed"
    await world.runs.answer(world.run.id, question_id(QUESTION), "no")
    again = await attempts.resume(agent_name(world.run.id, "writer"))
    attempt: Attempt = await again.wait()
    assert (attempt.status, attempt.number, attempt.result) == ("done", 2, "All right.")
    assert "Answer (person): no" in answers(stub)
    assert len(await world.events(inbox(world.run.id), "question_asked")) == 1
    called = await world.events(tool_calls.stream(attempt.agent))
    assert [each["tool"] for each in called] == ["report_discovery", "ask_person"]
    assert attempt.order["run"] == world.run.id
