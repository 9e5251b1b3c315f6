"""The real Claude Code under an engine: everything is killed, in the middle of a text and in the middle of a tool."""

import asyncio
import json
import os
import random
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

import maos
from maos.app import Maos
from maos.engine.attempts import Attempts
from maos.model.attempt import Attempt
from maos_testing.crash import ChildProcess
from maos_testing.model_stub import ModelStub, ScriptFault, ScriptStep, ToolCall
from tests.engine import claude_engine
from tests.engine.conftest import processes_below
from tests.engine.test_what_survives import gone, holder_of, until

LONG = " ".join(f"word{number}" for number in range(60))
SCRIPT = [
    ScriptStep(
        text="I write it down.",
        calls=[ToolCall(name="Bash", input={"command": "echo one >> effects", "description": "x"})],
    ),
    ScriptStep(text=LONG, chunk_chars=20, delay_s=0.05),
]
SLOW = [
    ScriptStep(
        text="This takes a while.",
        calls=[ToolCall(name="Bash", input={"command": "echo one >> effects; sleep 2", "description": "x"})],
    ),
    ScriptStep(text="It is done."),
]

TOO_LONG = ScriptFault(status=400, times=0, message="prompt is too long: 9 tokens > 8 maximum")
LONG_CONVERSATION = [SCRIPT[0], ScriptStep(text="never", faults=[TOO_LONG])]


@pytest.fixture
async def attempts(m: Maos, home: Path, stub: ModelStub) -> AsyncIterator[Attempts]:
    engine = claude_engine.engine(m, home, stub.url)
    yield engine
    await engine.close()


@pytest.fixture
async def stub() -> AsyncIterator[ModelStub]:
    async with ModelStub({"text": SCRIPT, "tool": SLOW, "long": LONG_CONVERSATION}) as running:
        yield running


async def facts_of(attempts: Attempts, kind: str) -> list[dict[str, Any]]:
    found = []
    async for record in attempts.records("a"):
        if record.type == "attempt_output":
            found += [each for each in record.data["facts"] if each["kind"] == kind]
    return found


def effects(folder: Path) -> list[str]:
    path = folder / "effects"
    return path.read_text().split() if path.exists() else []


def transcribed(attempts: Attempts, attempt: Attempt) -> bool:
    """Whether the program has written down itself that it uses a tool; it does so a tenth of a second late."""
    for path in (attempts.folder / "homes").glob(f"{attempt.agent}/claude/projects/*/{attempt.session}.jsonl"):
        return b'"tool_use"' in path.read_bytes()
    return False


def spooled(attempt: Attempt, word: bytes) -> bool:
    """Whether the holder has heard a word that need not be recorded yet: of a paragraph that goes on."""
    return any(word in path.read_bytes() for path in Path(attempt.folder).rglob("*") if path.is_file())


async def in_the_middle(attempts: Attempts, folder: Path, name: str) -> Callable[[], Any]:
    """A condition: the agent has run its tool and is in the middle of a text; or is in the middle of its tool."""

    async def reached() -> bool:
        try:
            attempt = await attempts.get("a")
        except maos.NotFound:
            return False
        if name == "tool":
            return bool(attempt.tools_open and effects(folder)) and transcribed(attempts, attempt)
        return attempt.tools_done == 1 and spooled(attempt, b"word2")

    return reached


def check_facts(said: list[dict[str, Any]]) -> None:
    """No line twice: a tool is announced once for each id."""
    ids = [each["id"] for each in said]
    assert len(ids) == len(set(ids))


async def test_an_undisturbed_run(attempts: Attempts, tmp_path: Path, home: Path) -> None:
    attempt = await claude_engine.go_on(attempts, tmp_path, "SCRIPT=text")
    assert (attempt.status, attempt.result, attempt.tools_done) == ("done", LONG, 1)
    assert attempt.cost_usd > 0
    assert attempt.total_tokens.output
    assert effects(tmp_path) == ["one"]
    assert attempt.transcript_bytes
    assert processes_below(home) == []


