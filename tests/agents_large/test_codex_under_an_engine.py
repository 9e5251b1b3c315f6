"""The real Codex under an engine: everything that can be killed is killed, in the middle of a text and of a tool."""

import asyncio
import json
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import maos
from maos.app import Maos
from maos.engine.attempts import Attempts
from maos_testing.crash import ChildProcess
from maos_testing.model_stub import ModelStub, ScriptStep, ToolCall
from tests.agents_large import codex_engine
from tests.agents_large.programs import ROOT, said_to_the_model
from tests.engine.test_what_survives import gone, holder_of, until

pytestmark = pytest.mark.agents

LONG = " ".join(f"word{number}" for number in range(60))
SCRIPTS = {
    "text": [
        ScriptStep(
            text="I write it down.", calls=[ToolCall(name="exec_command", input={"cmd": "echo one >> effects"})]
        ),
        ScriptStep(text=LONG, chunk_chars=20, delay_s=0.1),
    ],
    "tool": [
        ScriptStep(
            text="It takes a while.",
            calls=[ToolCall(name="exec_command", input={"cmd": "echo one >> effects; sleep 3"})],
        ),
        ScriptStep(text="It is done."),
    ],
}


@pytest.fixture
async def stub() -> AsyncIterator[ModelStub]:
    async with ModelStub(SCRIPTS) as running:
        yield running


@pytest.fixture
async def attempts(m: Maos, home: Path, stub: ModelStub) -> AsyncIterator[Attempts]:
    engine = codex_engine.engine(m, home, stub.url)
    yield engine
    await engine.close()


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


def effects(work: Path) -> list[str]:
    path = work / "effects"
    return path.read_text().split() if path.exists() else []


def in_the_middle(attempts: Attempts, stub: ModelStub, work: Path, moment: str) -> Callable[[], Awaitable[bool]]:
    """A condition: the agent has run its tool and its model is speaking; or it is in the middle of its tool."""

    async def reached() -> bool:
        try:
            attempt = await attempts.get("a")
        except maos.NotFound:
            return False
        if moment == "tool":
            return bool(attempt.tools_open and effects(work))
        return attempt.tools_done == 1 and any(asked.step == 1 for asked in stub.asked("text"))

    return reached


async def tools_announced(attempts: Attempts) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    async for record in attempts.records("a"):
        if record.type == "attempt_output":
            found += [fact for fact in record.data["facts"] if fact["kind"] == "tool_use"]
    return found


@pytest.mark.parametrize("moment", ["text", "tool"])
async def test_the_engine_is_killed(
    attempts: Attempts, tmp_path: Path, work: Path, home: Path, stub: ModelStub, moment: str
) -> None:
    """The agent does not notice; the next engine hears the rest, and no tool runs twice (R-202)."""
    database, task = tmp_path / "maos.db", f"SCRIPT={moment}"
    program = ["-m", "tests.agents_large.codex_engine"]
    engine = ChildProcess([sys.executable, *program, database, home, work, stub.url, task], cwd=ROOT)
    await until(in_the_middle(attempts, stub, work, moment))
    engine.kill()
    await asyncio.to_thread(engine.wait, 1)
    attempt = await codex_engine.go_on(attempts, work, "")
    assert (attempt.status, attempt.number, attempt.tools_done) == ("done", 1, 1)
    assert attempt.result == (LONG if moment == "text" else "It is done.")
    assert effects(work) == ["one"]
    assert len(await tools_announced(attempts)) == 1
    await until(lambda: gone(home))


@pytest.mark.parametrize("victim", ["program", "holder"])
@pytest.mark.parametrize("moment", ["text", "tool"])
async def test_the_program_or_its_holder_is_killed_and_the_agent_resumed(
    attempts: Attempts, work: Path, home: Path, stub: ModelStub, moment: str, victim: str
) -> None:
    """R-206, I31, I33: it goes on in its own thread, is told what is unknown, and no tool runs twice."""
    running = await attempts.start(
        f"SCRIPT={moment}", kind="codex", name="a", model="gpt-5.5", cwd=work, in_place=True, permission="edits"
    )
    await until(in_the_middle(attempts, stub, work, moment))
    os.kill(running.attempt.pid if victim == "program" else holder_of(running.attempt.pid), signal.SIGKILL)
    first = await running.wait()
    assert (first.status, first.failure) == ("failed", "killed" if victim == "program" else "holder_lost")
    await until(lambda: gone(home))
    second = await codex_engine.go_on(attempts, work, "")
    assert (second.status, second.number, second.session) == ("done", 2, first.session)
    assert effects(work) == ["one"]
    asked = said_to_the_model(stub)
    assert "You were interrupted" in asked
    if moment == "tool":
        assert "unknown whether these tool calls took effect" in asked


async def test_the_machine_is_lost_and_another_one_resumes_from_the_journal(
    attempts: Attempts, work: Path, home: Path, stub: ModelStub
) -> None:
    """Everything but the journal is gone: the transcript comes from our own copy."""
    running = await attempts.start(
        "SCRIPT=text", kind="codex", name="a", model="gpt-5.5", cwd=work, in_place=True, permission="edits"
    )
    await until(in_the_middle(attempts, stub, work, "text"))
    os.kill(holder_of(running.attempt.pid), signal.SIGKILL)
    first = await running.wait()
    await until(lambda: gone(home))
    shutil.rmtree(home)
    second = await codex_engine.go_on(attempts, work, "")
    assert (second.status, second.number, second.session) == ("done", 2, first.session)
    assert effects(work) == ["one"]
    assert "I write it down." in json.dumps(stub.requests[-1].body["input"])
