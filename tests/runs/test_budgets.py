"""What a whole run may take: money, tokens, time. Its agents are warned, and it is paused, never failed."""

import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from maos import Limits
from maos.app import Maos
from maos.engine.attempts import Attempts
from maos.errors import InvalidInput
from maos.model.attempt import Attempt
from maos.model.events.parts import Spent
from maos.model.message import inbox
from maos.model.plan import Gate, Plan, Task
from maos.model.run import Run, TaskState
from maos.model.status import AttemptStatus
from maos.runs.budgets import Budget, Purse, resume_command
from maos.runs.decisions import Outcome
from maos.runs.service import Runs
from maos.runs.worker import AgentWorker
from maos_testing.model_stub import ModelStub, ScriptFault, ScriptStep, TokenCount, ToolCall
from tests.agents.acp.test_conversation import PEER
from tests.engine import claude_engine
from tests.events import event
from tests.runs.test_scheduler import Hands, plan, runs  # noqa: F401


async def test_a_run_is_paused_when_its_money_is_used_up_and_goes_on_with_more(runs: Runs) -> None:  # noqa: F811
    """What was done is kept, and the new limit is remembered."""
    run = await runs.create(plan(a="", b="a", c="b", d="c"), options={"budget": {"cost_usd": 2.0}})
    hands = Hands()
    run = await runs.execute(run.id, worker=hands)
    assert (run.status, run.why, hands.did) == ("paused", "the budget of $2.00 is used up: $2.00 spent", ["a", "b"])
    assert resume_command(run) == f"maos resume {run.id} --budget 4"
    hands = Hands()
    run = await runs.execute(run.id, worker=hands)  # nobody has given it more
    assert (run.status, hands.did) == ("paused", [])
    await runs.update(run.id, Limits(cost_usd=9.0))
    run = await runs.execute(run.id, worker=hands)
    assert (run.status, hands.did, run.options["budget"]) == ("completed", ["c", "d"], {"cost_usd": 9.0})
    assert resume_command(run) == f"maos resume {run.id}"


async def test_tokens_are_limited_too(runs: Runs) -> None:  # noqa: F811
    run = await runs.create(plan(a="", b="a"), options={"budget": {"tokens": 10}})
    run = await runs.execute(run.id, worker=Hands())
    assert (run.status, run.why, run.done) == ("paused", "the budget of 10 tokens is used up: 10 spent", 1)
    assert resume_command(run) == f"maos resume {run.id} --tokens 20"


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


def an_attempt(share_usd: float, cost_usd: float, *, ended: bool = False) -> Attempt:
    """An attempt that may cost so much, and has cost so much."""
    made = Attempt(id="r.a.1", cost_usd=cost_usd, order={"budget_usd": share_usd})
    if ended:
        made.status = AttemptStatus.DONE
    return made


def test_what_is_left_is_divided_among_those_who_begin() -> None:
    """The shares together are never more than what is left, whatever those at work have taken of theirs."""
    run = Run(id="r", options={"budget": {"cost_usd": 8.0}}, cost_usd=2.0)
    purse = Purse(run)
    for name in "abc":
        assert purse.affords_another
        purse.begin(name)
    assert [purse.share(name) for name in "abc"] == [2.0, 2.0, 2.0]
    assert not purse.affords_another, "everything is given away"
    purse.note("a", an_attempt(2.0, 0.5))
    assert not purse.affords_another, "what is not used yet is still its own"
    purse.note("a", an_attempt(2.0, 0.5, ended=True))
    purse.begin("d")
    assert purse.share("d") == 1.5
    run.cost_usd += 0.5
    purse.conclude("a")
    assert purse.free_usd == pytest.approx(0.0)


