"""Real agents of the Agent Client Protocol under an engine, on a scripted model: killed in a tool and resumed.

What each of them can do is observed, and is the table of docs/howto/run-an-acp-agent.md.
"""

import contextlib
import json
import os
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from maos.agents import kinds
from maos.app import Maos
from maos.clock import SystemClock
from maos.engine.attempts import Attempts
from maos.engine.live import LiveAttempt
from maos.settings.loader import Current
from maos_testing.model_stub import ModelStub, ScriptStep
from tests.agents_large.acp_agents import AGENTS, AcpAgent, environment
from tests.agents_large.programs import descendants, notes_server
from tests.engine.test_what_survives import gone, until

pytestmark = pytest.mark.agents

LINGERING_S = 90.0
"""The time limit of the attempt that is to end by itself."""


@pytest.fixture(params=AGENTS)
def agent(request: pytest.FixtureRequest) -> AcpAgent:
    return AGENTS[request.param]


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    return tmp_path / "ledger"


@pytest.fixture
async def stub(agent: AcpAgent, ledger: Path) -> AsyncIterator[ModelStub]:
    def step(text: str, line: str, then: str = "") -> ScriptStep:
        return ScriptStep(text=text, calls=[agent.run_command(f"echo {line} >> {ledger}{then}")])

    scripts = {
        "work": [step("I begin.", "one"), step("It takes a while.", "two", "; sleep 300")],
        "again": [step("I am back.", "three"), ScriptStep(text="It is done.")],
        "note": [ScriptStep(text="I have read it.")],
    }
    async with ModelStub(scripts) as running:
        yield running


async def allow_next(running: LiveAttempt, number: int) -> None:
    """Allow what the agent asks for; `number` counts the tools that it has begun in this attempt."""

    async def asks() -> bool:
        assert running.attempt.is_open, f"it has ended: {running.attempt.message}"
        return running.attempt.tools_done == number - 1 and any(
            each.is_open for each in running.attempt.permissions.values()
        )

    await until(asks)
    (request,) = [each.id for each in running.attempt.permissions.values() if each.is_open]
    await running.answer(request, allow=True)


async def test_killed_in_a_tool_and_resumed(
    agent: AcpAgent,
    m: Maos,
    home: Path,
    tmp_path: Path,
    ledger: Path,
    stub: ModelStub,
    golden: Callable[[str, str], None],
) -> None:
    """No tool runs twice, nothing that it repeats is recorded again, and it gets a message once (I19, I31)."""
    work = tmp_path / "work"
    work.mkdir()
    variables = environment(agent, tmp_path, stub.url)
    patient = Current(environment={"MAOS_AGENT_EXIT_GRACE_S": "15"})  # a busy machine makes no program a lingerer
    attempts = Attempts(
        m.journal, SystemClock(), dialect=kinds.dialect, folder=home, environment=variables, settings=patient
    )
    try:
        running = await attempts.start(
            "SCRIPT=work",
            kind=agent.kind,
            name="a",
            cwd=work,
            in_place=True,
            mcp=[notes_server(tmp_path)],
            env=[name for name in variables if name != "PATH"],
        )
        await allow_next(running, 1)
        await allow_next(running, 2)

        async def in_the_tool() -> bool:
            return ledger.exists() and ledger.read_text() == "one\ntwo\n" and bool(running.attempt.tools_unknown)

        await until(in_the_tool)
        for pid in (running.attempt.pid, *descendants(running.attempt.pid)):  # some work in a process of their own
            with contextlib.suppress(ProcessLookupError):  # a child has exited by itself
                os.kill(pid, signal.SIGKILL)
        first = await running.wait()
        assert (first.failure, first.tools_done) == ("killed", 1)
        assert ["echo two" in str(tool) for tool in first.tools_unknown.values()] == [True]
        await until(lambda: gone(home))

        running = await attempts.resume(
            "a", task="SCRIPT=again", time_limit_s=LINGERING_S, mcp=[notes_server(tmp_path)]
        )
        resumes = "yes"

        async def asks() -> bool:
            return bool(running.attempt.permissions)

        await until(asks)
        await attempts.send("a", "SCRIPT=note: look at the tests")
        await allow_next(running, 1)
        second = await running.wait()
        assert (second.status, second.number, second.turns, second.tools_done) == ("done", 2, 2, 1)
        assert second.result == "I have read it."
        assert ledger.read_text() == "one\ntwo\nthree\n"
        assert not [each async for each in attempts.bus.waiting("a")]
        texts = [
            fact["text"]
            async for record in attempts.records("a")
            if record.type == "attempt_output"
            for fact in record.data["facts"]
            if fact["kind"] == "text"
        ]
        assert texts == ["I begin.", "It takes a while.", "I am back.", "It is done.", "I have read it."]
        said = json.dumps(stub.asked("note")[-1].body)
        assert said.count("SCRIPT=note: look at the tests") == 1
        if second.session != first.session:
            assert "You do not remember it, so here is the task again" in said
            resumes = "no: a new session with the task"
        else:
            assert "You do not remember it" not in said
            assert "SCRIPT=work" in said
            assert "I begin." in said
        exits = "no: maos ends it" if second.stopping else "yes"
        row = [f"{agent.name} {agent.version}", resumes, "yes", "after the turn", exits]
        golden(f"acp/{agent.name}.txt", f"| {' | '.join(row)} |\n")
    finally:
        await attempts.close()
