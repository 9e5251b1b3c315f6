"""Money, with the real Claude Code and a model that notes what it charged: limits hold, and the cost that is shown is
what was charged, whatever is killed."""

import asyncio
import json
import os
import re
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from maos.cli.failures import LIMIT_REACHED
from maos.model.attempt import Attempt
from maos.model.run import Run, agent_name
from maos.runs import planner
from maos_testing.model_stub import ModelStub, ScriptFault, ScriptStep, TokenCount, ToolCall
from tests.agents.claude.stage import PATH, bash, charged, usd
from tests.runs.commands import Commands, until

NAMES = ("a", "b", "c", "d")
STEPS = 14
TOKENS = TokenCount(input=1000, output=400, cache_read=2000, cache_write=100)
PLAN = {
    "summary": "Four at once.",
    "tasks": [{"name": name, "task": f"SCRIPT=work-{name}", "agent": "hand"} for name in NAMES],
}
ONE = usd(TOKENS)
"""What one answer costs."""


def steps(name: str) -> list[ScriptStep]:
    hold, held = f"../../../../hold-{name}", f"../../../../held-{name}"
    call = bash(f"while [ -e {hold} ]; do touch {held}; sleep 0.05; done; sleep 0.3")
    work = [ScriptStep(text=f"Step {number}.", calls=[call], tokens=TOKENS) for number in range(STEPS)]
    return [*work, ScriptStep(text="Done.", tokens=TOKENS)]


@pytest.fixture
async def stub() -> AsyncIterator[ModelStub]:
    """The model falls silent once, at the beginning of the answer that is the plan."""
    silence = ScriptFault(kind="hang", after_chars=0)
    look = ScriptStep(text="I look.", calls=[ToolCall(name="Glob", input={"pattern": "*"})], tokens=TOKENS)
    planned = ScriptStep(text=f"```json\n{json.dumps(PLAN)}\n```", tokens=TOKENS, faults=[silence])
    async with ModelStub({"plan": [look, planned], **{f"work-{name}": steps(name) for name in NAMES}}) as running:
        yield running


@pytest.fixture
async def commands(tmp_path: Path, stub: ModelStub) -> AsyncIterator[Commands]:
    made = Commands(tmp_path, stub, PATH=PATH)
    await made.prepare()
    hand = made.folder / ".maos" / "agents" / "hand.md"
    hand.parent.mkdir(parents=True)
    hand.write_text("---\ndescription: does it\ntools: [Bash]\n---\nDo what the task says.\n")
    yield made
    await made.close()


async def only(commands: Commands) -> Run:
    [run] = await commands.runs()
    return run


async def ended(engine: asyncio.subprocess.Process) -> int:
    _out, err = await asyncio.wait_for(engine.communicate(), 240)
    assert engine.returncode is not None, err
    return engine.returncode


async def in_a_tool(commands: Commands, name: str, after: int = 0) -> Attempt:
    """The attempt of a task whose answer has come and whose tool runs, after so many tools."""

    async def working() -> Any:
        found = await commands.attempt(name)
        if found is None or not found.is_open or not found.tools_open or found.tools_done < after:
            return None
        return found if found.total_tokens.output == TOKENS.output * (found.tools_done + 1) else None

    found: Attempt = await until(working)
    return found


async def kill_agent(commands: Commands, name: str) -> None:
    """Kill the agent of a task in a tool that does not end before.

    What is recorded may be old, while no engine is attached: an answer would be on its way that the provider alone
    knows of.
    """
    hold, held = commands.root / f"hold-{name}", commands.root / f"held-{name}"
    hold.touch()
    await until(lambda: asyncio.to_thread(held.exists))
    os.kill((await in_a_tool(commands, name)).pid, signal.SIGKILL)
    hold.unlink()


async def kill_planner(commands: Commands, stub: ModelStub) -> None:
    """Kill the planner while the model is silent: its first answer is paid, and the second has begun."""

    async def waiting() -> Any:
        found = await commands.attempt(planner.NAME)
        return found if found is not None and found.tools_done and len(stub.charges) > 1 else None

    os.kill((await until(waiting)).pid, signal.SIGKILL)


async def shown(commands: Commands) -> float:
    """The cost in the document of `maos status`."""
    code, out, err = await commands.call("status", (await only(commands)).id, "--json")
    assert code == 0, err
    return float(json.loads(out)["cost_usd"])


async def check_sums(commands: Commands, stub: ModelStub) -> Run:
    """What is shown of the run and of its agents is what was charged.

    An answer that was cut off when its agent was stopped may not have reached its program: nobody but the provider
    knows of it.
    """
    run = await only(commands)
    cut = sum(usd(each.tokens, each.model) for each in stub.charges if each.tokens.output == 1)
    assert charged(stub) - cut - 1e-9 <= run.cost_usd <= charged(stub) + 1e-9
    assert await shown(commands) == run.cost_usd
    async with commands.look() as m:
        agents = [agent_name(run.id, planner.NAME), *(agent_name(run.id, name) for name in NAMES)]
        found = [await m.agents.status(each) for each in agents]
    assert sum(each.cost_usd for each in found) == pytest.approx(run.cost_usd, abs=1e-9)
    assert run.unpriced_tokens == 0
    return run


@pytest.mark.timeout(600)
async def test_a_limit_holds_and_the_cost_is_what_was_charged_whatever_is_killed(
    commands: Commands, stub: ModelStub
) -> None:
    """Four agents and a planner, kills of each kind and of the engine, a pause at the limit, and a new limit."""
    request = ("orchestrate", "Work. SCRIPT=plan", "--auto", "--json", "--budget", "0.5", "--concurrency", "4")
    engine = await commands.start(*request)
    await kill_planner(commands, stub)
    await kill_agent(commands, "a")
    await in_a_tool(commands, "b", after=2)
    engine.send_signal(signal.SIGKILL)
    await engine.communicate()
    engine = await commands.start("resume", "--json")
    await kill_agent(commands, "c")
    assert await ended(engine) == LIMIT_REACHED

    run = await check_sums(commands, stub)
    assert run.status == "paused"
    assert re.fullmatch(r"the budget of \$0\.50 is used up: \$0\.\d\d spent", run.why), run.why
    assert 0.49 <= run.cost_usd <= charged(stub) + 1e-9
    assert charged(stub) <= 0.5 + len(NAMES) * ONE, "more was charged than the limit and one answer of each agent"
    begun = usd(msgspec.structs.replace(TOKENS, output=1))
    # Killed before its program had written the first answer to its transcript, the planner looks once more.
    assert 2 * ONE - 1e-9 <= run.tasks[planner.NAME].cost_usd <= 3 * ONE + begun + 1e-9
    await until(lambda: asyncio.to_thread(commands.nobody_is_left))

    # Nobody is started while the limit stands.
    before = {name: (await commands.attempt(name)) for name in NAMES}
    assert await ended(await commands.start("resume", "--json")) == LIMIT_REACHED
    for name, attempt in before.items():
        again = await commands.attempt(name)
        assert (again and again.number) == (attempt and attempt.number)
    await check_sums(commands, stub)

    engine = await commands.start("resume", "--budget", "5", "--json")
    await in_a_tool(commands, "d")
    engine.send_signal(signal.SIGKILL)
    await engine.communicate()
    assert await ended(await commands.start("resume", "--json")) == 0
    run = await check_sums(commands, stub)
    assert run.status == "completed"
