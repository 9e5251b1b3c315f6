"""`maos orchestrate` with the real Claude Code, killed at random and resumed until the work is done."""

import asyncio
import json
import os
import random
import signal
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from maos.model.run import agent_name, stream
from maos_testing.model_stub import ModelStub, ScriptStep, ToolCall
from tests.agents.claude.stage import PATH, bash
from tests.runs.commands import Commands, facts, until

KILLS = 10
KILL_AFTER_S = (0.3, 1.5)
NEEDS = {"a": "", "b": "a", "c": "a", "d": "b c"}
QUESTION = "May c go on?"
TOLD = ToolCall(name="mcp__maos__report_discovery", input={"text": "the cache leaks", "keyword": "found"})
ASK = ToolCall(name="mcp__maos__ask_person", input={"question": QUESTION, "choices": ["yes", "no"], "wait_s": 100})


def steps(name: str) -> list[ScriptStep]:
    """Something that can be counted from outside, a file, and words that take a while; one tells, one asks."""
    more = {"a": [ScriptStep(calls=[TOLD])], "c": [ScriptStep(text="I ask.", calls=[ASK])]}
    words = f"found: {name} works. " + "And so on. " * 20
    begin = ScriptStep(text="I begin.", calls=[bash(f"echo {name} >> ../../../../effects; echo {name} > {name}.txt")])
    return [begin, *more.get(name, []), ScriptStep(text=words, chunk_chars=12, delay_s=0.08)]


@pytest.fixture
async def stub() -> AsyncIterator[ModelStub]:
    scripts = {name: steps(name) for name in NEEDS}
    scripts["slow"] = [ScriptStep(text="Let me think.", wait_s=60)]
    scripts["plan"] = [
        ScriptStep(text=THINK, calls=[ToolCall(name="Glob", input={"pattern": "*"})], chunk_chars=12, delay_s=0.1),
        ScriptStep(text=f"```json\n{json.dumps(PLAN)}\n```"),
    ]
    scripts["planned"] = [ScriptStep(text="It is done.")]
    async with ModelStub(scripts) as running:
        yield running


@pytest.fixture
async def pair(tmp_path: Path, stub: ModelStub) -> AsyncIterator[list[Commands]]:
    """Two places to do the same in: one that is left in peace, and one that is not."""
    made = [Commands(tmp_path / name, stub, PATH=PATH) for name in ("calm", "rough")]
    for each in made:
        await each.prepare()
    yield made
    for each in made:
        await each.close()


def begin(commands: Commands) -> tuple[str, ...]:
    tasks = [
        {"name": name, "task": f"SCRIPT={name}", "tools": ["Bash"], "needs": needs.split()}
        for name, needs in NEEDS.items()
    ]
    return ("orchestrate", "--plan", commands.plan(tasks), "--auto", "--json")


async def answer(commands: Commands) -> None:
    """A person at another terminal, who says yes to what is asked."""

    async def asked() -> Any:
        _code, out, _err = await commands.call("questions", "--json")
        return out.strip() and json.loads(out)["questions"]

    [question] = await until(asked)
    code, _out, err = await commands.call("answer", question["id"], "yes")
    assert code == 0, err


async def outcome(commands: Commands) -> dict[str, Any]:
    """What is left when it is over, without what the clock and the killing change.

    How many turns it took is such a thing: a message that comes a moment later is answered in a turn of its own.
    """
    [run] = await commands.runs()
    shown = subprocess.run(
        ["git", "grep", "-h", "", run.commit], cwd=commands.folder, capture_output=True, text=True, check=True
    )
    async with commands.look() as m:
        agents = {name: await m.agents.get(agent_name(run.id, name)) for name in NEEDS}
        recorded = [record.type async for record in m.journal.read(stream(run.id))]
        used = {name: len(await facts(m, attempt.agent, "tool_use")) for name, attempt in agents.items()}
        messages = [each.message async for each in m.bus.history(run=run.id)]
        assert (await m.verify()).ok
        assert [each async for each in m.bus.dead_letters()] == []
        for attempt in agents.values():
            assert [each async for each in m.bus.waiting(attempt.agent)] == [], "never delivered"
    return {
        "status": (run.status, run.why),
        "tasks": {name: (task.status, task.attempts) for name, task in run.tasks.items()},
        "effects": sorted((commands.root / "effects").read_text().split()),
        "files": shown.stdout.splitlines(),
        "tools": (used, {name: attempt.tools_done for name, attempt in agents.items()}),
        "discoveries": {name: [each.text for each in attempt.discoveries] for name, attempt in agents.items()},
        "questions": (recorded.count("question_asked"), [each.answer for each in run.questions.values()]),
        "messages": sorted((each.sender.partition(".")[2], each.type, each.text) for each in messages),
    }


