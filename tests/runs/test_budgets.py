"""What a whole run may take: money, tokens, time. Its agents are warned, and it is paused, never failed."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from maos.app import Maos
from maos.engine.attempts import Attempts
from maos.model.message import inbox
from maos.model.plan import Plan, Task
from maos.model.run import Run
from maos.runs.budgets import Budget
from maos.runs.service import Runs
from maos.runs.worker import AgentWorker
from maos_testing.model_stub import ModelStub, ScriptStep, TokenCount, ToolCall
from tests.engine import claude_engine
from tests.events import event
from tests.runs.test_scheduler import Hands, plan, runs  # noqa: F401


async def test_a_run_is_paused_when_its_money_is_used_up_and_goes_on_with_more(runs: Runs) -> None:  # noqa: F811
    """What was done is kept, and the new limit is remembered."""
    run = await runs.create(plan(a="", b="a", c="b", d="c"), options={"budget": {"cost_usd": 2.0}})
    hands = Hands()
    run = await runs.execute(run.id, worker=hands)
    assert (run.status, run.why, hands.did) == ("paused", "the budget of $2.00 is used up", ["a", "b"])
    hands = Hands()
    run = await runs.execute(run.id, worker=hands)  # nobody has given it more
    assert (run.status, hands.did) == ("paused", [])
    run = await runs.execute(run.id, worker=hands, options={"budget": {"cost_usd": 9.0}})
    assert (run.status, hands.did, run.options["budget"]) == ("completed", ["c", "d"], {"cost_usd": 9.0})


async def test_tokens_are_limited_too(runs: Runs) -> None:  # noqa: F811
    run = await runs.create(plan(a="", b="a"), options={"budget": {"tokens": 10}})
    run = await runs.execute(run.id, worker=Hands())
    assert (run.status, run.why, run.done) == ("paused", "the budget of 10 tokens is used up", 1)


async def test_a_run_that_ends_at_its_limit_is_complete(runs: Runs) -> None:  # noqa: F811
    run = await runs.create(plan(a="", b="a"), options={"budget": {"cost_usd": 2.0}})
    assert (await runs.execute(run.id, worker=Hands())).status == "completed"


async def test_when_the_time_is_over_whoever_works_is_stopped(runs: Runs) -> None:  # noqa: F811
    run = await runs.create(plan(a="", b="a"), options={"budget": {"time_s": 0.2}})
    hands = Hands()
    hands.hold = {"a"}
    run = await runs.execute(run.id, worker=hands)
    assert (run.status, run.why, run.tasks["a"].failure) == ("paused", "the time limit of 0.2 s is reached", "stopped")
    assert hands.did == ["a"]


@pytest.mark.parametrize(
    ("budget", "used"), [(Budget(), 0.0), (Budget(cost_usd=4), 0.25), (Budget(cost_usd=4, tokens=200), 0.5)]
)
def test_the_tighter_limit_counts(budget: Budget, used: float) -> None:
    assert budget.used(1.0, 100) == used


@pytest.fixture
async def stub() -> AsyncIterator[ModelStub]:
    work = ToolCall(name="Bash", input={"command": "sleep 0.5", "description": "x"})
    steps = [ScriptStep(text=f"Step {n}.", calls=[work], tokens=TokenCount(input=400, output=20)) for n in range(20)]
    async with ModelStub({"long": steps}) as running:
        yield running


@pytest.fixture
async def attempts(home: Path, stub: ModelStub, engine_m: Maos) -> AsyncIterator[Attempts]:
    engine = claude_engine.engine(engine_m, home, stub.url)
    yield engine
    await engine.close()


async def test_an_agent_is_warned_and_stopped_in_the_middle_of_its_work(
    tmp_path: Path, engine_m: Maos, attempts: Attempts
) -> None:
    """Nobody waits for the end of its turn: what it has used so far counts, as it uses it."""
    plan = Plan(tasks=[Task(name="a", task="SCRIPT=long", tools=["Bash"])])
    options = {"kind": "claude", "in_place": True, "budget": {"tokens": 1200}}
    run = await engine_m.runs.create(plan, folder=tmp_path, options=options)
    run = await engine_m.runs.execute(run.id, worker=AgentWorker(attempts))
    assert (run.status, run.why) == ("paused", "the budget of 1200 tokens is used up")
    assert run.tokens < 4 * 420 + 1200  # far from all twenty steps
    attempt = await attempts.get(f"{run.id}.a")
    assert (attempt.status, attempt.failure) == ("stopped", "stopped")
    sent = [record.data async for record in engine_m.journal.read(inbox(attempt.agent))]
    [warning] = [each for each in sent if each.get("sender") == "maos"]
    assert warning["text"].startswith("80 % of the budget of this whole run is used (1200 tokens).")


async def test_a_task_keeps_its_own_limit_when_it_goes_on(tmp_path: Path, engine_m: Maos, attempts: Attempts) -> None:
    """The run's limit makes it tighter and never wider; a new time limit is that of the agents that go on, too."""
    tasks = [Task(name="own", command=["false"], budget_usd=1.0), Task(name="left", command=["false"])]
    options = {"kind": "shell", "in_place": True, "budget": {"cost_usd": 5.0}}
    run = await engine_m.runs.create(Plan(tasks=tasks), folder=tmp_path, options=options)
    for number, time_limit_s in ((1, 600.0), (2, 60.0)):
        await engine_m.runs.execute(run.id, worker=AgentWorker(attempts), options={"time_limit_s": time_limit_s})
        found = [await attempts.get(f"{run.id}.{name}") for name in ("own", "left")]
        assert [each.number for each in found] == [number, number]
        assert [each.order["budget_usd"] for each in found] == [1.0, 5.0]
        assert [each.order["time_limit_s"] for each in found] == [time_limit_s, time_limit_s]