@pytest.mark.parametrize("moment", ["text", "tool"])
async def test_the_engine_is_killed(
    attempts: Attempts, tmp_path: Path, home: Path, stub: ModelStub, moment: str
) -> None:
    """The agent does not notice; the next engine hears the rest, and no tool runs twice."""
    engine = ChildProcess([
        sys.executable, claude_engine.__file__, tmp_path / "maos.db", home, tmp_path, stub.url, f"SCRIPT={moment}",
    ])  # fmt: skip
    await until(await in_the_middle(attempts, tmp_path, moment))
    engine.kill()
    await asyncio.to_thread(engine.wait, 1)
    attempt = await claude_engine.go_on(attempts, tmp_path, "")
    assert (attempt.status, attempt.number) == ("done", 1)
    assert attempt.result == (LONG if moment == "text" else "It is done.")
    assert effects(tmp_path) == ["one"]
    check_facts(await facts_of(attempts, "tool_use"))
    await until(lambda: gone(home))


@pytest.mark.parametrize("victim", ["program", "holder"])
@pytest.mark.parametrize("moment", ["text", "tool"])
async def test_the_program_or_its_holder_is_killed_and_the_agent_resumed(
    attempts: Attempts, tmp_path: Path, home: Path, moment: str, victim: str, stub: ModelStub
) -> None:
    """R-206, I31, I33: it goes on in its own session, is told what is unknown, and no tool runs twice."""
    running = await attempts.start(
        f"SCRIPT={moment}", kind="claude", name="a", cwd=tmp_path, in_place=True, tools_allowed=["Bash"]
    )
    await until(await in_the_middle(attempts, tmp_path, moment))
    session = running.attempt.session
    os.kill(running.attempt.pid if victim == "program" else holder_of(running.attempt.pid), signal.SIGKILL)
    first = await running.wait()
    assert (first.status, first.failure) == ("failed", "killed" if victim == "program" else "holder_lost")
    await until(lambda: gone(home))
    if moment == "text":
        said = " ".join(each["text"] for each in await facts_of(attempts, "text"))
        assert "word0 word1" in said, "the unfinished text is lost"
    second = await claude_engine.go_on(attempts, tmp_path, "")
    assert (second.status, second.number, second.session) == ("done", 2, session)
    assert effects(tmp_path) == ["one"]
    asked = json.dumps(stub.requests[-1].body["messages"])
    assert "You were interrupted" in asked
    if moment == "tool":
        assert "unknown whether these tool calls took effect" in asked
    check_facts(await facts_of(attempts, "tool_use"))


async def test_a_second_kill_does_not_hide_the_tool_that_the_first_one_interrupted(
    attempts: Attempts, tmp_path: Path, home: Path, stub: ModelStub
) -> None:
    """I31: the second attempt was told of it and killed before it could read that, so the third is told too."""
    running = await attempts.start(
        "SCRIPT=tool", kind="claude", name="a", cwd=tmp_path, in_place=True, tools_allowed=["Bash"]
    )
    await until(await in_the_middle(attempts, tmp_path, "tool"))
    os.kill(running.attempt.pid, signal.SIGKILL)
    await running.wait()
    running = await attempts.resume("a")
    os.kill(running.attempt.pid, signal.SIGKILL)
    second = await running.wait()
    assert (second.number, second.tools_open, second.turns) == (2, {}, 0)
    assert [tool.input["command"] for tool in second.known.unknown.values()] == ["echo one >> effects; sleep 2"]
    third = await claude_engine.go_on(attempts, tmp_path, "")
    assert (third.status, third.number) == ("done", 3)
    assert not third.known.unknown
    last = json.dumps(stub.requests[-1].body["messages"][-1])
    assert "unknown whether these tool calls took effect" in last
    assert "echo one >> effects" in last
    assert effects(tmp_path) == ["one"]


