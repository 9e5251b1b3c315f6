"""How an attempt ends: an agent that has answered is done, also when it does not exit by itself."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

import maos
from maos.app import Maos
from maos.engine.attempts import Attempts
from maos.engine.live import LiveAttempt
from maos.model.attempt import Attempt
from maos.model.failure import RESUME, TABLE
from maos.settings.schema import Settings
from maos_testing.crash import ChildProcess
from maos_testing.model_stub import ModelStub, ScriptStep, ToolCall
from tests.engine import claude_engine, peer_engine
from tests.engine.conftest import processes_below
from tests.engine.test_what_survives import gone, until

LIMIT_S = 10.0
SILENCE_S = 10
"""More than a program needs to start on a busy machine."""
ASK = {"ask": {"id": "t1", "title": "append", "kind": "edit"}}
BACKGROUND = [
    ScriptStep(
        text="I start a server.",
        calls=[ToolCall(name="Bash", input={"command": "sleep 500", "description": "x", "run_in_background": True})],
    ),
    ScriptStep(text="The server runs."),
]


@pytest.fixture
async def stub() -> AsyncIterator[ModelStub]:
    async with ModelStub({"background": BACKGROUND}) as running:
        yield running


async def ended(running: LiveAttempt) -> Attempt:
    async with asyncio.timeout(60):
        return await running.wait()


def peer_process(
    folder: Path, home: Path, time_limit_s: float, *steps: dict[str, Any], options: tuple[str, ...] = ()
) -> ChildProcess:
    """An engine with the agent `a`, to be killed."""
    where = [folder / "maos.db", home, folder]
    return ChildProcess([sys.executable, peer_engine.__file__, *where, str(time_limit_s), json.dumps(steps), *options])


async def until_attempt(m: Maos, condition: Callable[[Attempt], bool]) -> Attempt:
    """The agent's attempt, as soon as a condition holds of it."""

    async def holds() -> bool:
        try:
            return condition(await m.agents.get("a"))
        except maos.NotFound:
            return False

    await until(holds)
    return await m.agents.get("a")


async def until_heard(attempt: Attempt, words: bytes) -> None:
    """Until the holder has heard something."""
    folder = Path(attempt.folder)

    async def heard() -> bool:
        return any(words in each.read_bytes() for each in folder.glob("*.spool"))

    await until(heard)


