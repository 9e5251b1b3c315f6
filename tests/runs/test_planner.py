"""The planner: what an agent answers becomes a plan, or it is told exactly what is wrong with it."""

import asyncio
import json
import os
import shlex
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import maos
from maos.app import Maos
from maos.clock import SystemClock
from maos.model.plan import BadPlan, Plan, Task
from maos.model.question import Open, check
from maos.model.run import Run
from maos.runs import agent_types, planner
from maos.runs.service import Runs
from maos_testing.model_stub import ModelStub, ScriptFault, ScriptStep, ToolCall
from tests.engine import claude_engine
from tests.runs.commands import until

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
    "renamed": [
        ScriptStep(text=said(GOOD)),
        ScriptStep(text=said({**GOOD, "tasks": [{**GOOD["tasks"][0], "name": "seek"}]})),
    ],
    "changed": [ScriptStep(text=said(GOOD)) for _ in range(6)],
    "killed": [
        ScriptStep(text="I look.", calls=[ToolCall(name="Glob", input={"pattern": "*"})]),
        ScriptStep(text=said(GOOD), chunk_chars=20, delay_s=0.05),
        ScriptStep(text=said(GOOD)),
    ],
    "hopeless": [ScriptStep(text="I would rather not.")] * 4,
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


class Planning:
    """Runs of requests, with the real Claude Code and a person at another terminal."""

    def __init__(self, m: Maos, home: Path, folder: Path, stub: ModelStub) -> None:
        self.attempts = claude_engine.engine(m, home, stub.url)
        self.runs = Runs(m.journal, SystemClock(), self.attempts)
        self._folder = folder

    async def start(self, request: str, *, is_approved: bool = False, **options: Any) -> Run:
        given = {"kind": "claude", "in_place": True, **options}
        return await self.runs.start_request(request, folder=self._folder, options=given, is_approved=is_approved)

    async def asked(self, id: str, after: str = "") -> Open:
        """The question about the plan, when it is asked: another one than `after`."""

        async def look() -> Open | None:
            found = (await self.runs.status(id)).questions
            return next((each for each in found if each.id != after), None)

        found: Open = await until(look)
        return found

    async def answer(self, id: str, text: str, after: str = "") -> Open:
        question = await self.asked(id, after)
        await self.runs.answer(id, question.id, check(question, text))
        return question


@pytest.fixture
async def planning(m: Maos, home: Path, tmp_path: Path, stub: ModelStub) -> AsyncIterator[Planning]:
    made = Planning(m, home, tmp_path, stub)
    yield made
    await made.attempts.close()


async def test_a_request_is_planned_and_its_tasks_start_when_a_person_agrees(planning: Planning) -> None:
    run = await planning.start("Find the treasure. SCRIPT=good")
    executing = asyncio.create_task(planning.runs.execute(run.id))
    question = await planning.answer(run.id, "yes")
    assert question.kind == "plan"
    assert question.context == "look: SCRIPT=look\nact after look: SCRIPT=act"
    run = await executing
    assert (run.status, {name: task.status for name, task in run.tasks.items()}) == (
        "completed", {"plan": "done", "look": "done", "act": "done"},
    )  # fmt: skip
    assert run.tasks["plan"].result == "Look, then do: look, act"
    made = await planning.attempts.get(f"{run.id}.plan")
    assert (made.status, made.order["permission"], made.order.get("run", "")) == ("done", "deny", "")
    assert "- developer: Changes code" in made.task
    assert run.cost_usd == pytest.approx(sum(task.cost_usd for task in run.tasks.values()))
    assert run.tasks["plan"].cost_usd > 0


async def test_a_bad_plan_is_corrected_by_the_planner(planning: Planning) -> None:
    run = await planning.start("SCRIPT=mended", is_approved=True)
    run = await planning.runs.execute(run.id)
    assert (run.status, run.tasks["act"].needs) == ("completed", ["look"])
    corrected = await planning.attempts.get(f"{run.id}.plan")
    assert corrected.number == 2
    assert "- task 2 (act): needs 'loook', which does not exist (did you mean 'look'?)" in corrected.order["task"]


async def test_a_planner_that_makes_no_plan_fails_its_run(planning: Planning) -> None:
    run = await planning.runs.execute((await planning.start("SCRIPT=hopeless")).id)
    assert (run.status, run.tasks["plan"].status, run.tasks["plan"].failure) == ("failed", "failed", "gate_failed")
    assert "there is no JSON object in it" in run.tasks["plan"].why
    assert (await planning.attempts.get(f"{run.id}.plan")).number == 4
    assert "or write the plan yourself: `maos run -f FILE`" in (await planning.runs.status(run.id)).now.to_do