async def test_a_conversation_that_is_too_long_is_continued_in_a_new_one(
    attempts: Attempts, tmp_path: Path, stub: ModelStub
) -> None:
    """With the task and what is known; the same session would only be too long again."""
    first = await claude_engine.go_on(attempts, tmp_path, "SCRIPT=long")
    assert (first.status, first.failure, first.tools_done) == ("failed", "context_overflow", 1)
    before = len(stub.requests)
    second = await claude_engine.go_on(attempts, tmp_path, "")
    assert (second.number, second.order["resume"]) == (2, False)
    assert second.session != first.session
    asked = json.dumps(stub.requests[before].body["messages"])
    for words in ("longer than the model accepts", "here is the task again", "SCRIPT=long", "1 tool calls were"):
        assert words in asked
    assert "toolu" not in asked, "it continues in the old conversation"


async def test_a_rate_limit_lasts_as_long_as_the_servers_ask_to_wait(m: Maos, home: Path, tmp_path: Path) -> None:
    """The program says it with each of its own tries, and not when it gives up."""
    for retry_after_s, name in ((1, "asked"), (None, "unasked")):
        fault = ScriptFault(status=429, times=0, retry_after_s=retry_after_s, message="rate limit")
        async with ModelStub([ScriptStep(text="never", faults=[fault])]) as stub:
            engine = claude_engine.engine(m, home, stub.url)
            engine._environment["CLAUDE_CODE_MAX_RETRIES"] = "1"
            running = await engine.start("try", kind="claude", name=name, cwd=tmp_path, in_place=True)
            attempt = await running.wait()
            await engine.close()
        assert (attempt.failure, attempt.retries) == ("rate_limited", 1)
        assert attempt.reset_us == (attempt.output_us + 1_000_000 if retry_after_s else 0)


async def test_the_machine_is_lost_and_another_one_resumes_from_the_journal(
    attempts: Attempts, tmp_path: Path, home: Path, stub: ModelStub
) -> None:
    """Everything but the journal is gone: the transcript comes from our own copy."""
    running = await attempts.start(
        "SCRIPT=text", kind="claude", name="a", cwd=tmp_path, in_place=True, tools_allowed=["Bash"]
    )
    await until(await in_the_middle(attempts, tmp_path, "text"))
    os.kill(holder_of(running.attempt.pid), signal.SIGKILL)
    await running.wait()
    await until(lambda: gone(home))
    shutil.rmtree(home)
    second = await claude_engine.go_on(attempts, tmp_path, "")
    assert (second.status, second.number) == ("done", 2)
    assert effects(tmp_path) == ["one"]
    assert "I write it down." in json.dumps(stub.requests[-1].body["messages"])


async def test_a_message_reaches_it_while_it_works(attempts: Attempts, tmp_path: Path, stub: ModelStub) -> None:
    running = await attempts.start(
        "SCRIPT=tool", kind="claude", name="a", cwd=tmp_path, in_place=True, tools_allowed=["Bash"]
    )
    await until(await in_the_middle(attempts, tmp_path, "tool"))
    await attempts.send("a", "By the way: PINEAPPLE.")
    attempt: Attempt = await running.wait()
    assert attempt.status == "done"
    assert attempt.inbox_cursor == 1
    assert "PINEAPPLE" in json.dumps(stub.requests[-1].body["messages"])


async def test_killed_at_random_moments_it_ends_like_an_undisturbed_one(
    attempts: Attempts, tmp_path: Path, home: Path, stub: ModelStub
) -> None:
    """R-202."""
    chance = random.Random(11)
    argv = [sys.executable, claude_engine.__file__, tmp_path / "maos.db", home, tmp_path, stub.url, "SCRIPT=text"]
    for _ in range(5):
        engine = ChildProcess(argv)
        await asyncio.to_thread(engine.wait_for_ack)
        await asyncio.sleep(chance.uniform(0.0, 0.4))
        engine.kill()
        await asyncio.to_thread(engine.wait, 1)
    attempt = await claude_engine.go_on(attempts, tmp_path, "")
    assert (attempt.status, attempt.result) == ("done", LONG)
    assert effects(tmp_path) == ["one"]
    assert (await facts_of(attempts, "text"))[-1]["text"].endswith("word59")
    await until(lambda: gone(home))
