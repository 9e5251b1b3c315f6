"""Agents of the Agent Client Protocol under an engine: killed, and resumed in the session that they keep themselves."""

import asyncio
import json
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from maos.app import Maos
from maos.engine.attempts import Attempts
from maos.engine.live import LiveAttempt
from maos.model.attempt import Attempt
from maos_testing.crash import ChildProcess
from tests.agents.acp.test_conversation import PEER
from tests.engine import acp_engine
from tests.engine.test_what_survives import gone, until

ROOT = Path(__file__).parents[2]


def peer(*options: str) -> str:
    return " ".join([f"acp:{sys.executable}", str(PEER), *options])


@pytest.fixture
async def attempts(m: Maos, home: Path) -> AsyncIterator[Attempts]:
    engine = acp_engine.engine(m, home)
    yield engine
    await engine.close()


def ways(home: Path) -> list[str]:
    """How the peer's sessions were opened."""
    notes = home / "homes" / "a" / "notes"
    return [json.loads(line)["way"] for line in notes.read_text().splitlines()] if notes.exists() else []


def prompts(home: Path, session: str) -> list[str]:
    """What the peer was told in a session."""
    lines = [json.loads(line) for line in (home / "homes" / "a" / session).read_text().splitlines()]
    return [text for kind, text in lines if kind == "user"]


async def facts_of(attempts: Attempts, number: int) -> list[dict[str, Any]]:
    """The facts of one attempt, without those of the process."""
    found: list[dict[str, Any]] = []
    async for record in attempts.records("a"):
        if record.stream == f"attempt/a.{number}" and record.type == "attempt_output":
            found += record.data["facts"]
    return [each for each in found if each["kind"] not in ("exit", "diagnostic", "input")]


async def killed_in_a_tool(attempts: Attempts, folder: Path, kind: str) -> Attempt:
    """An agent that said something, used a tool, and was killed in the middle of the next."""
    marks = str(folder / "marks")
    steps = [
        {"say": "I begin."},
        {"tool": {"id": "t1", "path": marks}},
        {"tool": {"id": "t2", "path": marks, "hang": True}},
    ]
    running = await attempts.start(json.dumps(steps), kind=kind, name="a", cwd=folder, in_place=True)

    async def in_the_tool() -> bool:
        return "t2" in running.attempt.tools_open and Path(marks).read_text() == "once\nonce\n"

    await until(in_the_tool)
    os.kill(running.attempt.pid, signal.SIGKILL)
    attempt = await running.wait()
    assert attempt.failure == "killed"
    return attempt


@pytest.mark.parametrize("option", ["", "--resume"], ids=["load", "resume"])
async def test_a_killed_agent_is_resumed_in_the_session_it_keeps(
    attempts: Attempts, home: Path, tmp_path: Path, option: str
) -> None:
    """Nothing that it repeats of its session is recorded again, and it is told what is unknown (I29, I31)."""
    first = await killed_in_a_tool(attempts, tmp_path, peer(option))
    assert first.session_kept
    second = await (await attempts.resume("a")).wait()
    assert (second.status, second.session, second.tools_done) == ("done", first.session, 0)
    assert ways(home) == ["new", option.strip("-") or "load"]
    assert [each["kind"] for each in await facts_of(attempts, 2)] == ["session", "text", "usage", "turn_ended"]
    assert second.result == "I remember 5 things"
    told = prompts(home, first.session)[-1]
    assert "You do not remember" not in told
    assert "unknown whether these tool calls took effect" in told
    assert "1 tool calls were completed" in told
    assert (tmp_path / "marks").read_text() == "once\nonce\n"


async def test_one_that_is_killed_before_it_has_loaded_its_session_loads_it_the_next_time(
    attempts: Attempts, home: Path, tmp_path: Path
) -> None:
    first = await killed_in_a_tool(attempts, tmp_path, peer("--load-waits"))
    running = await attempts.resume("a")

    async def loads() -> bool:
        return ways(home) == ["new", "load"]

    await until(loads)
    os.kill(running.attempt.pid, signal.SIGKILL)
    await running.wait()
    (home / "homes" / "a" / "go").touch()
    third = await (await attempts.resume("a")).wait()
    assert (third.status, third.session, third.number) == ("done", first.session, 3)
    assert ways(home) == ["new", "load", "load"]


