"""A real agent that speaks the Agent Client Protocol: opencode, driven against a scripted model."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from maos.agents.contract import LaunchOrder
from maos.agents.kinds import dialect
from maos_testing.model_stub import ModelStub, ScriptStep, ToolCall
from tests.agents.driving import Run, an_order, started
from tests.agents_large import acp_agents
from tests.agents_large.programs import environment, notes_server, processes_with, said_to_the_model, wait_for
from tests.events import last_message

pytestmark = pytest.mark.agents

OPENCODE = "acp:opencode acp"


def shell(command: str) -> ToolCall:
    """A command that the model wants to run."""
    return ToolCall(name="bash", input={"command": command, "description": "a command of the test"})


def order_for(folder: Path, stub: ModelStub, **fields: Any) -> LaunchOrder:
    """An order whose agent asks the stub, before it runs a command, and nobody else for anything."""
    given = acp_agents.environment(acp_agents.AGENTS["opencode"], folder, stub.url)
    return an_order(folder, env={name: value for name, value in given.items() if name != "PATH"}, **fields)


async def answered(run: Run, *, allow: bool) -> None:
    """Answer the permission that is asked for next."""
    (asked,) = await run.until_fact("permission_requested")
    await run.write(run.conversation.answer(asked["id"], allow=allow))


async def test_it_runs_what_it_was_allowed_to(tmp_path: Path) -> None:
    """R-103, with another engine at every line."""
    script = [ScriptStep(text="I make it.", calls=[shell("echo hello > made")]), ScriptStep(text="It is made.")]
    async with ModelStub(script) as stub:
        order = order_for(tmp_path, stub, mcp=[notes_server(tmp_path)])
        async with started(dialect(OPENCODE), order, environment("opencode", stub.url), forgetful=True) as run:
            await answered(run, allow=True)
            await run.until_fact("turn_ended")
            assert await run.finish() == 0
        assert "notes_note" in said_to_the_model(stub), "it has the tools it was given"
    assert (order.cwd / "made").read_text() == "hello\n"
    assert last_message(run.heard) == "It is made."
    assert len({fact["id"] for fact in run.of("tool_use")}) == len(run.of("tool_result")) == 1
    assert not run.of("turn_ended")[0].get("failed")


async def test_it_does_not_run_what_was_refused(tmp_path: Path) -> None:
    script = [ScriptStep(text="I would like to.", calls=[shell("echo hello > made")]), ScriptStep(text="Then not.")]
    async with ModelStub(script) as stub:
        order = order_for(tmp_path, stub)
        async with started(dialect(OPENCODE), order, environment("opencode", stub.url)) as run:
            await answered(run, allow=False)
            await run.until_fact("turn_ended")
            await run.finish()
    assert not (order.cwd / "made").exists()
    assert run.of("tool_result")[0]["failed"]


async def test_killed_in_the_middle_of_a_tool_it_is_loaded_and_runs_nothing_twice(tmp_path: Path) -> None:
    """What was said before is not heard again as new, and its command is not repeated (I31)."""
    word = f"maos-test-{os.getpid()}-{tmp_path.name}"
    scripts = {
        "work": [ScriptStep(text="I work.", calls=[shell(f"echo begun >> ran; exec -a {word} sleep 300")])],
        "again": [ScriptStep(text="I am back.")],
    }
    async with ModelStub(scripts) as stub:
        order = order_for(tmp_path, stub, task="SCRIPT=work please")
        ran = order.cwd / "ran"
        async with started(dialect(OPENCODE), order, environment("opencode", stub.url)) as run:
            await answered(run, allow=True)
            await asyncio.to_thread(wait_for, ran.exists, "the tool has not begun")
            run.kill()
            await run.process.wait()
            for pid in processes_with(word):
                os.kill(pid, 9)  # its shell runs in a session of its own and outlives it: the holder's business (I33)
        session = run.of("session")[0]["id"]
        order = order._replace(attempt="tester.2", task="SCRIPT=again go on", resume=True, session=session)
        async with started(dialect(OPENCODE), order, environment("opencode", stub.url)) as resumed:
            await resumed.until_fact("turn_ended")
            await resumed.finish()
        assert "SCRIPT=work please" in said_to_the_model(stub)
    assert [fact["id"] for fact in resumed.of("session")] == [session]
    assert resumed.text() == "I am back."
    assert not resumed.of("tool_use")
    assert ran.read_text() == "begun\n"