async def test_a_task_has_limits_of_its_own_and_they_are_hard(
    tmp_path: Path, engine_m: Maos, attempts: Attempts
) -> None:
    """Tokens and time of one task: its agent is warned, then ended; the run goes on without it."""
    tasks = [
        Task(name="tokens", task="SCRIPT=long", tools=["Bash"], tokens_max=1200),
        Task(name="time", task="SCRIPT=long", tools=["Bash"], time_limit_s=4.0),
        Task(name="free", command=["true"]),
    ]
    run = await engine_m.runs.create(Plan(tasks=tasks), folder=tmp_path, options={"kind": "claude", "in_place": True})
    run = await engine_m.runs.execute(run.id, worker=AgentWorker(attempts))
    assert (run.status, run.tasks["free"].status) == ("failed", "done")
    tokens, late = run.tasks["tokens"], run.tasks["time"]
    assert (tokens.failure, tokens.why) == ("budget_reached", "the budget of 1200 tokens is used up")
    assert 1200 <= tokens.used_tokens < 4 * 420 + 1200
    assert late.failure == "timed_out"
    for task, limit in (("tokens", "1200 tokens, 600 s"), ("time", "4 s")):
        sent = [record.data async for record in engine_m.journal.read(inbox(f"{run.id}.{task}"))]
        [warning] = [each for each in sent if each.get("sender") == "maos"]
        assert warning["text"].startswith(f"80 % of the budget of your task is used ({limit}).")

    # An engine that was killed before it recorded this comes to the same conclusion.
    before = Run(id=run.id)
    async for record in engine_m.journal.read(f"run/{run.id}"):
        if record.type not in ("task_failed", "run_ended"):
            before.apply(record.event)
    again = await AgentWorker(attempts).work(before, before.tasks["tokens"])
    assert (again.failure, again.tokens) == ("budget_reached", tokens.used_tokens)

    # Whoever goes on after a crash has no new budget; when a person goes on, the task has one.
    task = before.tasks["tokens"]
    task.attempts, task.used_tokens = 2, 1200
    refused = await AgentWorker(attempts).work(before, task)
    assert (refused.failure, refused.tokens) == ("budget_reached", 0)
    assert (await attempts.get(f"{run.id}.tokens")).number == 1
    run.apply(event("run_resumed", at_us=0))
    assert (run.tasks["tokens"].used_tokens, run.tasks["tokens"].tokens) == (0, tokens.tokens)