@pytest.mark.parametrize("option", ["--no-load", "--load-fails"])
async def test_a_session_that_cannot_be_resumed_is_begun_anew_in_the_same_attempt(
    attempts: Attempts, home: Path, tmp_path: Path, option: str
) -> None:
    """The agent gets the task and what is recorded; the attempt does not fail."""
    first = await killed_in_a_tool(attempts, tmp_path, peer(option))
    second = await (await attempts.resume("a", task='[{"say": "I continue."}]')).wait()
    assert (second.status, second.number, second.result) == ("done", 2, "I continue.")
    assert second.session != first.session
    (told,) = prompts(home, second.session)
    assert "You do not remember it, so here is the task again" in told
    assert "Your last message was:\n\nI begin." in told
    assert ways(home) == (["new", "new"] if option == "--no-load" else ["new", "load", "new"])


async def test_a_home_that_is_lost_takes_the_session_with_it(attempts: Attempts, home: Path, tmp_path: Path) -> None:
    await killed_in_a_tool(attempts, tmp_path, peer())
    shutil.rmtree(home / "homes")
    second = await (await attempts.resume("a", task='[{"say": "I continue."}]')).wait()
    assert (second.status, second.result) == ("done", "I continue.")
    assert "You do not remember it" in prompts(home, second.session)[0]
    assert ways(home) == ["new"]


async def test_the_engine_is_killed_while_the_session_is_loaded_and_the_load_fails(
    attempts: Attempts, home: Path, tmp_path: Path
) -> None:
    """The next engine has the task for a new session too."""
    kind = peer("--load-fails", "--load-waits")
    first = await killed_in_a_tool(attempts, tmp_path, kind)
    task = '[{"say": "I continue."}]'
    program = [sys.executable, "-m", "tests.engine.acp_engine", tmp_path / "maos.db", home, tmp_path, kind, task]
    engine = ChildProcess(program, cwd=ROOT)

    async def loads() -> bool:
        return ways(home) == ["new", "load"]

    await until(loads)
    engine.kill()
    await asyncio.to_thread(engine.wait, 1)
    (home / "homes" / "a" / "go").touch()
    second = await acp_engine.go_on(attempts, tmp_path, kind, "")
    assert (second.status, second.number, second.result) == ("done", 2, "I continue.")
    assert second.session != first.session
    (told,) = prompts(home, second.session)
    assert "You do not remember it, so here is the task again" in told
    await until(lambda: gone(home))


# --- permissions -----------------------------------------------------------------------------------------------------

ASK = {"ask": {"id": "t1", "title": "rm -r build", "kind": "execute"}}


async def asking(attempts: Attempts, folder: Path, *then: dict[str, Any]) -> LiveAttempt:
    """An agent that has asked for the permission to use a tool, and waits."""
    steps = [{"say": "I would like to."}, ASK, *then]
    running = await attempts.start(json.dumps(steps), kind=peer(), name="a", cwd=folder, in_place=True)

    async def asked() -> bool:
        return bool(running.attempt.permissions)

    await until(asked)
    return running


async def test_a_tool_that_waits_for_a_permission_is_known_and_has_had_no_effect(
    attempts: Attempts, tmp_path: Path
) -> None:
    """Nothing but the request announced it."""
    running = await asking(attempts, tmp_path)
    assert [tool.name for tool in running.attempt.tools_open.values()] == ["rm -r build"]
    os.kill(running.attempt.pid, signal.SIGKILL)
    attempt = await running.wait()
    assert not attempt.tools_unknown
    assert "unknown" not in await attempts.words_on_resume("a")