async def test_the_work_of_planned_tasks_must_pass_the_gates_that_the_person_gave(
    planning: Planning, tmp_path: Path
) -> None:
    """The planner cannot name commands; without a gate, done is what a model says."""
    seen = tmp_path / "seen"
    gates = [["sh", "-c", f"echo seen >> {seen}; exec true"]]
    run = await planning.runs.execute((await planning.start("SCRIPT=good", is_approved=True, gates=gates)).id)
    assert (run.status, {task.status for task in run.tasks.values()}) == ("completed", {"done"})
    planned = [task for task in run.tasks.values() if task is not run.planner]
    assert [[gate["command"] for gate in task.plan["gates"]] for task in planned] == [gates] * len(planned)
    assert seen.read_text().split() == ["seen"] * len(planned)
    told = (await planning.attempts.get(f"{run.id}.plan")).order["task"]
    assert "in which these commands succeed" in told
    assert f"    {shlex.join(gates[0])}" in told


@pytest.mark.parametrize("gates", [[[]], [["curl", "-H", f"Authorization: Bearer sk-ant-api03-{'x' * 80}"]]])
async def test_a_gate_that_cannot_be_one_is_refused_before_anything_starts(
    planning: Planning, gates: list[list[str]]
) -> None:
    with pytest.raises(maos.InvalidInput, match="a gate cannot be used"):
        await planning.start("SCRIPT=good", gates=gates)
    assert [each async for each in planning.runs.all()] == []


async def test_a_person_changes_a_plan_in_words_as_often_as_they_like(planning: Planning) -> None:
    run = await planning.start("SCRIPT=changed")
    executing = asyncio.create_task(planning.runs.execute(run.id))
    last = ""
    for number in range(5):
        last = (await planning.answer(run.id, f"smaller, please ({number})", after=last)).id
    await planning.answer(run.id, "no", after=last)
    run = await executing
    assert (run.status, run.why, list(run.tasks)) == ("cancelled", "a person refused the plan", ["plan"])
    told = (await planning.attempts.get(f"{run.id}.plan")).order["task"]
    assert "A person wants this change of the plan:\n\nsmaller, please (4)" in told


async def test_a_person_edits_a_plan(planning: Planning) -> None:
    run = await planning.start("SCRIPT=good")
    executing = asyncio.create_task(planning.runs.execute(run.id))
    await planning.asked(run.id)
    found = planner.proposed(await planning.runs.get(run.id))
    assert found is not None
    command = Task(name="count", command=["echo", "one"])
    edited = found._replace(plan=Plan(tasks=[found.plan.tasks[0], command]))
    run = await planning.runs.edit_plan(run.id, edited)
    await planning.answer(run.id, "yes")
    run = await executing
    assert (run.status, list(run.tasks)) == ("completed", ["plan", "look", "count"])
    with pytest.raises(maos.InvalidInput, match=r"no plan of .* waits to be approved"):
        await planning.runs.edit_plan(run.id, edited)


async def test_a_refused_plan_stops_what_was_added_meanwhile(planning: Planning) -> None:
    run = await planning.start("SCRIPT=good")
    executing = asyncio.create_task(planning.runs.execute(run.id))
    await planning.asked(run.id)
    await planning.runs.request_tasks(run.id, Plan(tasks=[Task(name="more", command=["sleep", "600"])]))

    async def works() -> bool:
        attempt = await planning.attempts.newest(f"{run.id}.more")
        return attempt is not None and bool(attempt.pid)

    await until(works)
    await planning.answer(run.id, "no")
    run = await executing
    assert (run.status, run.why) == ("cancelled", "a person refused the plan")
    assert (await planning.attempts.get(f"{run.id}.more")).status == "stopped"
    assert run.proposal is None


async def test_a_plan_cannot_be_skipped(planning: Planning) -> None:
    run = await planning.start("SCRIPT=good")
    with pytest.raises(maos.InvalidInput, match="cannot be skipped"):
        await planning.runs.skip(run.id, "plan")


