"""What a run tells its agents goes over the bus, and no agent is told the same answer twice."""

import asyncio
import json
import os
import signal
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

import maos
from maos.agents import kinds
from maos.app import Maos
from maos.clock import SystemClock
from maos.engine.attempt_spec import ToolServers
from maos.engine.attempts import Attempts
from maos.model.attempt import Attempt
from maos.model.message import inbox
from maos.model.plan import Plan, Task
from maos.model.question import question_id
from maos.runs.service import Runs
from maos.runs.worker import AgentWorker
from maos.settings import DatabaseName
from maos_testing.model_stub import ModelStub, ScriptStep, ToolCall
from tests.agents.claude.stage import environment
from tests.engine.conftest import processes_below
from tests.runs.test_scheduler import Hands, m, plan, runs, until  # noqa: F401

QUESTION = "May I delete it?"


def ask(wait_s: float) -> ScriptStep:
    return ScriptStep(calls=[ToolCall(name="mcp__maos__ask_person", input={"question": QUESTION, "wait_s": wait_s})])


BUSY = ScriptStep(
    calls=[ToolCall(name="Bash", input={"command": "until test -e go; do sleep 0.05; done", "description": "x"})]
)
WAIT_S = 60
LIMIT_S = 12.0
"""More than an agent needs to begin, ask and end."""
READ = ScriptStep(calls=[ToolCall(name="mcp__maos__read_messages", input={"wait_s": WAIT_S})])
SCRIPTS = {
    "reads": [READ, ScriptStep(text="Thanks."), ScriptStep(text="Again?")],
    "reads_and_works": [
        READ,
        ScriptStep(calls=[ToolCall(name="Bash", input={"command": "true", "description": "x"})]),
        ScriptStep(text="Thanks."),
        ScriptStep(text="Again?"),
    ],
    "asks": [
        ScriptStep(calls=[ToolCall(name="Bash", input={"command": "touch it; sleep 0", "description": "x"})]),
        ScriptStep(text="All right."),
    ],
    "stops": [ask(1), ScriptStep(text="I stop until I know."), ScriptStep(text="All right.")],
    "works_and_waits": [BUSY, ask(100), ScriptStep(text="All right.")],
    "waits": [ask(100), ScriptStep(text="All right.")],
    "goes_on": [ask(1), BUSY, ScriptStep(text="Well."), ScriptStep(text="Ok.")],
}


@pytest.fixture
async def stub() -> AsyncIterator[ModelStub]:
    async with ModelStub(SCRIPTS) as running:
        yield running


@pytest.fixture
async def attempts(stub: ModelStub, engine_m: Maos, tmp_path: Path, home: Path) -> AsyncIterator[Attempts]:
    engine = Attempts(
        engine_m.journal,
        SystemClock(),
        dialect=kinds.dialect,
        folder=home,
        environment=environment(stub),
        bus=engine_m.bus,
        tool_servers=ToolServers(DatabaseName(str(tmp_path / "engine.db"))),
    )
    yield engine
    await engine.close()
    for pid in processes_below(home):
        os.kill(pid, signal.SIGKILL)