async def gone_agent(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


async def until_true(condition: Callable[[], object]) -> None:
    async def holds() -> bool:
        return bool(condition())

    await until(holds)


async def events_of(m: Maos, kind: str) -> int:
    return len([record async for record in m.agents.records("a") if record.type == kind])


async def test_claude_that_leaves_a_shell_running_is_done_with_its_answer(
    m: Maos, tmp_path: Path, home: Path, stub: ModelStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Claude Code waits for a shell in the background for ever; nothing it started is left."""
    monkeypatch.setenv("MAOS_AGENT_EXIT_GRACE_S", "0.5")
    attempts: Attempts = claude_engine.engine(m, home, stub.url)
    running = await attempts.start(
        "SCRIPT=background", kind="claude", name="a", cwd=tmp_path, in_place=True, tools_allowed=["Bash"],
        time_limit_s=0,
    )  # fmt: skip
    attempt = await ended(running)
    assert (attempt.status, attempt.failure, attempt.result) == ("done", "", "The server runs.")
    assert attempt.tools_done == 1
    assert processes_below(home) == []
    await attempts.close()


async def test_an_agent_that_ignores_the_end_of_its_input_is_done(
    m: Maos, tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAOS_AGENT_EXIT_GRACE_S", "0.2")
    async with maos.open(tmp_path / "maos.db", home=home) as quick:
        attempt = await ended(await peer_engine.start(quick, tmp_path, {"say": "all is well"}, options=("--stays",)))
    assert (attempt.status, attempt.failure, attempt.result) == ("done", "", "all is well")
    assert processes_below(home) == []


async def test_an_agent_whose_turn_failed_and_that_stays_has_failed_for_its_own_reason(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAOS_AGENT_EXIT_GRACE_S", "0.2")
    async with maos.open(tmp_path / "maos.db", home=home) as quick:
        attempt = await ended(await peer_engine.start(quick, tmp_path, {"stop": "refusal"}, options=("--stays",)))
    assert (attempt.status, attempt.failure) == ("failed", "failed")
    assert "refuses" in attempt.message


async def test_an_engine_killed_while_the_agent_should_exit_leaves_it_to_the_next(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is done once, in its first attempt."""
    monkeypatch.setenv("MAOS_AGENT_EXIT_GRACE_S", "600")
    engine = peer_process(tmp_path, home, 0, {"say": "all is well"}, options=("--stays",))
    monkeypatch.setenv("MAOS_AGENT_EXIT_GRACE_S", "0.2")
    async with maos.open(tmp_path / "maos.db", home=home) as m:
        await until_attempt(m, lambda attempt: bool(attempt.turns))
        engine.kill()
        await asyncio.to_thread(engine.wait, 1)
        running = await m.agents.adopt("a")
        assert running is not None
        attempt = await ended(running)
        assert (attempt.status, attempt.number, attempt.result) == ("done", 1, "all is well")
        assert await events_of(m, "attempt_ended") == 1
    await until(lambda: gone(home))


async def test_a_message_that_comes_while_an_agent_should_exit_is_not_lost(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I19: it can no longer be delivered, so the next attempt gets it."""
    monkeypatch.setenv("MAOS_AGENT_EXIT_GRACE_S", "1")
    async with maos.open(tmp_path / "maos.db", home=home) as m:
        running = await peer_engine.start(m, tmp_path, {"say": "all is well"}, options=("--stays",))
        await asyncio.wait_for(running._has_finished.wait(), 60)
        await m.agents.send("a", "One more thing: PINEAPPLE.")
        assert (await ended(running)).status == "done"
        assert [each.message.text async for each in m.bus.waiting("a")] == ["One more thing: PINEAPPLE."]
        assert "PINEAPPLE" in await m.agents.words_on_resume("a")


# --- waiting for a person ----------------------------------------------------------------------------------------


async def waits_longer_than_its_limit(m: Maos) -> str:
    """The request that the agent waits for an answer to, when its time limit would be reached long since."""
    attempt = await until_attempt(m, lambda attempt: bool(attempt.permissions))
    await asyncio.sleep(LIMIT_S)
    assert (await m.agents.get("a")).is_open
    return next(iter(attempt.permissions))


async def test_waiting_for_a_person_takes_nothing_of_the_time_limit(m: Maos, tmp_path: Path) -> None:
    """Its question stays open, and is answered when the limit would be reached long since."""
    running = await peer_engine.start(m, tmp_path, ASK, {"say": "thanks"}, time_limit_s=LIMIT_S)
    await m.agents.answer("a", await waits_longer_than_its_limit(m), allow=True)
    attempt = await ended(running)
    assert (attempt.status, attempt.failure, attempt.number) == ("done", "", 1)


async def test_the_time_limit_goes_on_when_a_person_has_answered(m: Maos, tmp_path: Path) -> None:
    running = await peer_engine.start(m, tmp_path, ASK, {"wait": 0}, time_limit_s=LIMIT_S)
    await m.agents.answer("a", await waits_longer_than_its_limit(m), allow=True)
    attempt = await ended(running)
    assert (attempt.status, attempt.failure) == ("failed", "timed_out")


async def test_a_question_outlives_an_engine_that_is_killed_while_it_is_open(
    m: Maos, tmp_path: Path, home: Path
) -> None:
    """The holder neither ends the agent at its time limit nor forgets that the limit rests."""
    engine = peer_process(tmp_path, home, LIMIT_S, ASK, {"say": "thanks"})
    await until_attempt(m, lambda attempt: bool(attempt.permissions))
    await asyncio.sleep(0.3)  # the holder is told right after it is recorded
    engine.kill()
    await asyncio.to_thread(engine.wait, 1)
    request = await waits_longer_than_its_limit(m)
    running = await m.agents.adopt("a")
    assert running is not None
    await m.agents.answer("a", request, allow=True)
    attempt = await ended(running)
    assert (attempt.status, attempt.failure, attempt.number) == ("done", "", 1)


async def test_a_question_that_no_engine_has_heard_is_no_reason_to_time_out(
    m: Maos, tmp_path: Path, home: Path
) -> None:
    """The engine was killed before the agent asked, so the holder ended it at its limit: it is resumed, and asks
    again."""
    engine = peer_process(tmp_path, home, LIMIT_S, {"say": "I begin"}, {"until": str(tmp_path / "go")}, ASK)
    attempt = await until_attempt(m, lambda attempt: attempt.status == "running")
    await until_heard(attempt, b"I b")
    engine.kill()
    await asyncio.to_thread(engine.wait, 1)
    (tmp_path / "go").touch()
    await until(lambda: gone_agent(attempt.pid))
    running = await m.agents.adopt("a")
    assert running is not None
    attempt = await ended(running)
    assert (attempt.status, attempt.failure) == ("failed", "unattended")
    assert TABLE[attempt.failure].action == RESUME


# --- silence -----------------------------------------------------------------------------------------------------


@pytest.fixture
async def impatient(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Maos]:
    """An engine that soon ends agents that print nothing."""
    monkeypatch.setenv("MAOS_AGENT_SILENCE_S", str(SILENCE_S))
    async with maos.open(tmp_path / "impatient.db", home=home) as opened:
        yield opened


def test_silence_is_noticed_by_default() -> None:
    assert Settings().agent.silence_s > 0


async def test_silence_ends_an_agent(impatient: Maos, tmp_path: Path) -> None:
    attempt = await ended(await peer_engine.start(impatient, tmp_path, {"say": "I think\n"}, {"wait": 0}))
    assert (attempt.status, attempt.failure) == ("failed", "silent")


async def test_a_tool_or_a_person_that_takes_long_is_no_silence(impatient: Maos, tmp_path: Path) -> None:
    hangs = {"tool": {"id": "t1", "path": str(tmp_path / "marks"), "hang": True}}
    working = await peer_engine.start(impatient, tmp_path, hangs)
    asking = await peer_engine.start(impatient, tmp_path, ASK, name="asking")
    await until_true(lambda: working.attempt.tools_open and asking.attempt.permissions)
    await asyncio.sleep(SILENCE_S + 1)
    for running in (working, asking):
        assert not running.attempt.stopping
        await running.stop()
        assert (await ended(running)).failure == "stopped"


async def test_a_command_may_be_silent(impatient: Maos, tmp_path: Path) -> None:
    running = await impatient.agents.start(argv=["sleep", str(SILENCE_S + 1)], cwd=tmp_path, in_place=True, name="a")
    assert (await ended(running)).status == "done"
