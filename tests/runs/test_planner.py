"""The planner: what an agent answers becomes a plan, or it is told exactly what is wrong with it."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import maos
from maos.app import Maos
from maos.engine.attempts import Attempts
from maos.model.plan import BadPlan, Plan
from maos.runs import agent_types, planner
from maos_testing.model_stub import ModelStub, ScriptStep, ToolCall
from tests.engine import claude_engine

TYPES = {name: agent_types.read(agent_types.SHIPPED / f"{name}.md") for name in ("analyst", "developer")}
GOOD: dict[str, Any] = {
    "summary": "Look, then do",
    "tasks": [
        {"name": "look", "task": "SCRIPT=look", "agent": "analyst"},
        {"name": "act", "task": "SCRIPT=act", "agent": "developer", "needs": ["look"]},
    ],
}
BAD = {**GOOD, "tasks": [GOOD["tasks"][0], {**GOOD["tasks"][1], "needs": ["loook"]}]}


def said(data: Any) -> str:
    return f"Here it is.\n\n```json\n{json.dumps(data, indent=2)}\n```\n\nShall I begin?"


SCRIPTS = {
    "good": [ScriptStep(text=said(GOOD))],
    "mended": [ScriptStep(text=said(BAD)), ScriptStep(text=said(GOOD))],
    "hopeless": [ScriptStep(text="I would rather not."), ScriptStep(text="I said no.")],
    "look": [ScriptStep(text="found: it is in the cellar\n\nThe treasure is in the cellar.")],
    "act": [
        ScriptStep(calls=[ToolCall(name="Write", input={"file_path": "dug.txt", "content": "gold\n"})]),
        ScriptStep(text="I dug."),
    ],
}


@pytest.fixture
async def stub() -> AsyncIterator[ModelStub]:
    async with ModelStub(SCRIPTS) as running:
        yield running


@pytest.fixture
async def attempts(m: Maos, home: Path, stub: ModelStub) -> AsyncIterator[Attempts]:
    engine = claude_engine.engine(m, home, stub.url)
    yield engine
    await engine.close()


def options(kind: str) -> dict[str, Any]:
    return {"kind": kind, "model": "", "time_limit_s": 3600.0}


async def plan_of(attempts: Attempts, folder: Path, request: str) -> Plan:
    return await planner.ask(attempts, request, run="r-1", folder=folder, options=options("claude"), types=TYPES)


async def test_an_agent_makes_a_plan(attempts: Attempts, tmp_path: Path) -> None:
    plan = await plan_of(attempts, tmp_path, "Find the treasure. SCRIPT=good")
    assert [(task.name, task.agent, task.needs) for task in plan.tasks] == [
        ("look", "analyst", []), ("act", "developer", ["look"]),
    ]  # fmt: skip
    assert (plan.summary, plan.request) == ("Look, then do", "Find the treasure. SCRIPT=good")
    made = await attempts.get("r-1-plan")  # recorded as any other agent's attempt
    assert (made.status, made.order["permission"]) == ("done", "deny")
    assert "- developer: Changes code" in made.task


async def test_a_bad_plan_is_mended_by_telling_what_is_wrong(attempts: Attempts, tmp_path: Path) -> None:
    plan = await plan_of(attempts, tmp_path, "SCRIPT=mended")
    assert plan.tasks[1].needs == ["look"]
    mended = await attempts.get("r-1-plan")
    assert mended.number == 2
    assert "- task 2 (act): needs 'loook', which does not exist (did you mean 'look'?)" in mended.order["task"]


async def test_a_plan_is_mended_once(attempts: Attempts, tmp_path: Path) -> None:
    with pytest.raises(BadPlan, match="there is no JSON object in it"):
        await plan_of(attempts, tmp_path, "SCRIPT=hopeless")
    assert (await attempts.get("r-1-plan")).number == 2


async def test_a_command_cannot_plan(attempts: Attempts, tmp_path: Path) -> None:
    with pytest.raises(maos.InvalidInput, match="an agent of kind shell cannot plan"):
        await planner.ask(attempts, "x", run="r-1", folder=tmp_path, options=options("shell"), types=TYPES)


@pytest.mark.parametrize(
    "answer",
    [
        json.dumps(GOOD),
        f"Sure: {json.dumps(GOOD)} - fine?",
        said(GOOD),
        f"First I thought of\n```json\n{{}}\n```\nbut better is\n```\n{json.dumps(GOOD)}\n```",
        f"```json\n{{broken\n```\n{said(GOOD)}",
    ],
)
def test_a_plan_is_found_among_words(answer: str) -> None:
    assert len(planner.understand(answer, "x", TYPES).tasks) == 2


@pytest.mark.parametrize(
    "field", [{"command": ["rm", "-rf", "/"]}, {"gates": []}, {"tools": ["Bash"]}, {"kind": "shell"}]
)
def test_a_model_cannot_plan_what_runs_by_itself(field: dict[str, Any]) -> None:
    """What it read in a repository may have told it to."""
    tasks = [{**GOOD["tasks"][0], **field}]
    with pytest.raises(BadPlan, match="unknown field"):
        planner.understand(said({**GOOD, "tasks": tasks}), "x", TYPES)


@pytest.mark.parametrize(
    ("data", "what"),
    [
        ([], "there is no JSON object"),
        ({"tasks": []}, "missing required field `summary`"),
        ({"summary": "", "tasks": []}, "there is nothing to do"),
        ({**GOOD, "tasks": [{**GOOD["tasks"][0], "agent": "wizard"}]}, "there is no type of agent called 'wizard'"),
        ({**GOOD, "tasks": [{**GOOD["tasks"][0], "name": f"t{n}"} for n in range(51)]}, "51 tasks are too many"),
    ],
)
def test_what_is_wrong_with_an_answer_is_said(data: Any, what: str) -> None:
    with pytest.raises(BadPlan) as caught:
        planner.understand(said(data), "x", TYPES)
    assert what in str(caught.value.problems[0])


async def test_from_a_request_to_merged_work_with_the_real_program(
    tmp_path: Path,
    home: Path,
    stub: ModelStub,
) -> None:
    """R-101 as a person types it; what one task reports, the next one is told."""
    folder = tmp_path / "work"
    folder.mkdir()
    environment = {
        "PATH": os.environ["PATH"], "HOME": str(tmp_path / "user"), "MAOS_HOME": str(home), "LANG": "C.UTF-8",
        "ANTHROPIC_BASE_URL": stub.url, "ANTHROPIC_API_KEY": "key-of-the-test", "GIT_CONFIG_GLOBAL": os.devnull,
    }  # fmt: skip
    git = "git -c user.name=n -c user.email=n@localhost"
    for command in (f"{git} init -q", f"{git} commit -q --allow-empty -m first"):
        await (await asyncio.create_subprocess_shell(command, cwd=folder, env=environment)).wait()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "maos", "orchestrate", "Find the treasure. SCRIPT=good", "--auto", "--json",
        cwd=folder, env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode() + out.decode()
    documents = [json.loads(line) for line in out.splitlines()]
    last = documents[-1]
    assert (last["status"], last["done"], [each["path"] for each in last["files"]]) == ("completed", 2, ["dug.txt"])
    assert last["cost_usd"] > 0
    assert [each["text"] for each in last["discoveries"]] == ["it is in the cellar"]
    async with maos.open(folder / "maos.db", home=home) as opened:
        told = (await opened.agents.get(f"{last['run']}.act")).task
    assert "The task look, which is done, reported:\n\n> found: it is in the cellar" in told
    assert f"Other agents of this run have found so far:\n\n> {last['run']}.look: it is in the cellar" in told