def test_a_limit_counts_those_at_work_and_is_told_at_once() -> None:
    told: list[str] = []
    run = Run(id="r", options={"budget": {"cost_usd": 8.0}}, cost_usd=2.0)
    purse = Purse(run, lambda: told.append(purse.reached.why))
    purse.note("a", an_attempt(3.0, 3.0))
    assert (purse.reached.why, told) == ("", [])
    purse.note("b", an_attempt(3.0, 3.2))
    assert told == ["the budget of $8.00 is used up: $8.20 spent"]
    assert purse.meter.spent.is_set()


def test_less_than_the_smallest_share_is_nothing() -> None:
    """Else an agent would be started for the last tenth of a cent, and for what that leaves again."""
    assert Budget(cost_usd=2.0).exceeded(1.97, 0) == ""
    assert Budget(cost_usd=2.0).exceeded(1.99, 0) == "the budget of $2.00 is used up: $1.99 spent"


def test_a_model_without_a_price_is_told_as_soon_as_it_is_used() -> None:
    run = Run(id="r", options={"budget": {"cost_usd": 8.0}})
    purse = Purse(run)
    attempt = an_attempt(8.0, 0.0)
    attempt.unpriced_tokens, attempt.unpriced_model = 10, "new-model"
    purse.note("a", attempt)
    why = 'new-model has no price, so the budget cannot be kept: set [prices.of."new-model"]'
    assert purse.reached.why.startswith(why)
    without = Purse(Run(id="r", options={"budget": {"tokens": 100}}))
    without.note("a", attempt)
    assert not without.reached, "no money is limited"


async def test_a_limit_with_a_model_that_has_no_price_is_refused(engine_m: Maos, tmp_path: Path) -> None:
    """At the start, and also when a person gives a run its first limit; with a price, or without a limit, it begins."""
    tasks = [{"name": "a", "task": "x"}]
    known = {"kind": "claude", "in_place": True, "model": "claude-new-9", "permission": "edits"}
    limited = {**known, "budget": {"cost_usd": 1.0}}
    with pytest.raises(InvalidInput, match="claude-new-9 has no price, so a limit of money cannot be kept") as refused:
        await engine_m.runs.start({"tasks": tasks}, folder=tmp_path, options=limited)
    assert '[prices.of."claude-new-9"]' in refused.value.hint
    with pytest.raises(InvalidInput, match="codex has no price"):  # it does not say which model it uses
        engine_m.agents.check_price("codex", "")
    run = await engine_m.runs.create({"tasks": tasks}, folder=tmp_path, options=known)
    with pytest.raises(InvalidInput, match="has no price"):
        await engine_m.runs.resume(run.id, limits=Limits(cost_usd=1.0))
    assert await engine_m.runs.resume(run.id) is not None


@pytest.fixture
async def stub() -> AsyncIterator[ModelStub]:
    work = ToolCall(name="Bash", input={"command": "sleep 0.5", "description": "x"})
    steps = [ScriptStep(text=f"Step {n}.", calls=[work], tokens=TokenCount(input=400, output=20)) for n in range(20)]
    none = [ScriptStep(faults=[ScriptFault(status=400, times=0)])]
    async with ModelStub({"long": steps, "none": none}) as running:
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
    assert (run.status, run.why) == ("paused", f"the budget of 1200 tokens is used up: {run.tokens} spent")
    assert 1200 <= run.tokens <= 1200 + 2 * 420  # an answer that comes with the warning may be one more
    attempt = await attempts.get(f"{run.id}.a")
    assert (attempt.status, attempt.failure) == ("stopped", "stopped")
    sent = [record.data async for record in engine_m.journal.read(inbox(attempt.agent))]
    [warning] = [each for each in sent if each.get("sender") == "maos"]
    assert warning["text"].startswith("80 % of the budget of this whole run is used (1200 tokens).")