@pytest.mark.timeout(240)
async def test_a_run_that_is_killed_ten_times_ends_as_if_it_had_not_been(pair: list[Commands]) -> None:
    """R-202, I31, I33: every task is done by one attempt, every tool runs once, and nothing that was said is lost."""
    seed = int(os.environ.get("MAOS_SEED", random.randrange(10**6)))
    print("MAOS_SEED", seed)
    chance = random.Random(seed)
    calm, rough = pair
    undisturbed = await calm.start(*begin(calm))
    kills = 0
    while kills < KILLS:  # it cannot end before: nobody has answered
        engine = await rough.start(*(("resume", "--json") if await rough.runs() else begin(rough)))
        await asyncio.sleep(chance.uniform(*KILL_AFTER_S))
        assert engine.returncode is None, (await engine.communicate())[1]
        engine.send_signal(signal.SIGKILL)
        await engine.communicate()
        kills += 1
    await answer(calm)
    last = await rough.start(*(("resume", "--json") if await rough.runs() else begin(rough)))
    await answer(rough)
    for each in (undisturbed, last):
        out, err = await asyncio.wait_for(each.communicate(), 90)
        assert each.returncode == 0, err.decode() + out.decode()
    expected = await outcome(calm)
    assert expected["status"] == ("completed", "")
    assert expected["effects"] == list(NEEDS)
    assert expected["questions"] == (1, ["yes"])
    assert await outcome(rough) == expected
    for each in pair:
        await until(lambda: asyncio.to_thread(each.nobody_is_left))  # noqa: B023 - it is awaited here


PLAN = {"summary": "One step", "tasks": [{"name": "a", "task": "SCRIPT=planned", "agent": "developer"}]}
THINK = "Let me look at the folder first. " * 4


async def planner(commands: Commands) -> Any:
    """The newest attempt of the planner, if its agent has said something."""
    attempt = await commands.attempt("plan")
    return attempt if attempt is not None and attempt.pid and attempt.session else None


async def test_an_interrupt_while_it_is_planned_pauses_the_run(pair: list[Commands]) -> None:
    commands = pair[0]
    engine = await commands.start("orchestrate", "Think it over. SCRIPT=slow", "--auto")
    await until(lambda: planner(commands))
    engine.send_signal(signal.SIGINT)
    await engine.communicate()
    assert engine.returncode == 130
    attempt = await planner(commands)
    assert (attempt.status, attempt.failure) == ("stopped", "stopped")
    [run] = await commands.runs()
    assert (run.status, run.tasks["plan"].status) == ("paused", "waiting")
    assert commands.nobody_is_left()


@pytest.mark.parametrize("victims", ["engine", "engine and agent"])
async def test_a_run_that_is_killed_while_it_is_planned_is_resumed_there(pair: list[Commands], victims: str) -> None:
    """The run is recorded before the planner starts, so it is found, its agent is adopted, and its cost counts."""
    commands = pair[0]
    engine = await commands.start("run", "Write a file. SCRIPT=plan", "--auto", "--json")
    attempt = await until(lambda: planner(commands))
    engine.kill()
    await engine.communicate()
    if victims != "engine":
        commands.kill_everybody()
    await commands.run("resume")
    [run] = await commands.runs()
    assert (run.status, {name: task.status for name, task in run.tasks.items()}) == (
        "completed", {"plan": "done", "a": "done"},
    )  # fmt: skip
    assert run.tasks["plan"].attempts == (1 if victims == "engine" else 2)
    assert run.tasks["plan"].cost_usd > 0
    assert victims != "engine" or (await planner(commands)).session == attempt.session
    await until(lambda: asyncio.to_thread(commands.nobody_is_left))


async def test_a_plan_that_nobody_can_approve_pauses_the_run_until_it_is_answered(pair: list[Commands]) -> None:
    commands = pair[0]
    for args in (("run", "Write a file. SCRIPT=plan"), ("resume",)):
        code, out, err = await commands.call(*args, "--json")
        assert code == 6, err + out
        [run] = await commands.runs()
        assert (run.status, run.why, len(run.questions)) == ("paused", "its plan waits for approval", 1)
    await answer(commands)
    await commands.run("resume")
    [run] = await commands.runs()
    assert (run.status, run.tasks["plan"].attempts, len(run.questions)) == ("completed", 1, 1)