@pytest.mark.parametrize("allow", [True, False])
async def test_a_tool_that_was_allowed_may_have_taken_effect_and_one_that_was_refused_has_not(
    attempts: Attempts, tmp_path: Path, allow: bool
) -> None:
    """Killed after the answer: the peer says nothing of the outcome of the tool that it asked for."""
    then = {"tool": {"id": "t2", "path": str(tmp_path / "marks"), "hang": True}}
    running = await asking(attempts, tmp_path, then)
    (request,) = running.attempt.permissions
    await running.answer(request, allow=allow)

    async def in_the_next_tool() -> bool:
        return "t2" in running.attempt.tools_open

    await until(in_the_next_tool)
    os.kill(running.attempt.pid, signal.SIGKILL)
    attempt = await running.wait()
    assert [tool.name for tool in attempt.tools_unknown.values()] == (["rm -r build"] if allow else []) + ["append"]
    assert ("rm -r build" in await attempts.words_on_resume("a")) is allow


# --- messages --------------------------------------------------------------------------------------------------------


async def test_messages_in_mid_turn_are_told_in_turns_of_their_own(
    attempts: Attempts, home: Path, tmp_path: Path
) -> None:
    """One after the other, in the same session and process, each once (I19)."""
    running = await asking(attempts, tmp_path)
    for text in ("look at the tests", "and at the docs"):
        await attempts.send("a", text)
    (request,) = running.attempt.permissions
    await running.answer(request, allow=True)
    attempt = await running.wait()
    assert (attempt.status, attempt.number, attempt.turns) == ("done", 1, 3)
    _task, *told = prompts(home, attempt.session)
    assert ["look at the tests" in each for each in told] == [True, False]
    assert ["and at the docs" in each for each in told] == [False, True]
    assert not [each async for each in attempts.bus.waiting("a")]


@pytest.mark.parametrize("point", ["attempt:before input", "attempt:after input"])
async def test_the_engine_is_killed_around_the_moment_at_which_it_tells_a_message(
    attempts: Attempts, home: Path, tmp_path: Path, point: str
) -> None:
    """The next engine tells it, or has nothing left to tell: it is told once (I19, I21)."""
    await attempts.bus.send("person", "a", "look at the tests")
    program = [sys.executable, "-m", "tests.engine.acp_engine", tmp_path / "maos.db", home, tmp_path, peer(), "begin"]
    # Its inputs are the request for a session, the prompt, and the message.
    engine = ChildProcess(program, cwd=ROOT, crash_at=3, crash_name=point)
    life = await asyncio.to_thread(engine.wait, 1)
    assert life.died_at == point
    attempt = await acp_engine.go_on(attempts, tmp_path, peer(), "")
    assert (attempt.status, attempt.number, attempt.turns) == ("done", 1, 2)
    assert sum("look at the tests" in each for each in prompts(home, attempt.session)) == 1
    assert not [each async for each in attempts.bus.waiting("a")]
    await until(lambda: gone(home))


async def test_what_it_prints_about_itself_is_not_its_last_word(attempts: Attempts, tmp_path: Path) -> None:
    marks = str(tmp_path / "marks")
    steps = [{"say": "I begin."}, {"print": '{"jsonrpc": "2.0", "method": "_x/note", "params": {}}'}]
    steps.append({"tool": {"id": "t1", "path": marks, "hang": True}})  # type: ignore[dict-item]
    running = await attempts.start(json.dumps(steps), kind=peer(), name="a", cwd=tmp_path, in_place=True)

    async def in_the_tool() -> bool:
        return "t1" in running.attempt.tools_open

    await until(in_the_tool)
    os.kill(running.attempt.pid, signal.SIGKILL)
    attempt = await running.wait()
    assert attempt.last_text == "I begin."
    found = [each async for each in attempts.records("a") if each.type == "attempt_output"]
    said = [fact["text"] for each in found for fact in each.data["facts"] if fact["kind"] == "diagnostic"]
    assert "a word of mine" in said
    assert any("_x/note" in each for each in said)