async def test_a_task_keeps_its_own_limit_when_it_goes_on(tmp_path: Path, engine_m: Maos, attempts: Attempts) -> None:
    """The run's limit makes it tighter and never wider; a new time limit is that of the agents that go on, too. A
    command takes no share of the money."""
    tasks = [
        Task(name="own", task="SCRIPT=none", budget_usd=1.0),
        Task(name="left", task="SCRIPT=none"),
        Task(name="command", command=["false"]),
    ]
    options = {"kind": "claude", "in_place": True, "budget": {"cost_usd": 5.0}}
    run = await engine_m.runs.create(Plan(tasks=tasks), folder=tmp_path, options=options)
    for number, time_limit_s in ((1, 600.0), (2, 60.0)):
        await engine_m.runs.execute(run.id, worker=AgentWorker(attempts), options={"time_limit_s": time_limit_s})
        found = [await attempts.get(f"{run.id}.{name}") for name in ("own", "left", "command")]
        assert [each.number for each in found] == [number] * 3
        assert [each.order["budget_usd"] for each in found] == [1.0, 2.5, 0.0]
        assert [each.order["time_limit_s"] for each in found] == [time_limit_s] * 3


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
    assert (tokens.failure, tokens.why) == (
        "budget_reached",
        f"the budget of 1200 tokens is used up: {tokens.tokens} spent",
    )
    assert 1200 <= tokens.used_tokens < 4 * 420 + 1200
    assert late.failure == "timed_out"
    for task, limit in (("tokens", "1200 tokens, 3600 s"), ("time", "4 s")):
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


@pytest.fixture
def peer() -> str:
    """The kind of an agent that reports its cost while it works, and would work on for ever."""
    return f"acp:{sys.executable} {PEER}"


SPENDING = json.dumps([{"cost": 0.25}, {"cost": 0.5}, {"wait": 1}])


async def test_an_agent_whose_program_has_no_limits_is_stopped_by_the_engine(
    tmp_path: Path, attempts: Attempts, peer: str
) -> None:
    running = await attempts.start(
        SPENDING, kind=peer, name="a", cwd=tmp_path, in_place=True, budget_usd=0.5, time_limit_s=20
    )
    attempt = await running.wait()
    assert (attempt.status, attempt.failure, attempt.spent) == ("failed", "budget_reached", Spent(0.75))


async def test_a_share_that_is_used_up_is_no_failure_and_no_agent_is_started_without_money(
    tmp_path: Path, engine_m: Maos, attempts: Attempts, peer: str
) -> None:
    """Two agents that take more than their shares: the run is paused, and neither was started twice."""
    tasks = [Task(name=name, task=SPENDING) for name in "ab"]
    options = {"kind": peer, "in_place": True, "budget": {"cost_usd": 1.0}}
    run = await engine_m.runs.create(Plan(tasks=tasks), folder=tmp_path, options=options)
    run = await engine_m.runs.execute(run.id, worker=AgentWorker(attempts))
    assert (run.status, run.why) == ("paused", "the budget of $1.00 is used up: $1.50 spent")
    assert [(each.attempts, each.failure) for each in run.tasks.values()] == [(1, "stopped")] * 2
    found = [await attempts.get(f"{run.id}.{name}") for name in "ab"]
    assert [each.order["budget_usd"] for each in found] == [0.5, 0.5]
    assert run.spent == Spent(1.5)


async def test_reviews_that_begin_together_share_what_is_left(runs: Runs) -> None:  # noqa: F811
    """None of them fails its task because another one holds the money."""

    class Reviewers(Hands):
        """Takes its share of the money for each review, as agents do."""

        def watch(self, purse: Purse) -> None:
            super().watch(purse)
            self.purse = purse
            self.shares: dict[str, float] = {}

        async def check(self, run: Run, task: TaskState) -> Outcome:
            self.shares[task.name] = self.purse.share(task.name)
            return await super().check(run, task)

    made = plan(a="", b="")
    for task in made.tasks:
        task.gates = [Gate(review="look")]
    run = await runs.create(made, options={"kind": "claude", "budget": {"cost_usd": 12.0}})
    hands = Reviewers()
    run = await runs.execute(run.id, worker=hands)
    assert run.status == "completed"
    assert hands.shares == {"a": 5.0, "b": 5.0}