async def test_a_plan_that_no_longer_fits_is_not_started(planning: Planning) -> None:
    """A task of the same name was added while a person read the plan."""
    run = await planning.start("SCRIPT=renamed")
    executing = asyncio.create_task(planning.runs.execute(run.id))
    question = await planning.asked(run.id)
    await planning.runs.request_tasks(run.id, Plan(tasks=[Task(name="look", command=["true"])]))
    await planning.answer(run.id, "yes")
    last = await planning.asked(run.id, after=question.id)
    assert "the run has a task of that name already" in (await planning.attempts.get(f"{run.id}.plan")).order["task"]
    await planning.answer(run.id, "no")
    assert last.id != question.id
    run = await executing
    assert list(run.tasks) == ["plan", "look"]


async def test_a_plan_waits_for_days_and_is_approved_while_no_engine_runs(planning: Planning) -> None:
    run = await planning.start("SCRIPT=good")
    executing = asyncio.create_task(planning.runs.execute(run.id))
    await planning.asked(run.id)
    executing.cancel()
    await asyncio.gather(executing, return_exceptions=True)
    await planning.answer(run.id, "yes")
    run = await planning.runs.execute(run.id)
    assert (run.status, run.tasks["plan"].attempts) == ("completed", 1)


async def test_a_planner_is_retried_like_any_agent(planning: Planning) -> None:
    run = await planning.start("SCRIPT=killed", is_approved=True)
    executing = asyncio.create_task(planning.runs.execute(run.id))

    async def pid() -> int:
        attempt = await planning.attempts.newest(f"{run.id}.plan")
        return attempt.pid if attempt is not None and attempt.session and attempt.last_text else 0

    os.kill(await until(pid), signal.SIGKILL)
    run = await executing
    assert (run.status, run.tasks["plan"].attempts) == ("completed", 2)


@pytest.mark.parametrize(
    ("status", "failure", "requests"), [(429, "rate_limited", 2), (500, "server_error", 1), (529, "overloaded", 1)]
)
async def test_a_planner_is_retried_when_its_model_fails(
    planning: Planning, stub: ModelStub, status: int, failure: str, requests: int
) -> None:
    """By the failure table: a rate limit is waited for, as long as the servers ask; other failures after a back-off."""
    fault = ScriptFault(status=status, times=requests, retry_after_s=1 if status == 429 else None)
    stub.script("failing", ScriptStep(text=said(GOOD), faults=[fault]))
    planning.attempts._environment["CLAUDE_CODE_MAX_RETRIES"] = str(requests - 1)
    run = await planning.start("SCRIPT=failing")
    executing = asyncio.create_task(planning.runs.execute(run.id))
    await planning.answer(run.id, "no")
    run = await executing
    assert run.tasks["plan"].attempts == 2
    failures = [
        each.data.get("failure", "")
        async for each in planning.attempts.records(f"{run.id}.plan")
        if each.type == "attempt_ended"
    ]
    assert failures == [failure, ""]
    assert len(stub.asked("failing")) == requests + 1


async def test_a_command_cannot_plan(planning: Planning) -> None:
    with pytest.raises(maos.InvalidInput, match="an agent of kind shell cannot plan"):
        await planning.start("x", kind="shell")


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
    assert len(planner.understand(answer, Run(id="r-1"), TYPES).tasks) == 2


@pytest.mark.parametrize(
    "field", [{"command": ["rm", "-rf", "/"]}, {"gates": []}, {"tools": ["Bash"]}, {"kind": "shell"}]
)
def test_a_model_cannot_plan_what_runs_by_itself(field: dict[str, Any]) -> None:
    """What it read in a repository may have told it to."""
    tasks = [{**GOOD["tasks"][0], **field}]
    with pytest.raises(BadPlan, match="unknown field"):
        planner.understand(said({**GOOD, "tasks": tasks}), Run(id="r-1"), TYPES)


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
        planner.understand(said(data), Run(id="r-1"), TYPES)
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
    assert (last["status"], last["done"], [each["path"] for each in last["files"]]) == ("completed", 3, ["dug.txt"])
    assert last["cost_usd"] > 0
    assert [each["text"] for each in last["discoveries"]] == ["it is in the cellar"]
    async with maos.open(folder / "maos.db", home=home) as opened:
        told = (await opened.agents.get(f"{last['run']}.act")).task
    assert "The task look, which is done, reported:\n\n> found: it is in the cellar" in told
    assert f"Other agents of this run have found so far:\n\n> {last['run']}.look: it is in the cellar" in told