async def eventually(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(40):
        while not condition():
            await asyncio.sleep(0.02)


@pytest.mark.parametrize(
    ("script", "by_door", "by_message"), [("waits", 1, 0), ("goes_on", 0, 1)], ids=["it waits", "it goes on"]
)
async def test_an_agent_gets_the_answer_to_its_question_once(
    engine_m: Maos, attempts: Attempts, stub: ModelStub, tmp_path: Path, script: str, by_door: int, by_message: int
) -> None:
    """R-207, I19: through its door while it waits there, else as a message; and either way it is in the history."""
    tasks = Plan(tasks=[Task(name="a", task=f"SCRIPT={script}", tools=["Bash"])])
    run = await engine_m.runs.create(tasks, folder=tmp_path, options={"kind": "claude", "in_place": True})
    seen: list[str] = []
    going = asyncio.create_task(
        engine_m.runs.execute(
            run.id,
            worker=AgentWorker(attempts, listener=lambda attempt, _facts: seen.append(attempt.activity)),
            listener=lambda run, _events: seen.extend(run.questions),
        )
    )
    await eventually(lambda: question_id(QUESTION) in seen)
    if script == "goes_on":
        await eventually(lambda: any("Bash" in each for each in seen))
    await engine_m.runs.answer(run.id, question_id(QUESTION), "yes")
    if script == "goes_on":
        (tmp_path / "go").touch()
    run = await going
    assert run.status == "completed", run.tasks
    told = json.dumps(stub.requests[-1].body["messages"])
    assert told.count("Answer (person): yes") == by_door
    assert told.count("Answer to your question") == by_message
    [said] = [each async for each in engine_m.bus.history(run=run.id)]
    assert (said.message.type, said.message.metadata) == ("response", {"question": question_id(QUESTION)})
    assert [each async for each in engine_m.bus.waiting(f"{run.id}.a")] == []


@pytest.mark.parametrize("killed", ["", "engine", "agent"])
async def test_an_agent_that_stops_until_a_person_answers_gets_the_answer(
    engine_m: Maos, attempts: Attempts, tmp_path: Path, killed: str
) -> None:
    """R-207: it was told that the answer comes as a message, so its task is not done before, whatever is killed."""
    tasks = Plan(tasks=[Task(name="a", task="SCRIPT=stops")])
    options = {"kind": "claude", "in_place": True, "time_limit_s": LIMIT_S}
    run = await engine_m.runs.create(tasks, folder=tmp_path, options=options)
    turns: list[tuple[int, int]] = []

    def look(attempt: Attempt, _facts: object) -> None:
        turns[:] = [(attempt.turns, attempt.pid)]

    worker = AgentWorker(attempts, listener=look)
    going = asyncio.create_task(engine_m.runs.execute(run.id, worker=worker))
    await eventually(lambda: bool(turns and turns[0][0]))
    if killed == "agent":
        first = turns[0][1]
        os.kill(first, signal.SIGKILL)
        await eventually(lambda: turns[0][1] != first and bool(turns[0][0]))
    if killed == "engine":
        going.cancel()
        await asyncio.gather(going, return_exceptions=True)
        await attempts.close()
        going = asyncio.create_task(engine_m.runs.execute(run.id, worker=worker))
    await asyncio.sleep(LIMIT_S)
    assert (await engine_m.runs.get(run.id)).tasks["a"].status == "running"
    await engine_m.runs.answer(run.id, question_id(QUESTION), "yes")
    run = await going
    assert (run.status, run.tasks["a"].attempts) == ("completed", 2 if killed == "agent" else 1)
    assert killed == "agent" or run.tasks["a"].result == "All right."  # else it said that before it was answered
    assert run.questions[question_id(QUESTION)].answer == "yes"


@pytest.mark.parametrize("heard", [True, False], ids=["asked before", "asked after"])
async def test_an_answer_that_came_while_no_engine_ran_is_told_once(
    engine_m: Maos, attempts: Attempts, stub: ModelStub, tmp_path: Path, home: Path, heard: bool
) -> None:
    """I19: the tool has returned it, so the engine that comes does not say it again, and needs no other turn for it."""
    script = "waits" if heard else "works_and_waits"
    tasks = Plan(tasks=[Task(name="a", task=f"SCRIPT={script}", tools=["Bash"])])
    run = await engine_m.runs.create(tasks, folder=tmp_path, options={"kind": "claude", "in_place": True})
    tools: list[str] = []

    def look(attempt: Attempt, _facts: object) -> None:
        tools[:] = [tool.name for tool in attempt.tools_open.values()]

    going = asyncio.create_task(engine_m.runs.execute(run.id, worker=AgentWorker(attempts, listener=look)))
    await eventually(lambda: any(each.endswith("ask_person" if heard else "Bash") for each in tools))
    going.cancel()
    await asyncio.gather(going, return_exceptions=True)
    await attempts.close()
    (tmp_path / "go").touch()
    async with asyncio.timeout(60):
        while not [each for each in await engine_m.questions.open() if each.id == question_id(QUESTION)]:
            await asyncio.sleep(0.05)
    await engine_m.runs.answer(run.id, question_id(QUESTION), "yes")
    await eventually(lambda: "Answer (person): yes" in json.dumps(stub.requests[-1].body["messages"]))
    await asyncio.sleep(1)  # it has answered, and waits for more
    asked = len(stub.requests)
    run = await engine_m.runs.execute(run.id, worker=AgentWorker(attempts))
    assert (run.status, run.tasks["a"].result) == ("completed", "All right.")
    assert len(stub.requests) == asked, "it was told again"
    assert [each async for each in engine_m.bus.waiting(f"{run.id}.a")] == []


@pytest.mark.parametrize("way", ["tool", "permission"])
async def test_a_question_may_wait_longer_than_the_time_limit_of_its_agent(
    engine_m: Maos, attempts: Attempts, tmp_path: Path, way: str
) -> None:
    """R-207: neither the agent nor the run fails while a person has not answered."""
    task = {"tool": Task(name="a", task="SCRIPT=waits"), "permission": Task(name="a", task="SCRIPT=asks")}[way]
    options = {"kind": "claude", "in_place": True, "permission": "ask", "time_limit_s": LIMIT_S}
    run = await engine_m.runs.create(Plan(tasks=[task]), folder=tmp_path, options=options)
    waiting: list[str] = []

    def look(attempt: Attempt, _facts: object) -> None:
        waiting[:] = list(attempt.permissions) or [id for id in ["tool"] if attempt.asks_person]

    going = asyncio.create_task(engine_m.runs.execute(run.id, worker=AgentWorker(attempts, listener=look)))
    await eventually(lambda: bool(waiting))
    await asyncio.sleep(LIMIT_S)
    if way == "tool":
        await engine_m.runs.answer(run.id, question_id(QUESTION), "yes")
    else:
        await attempts.answer(f"{run.id}.a", waiting[0], allow=True)
    run = await going
    assert (run.status, run.tasks["a"].attempts, run.tasks["a"].result) == ("completed", 1, "All right.")


async def test_what_a_run_tells_an_agent_is_in_the_history(runs: Runs, m: Maos) -> None:  # noqa: F811
    """Answers, by a person or by default, and refusals; from whom they are is not for the text to say."""
    hands = Hands()
    hands.hold = {"a"}
    run = await runs.create(plan(a=""))
    going = asyncio.create_task(runs.execute(run.id, worker=hands))
    await until(lambda: bool(hands.did))
    soon = SystemClock().now_us() + 50_000
    await runs.ask(run.id, "Which?", key="q1", asked_by="one")
    await runs.ask(run.id, "When?", key="q2", asked_by="one", default="now", expires_us=soon)
    await runs.answer(run.id, "q1", "x" * 2_000_000)
    bad = {"tasks": [{"name": "d", "task": "x", "needs": ["nowhere"]}], "asked_by": "one", "at_us": 0}
    await m.journal.append(inbox(run.id), maos.Event("tasks_requested", bad))
    async with asyncio.timeout(60):
        while len(found := [each.message async for each in m.bus.history(run=run.id, agent="one")]) < 3:
            await asyncio.sleep(0.01)
    await runs.pause(run.id)
    await going
    assert sorted((each.sender, each.type) for each in found) == [
        ("maos", "error"), ("maos", "response"), ("person", "response"),
    ]  # fmt: skip
    assert [each.message.id async for each in m.bus.waiting("one")] == [each.id for each in found]


@pytest.mark.parametrize("script", ["reads", "reads_and_works"])
async def test_an_agent_that_waits_for_a_message_gets_it_from_the_tool_it_waits_in(
    engine_m: Maos, attempts: Attempts, stub: ModelStub, tmp_path: Path, script: str
) -> None:
    """R-301, I19: at once, and once: the engine does not say it to the agent while, or after, it reads it."""
    tasks = Plan(tasks=[Task(name="a", task=f"SCRIPT={script}", tools=["Bash"])])
    run = await engine_m.runs.create(tasks, folder=tmp_path, options={"kind": "claude", "in_place": True})
    open_tools: list[str] = []

    def look(attempt: Attempt, _facts: object) -> None:
        open_tools[:] = [tool.name for tool in attempt.tools_open.values()]

    going = asyncio.create_task(engine_m.runs.execute(run.id, worker=AgentWorker(attempts, listener=look)))
    await eventually(lambda: any(each.endswith("read_messages") for each in open_tools))
    await asyncio.sleep(1)  # it waits
    began = time.monotonic()
    await engine_m.bus.send("b", f"{run.id}.a", "the parser leaks", type="discovery")
    run = await going
    assert run.status == "completed", run.tasks
    assert time.monotonic() - began < WAIT_S / 2, "it waited to the end"
    told = json.dumps(stub.requests[-1].body["messages"])
    assert told.count("> the parser leaks") == 1
    assert [each async for each in engine_m.bus.waiting(f"{run.id}.a")] == []
