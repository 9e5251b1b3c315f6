"""Runs carried out by workers in this process: order, failures, gates, questions, pauses."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import maos
from maos.app import Maos
from maos.clock import SystemClock
from maos.engine.questions import Answered
from maos.model.plan import BadPlan, Gate, Plan, Task, batches
from maos.model.run import Run, TaskState
from maos.runs.budgets import Purse
from maos.runs.decisions import Outcome
from maos.runs.service import Runs


class Hands:
    """A worker in this process: notes what it did, and fails where it is told to."""

    def __init__(self, failing: dict[str, list[str]] | None = None) -> None:
        self.did: list[str] = []
        self.checked: list[tuple[str, int]] = []
        self.completed: list[str] = []
        self.most = 0
        self._failing = failing or {}
        self._now = 0
        self.stopped = asyncio.Event()
        self.hold: set[str] = set()
        self.after: dict[str, str] = {}
        """Tasks that take until another one is done, and a while longer."""

    def watch(self, purse: Purse) -> None:
        """What it takes is known from its outcomes alone."""

    async def work(self, run: Run, task: TaskState) -> Outcome:
        assert all(run.tasks[need].status == "done" for need in task.needs), "begun before what it needs was done"
        self._now += 1
        self.most = max(self.most, self._now)
        self.did.append(task.name)
        await asyncio.sleep(0)
        while task.name in self.after and run.tasks[self.after[task.name]].status != "done":
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.01 if task.name in self.after else 0)
        if task.name in self.hold:
            await self.stopped.wait()
            self._now -= 1
            return Outcome(failure="stopped")
        self._now -= 1
        failures = self._failing.get(task.name)
        if failures:
            return Outcome(failure=failures.pop(0), cost_usd=1.0)
        return Outcome(result=f"{task.name} done", cost_usd=1.0, tokens=10)

    async def check(self, run: Run, task: TaskState) -> Outcome:
        self.checked.append((task.name, task.gate))
        failures = self._failing.get(f"gate of {task.name}")
        return Outcome(failure=failures.pop(0), message="no good") if failures else Outcome()

    async def complete(self, run: Run, task: TaskState) -> Outcome:
        self.completed.append(task.name)
        return Outcome()

    async def stop(self, run: Run, task: TaskState) -> None:
        self.stopped.set()

    def limit_again(self, run: Run) -> None:
        """It has no agents whose time is limited."""


@pytest.fixture
async def m() -> AsyncIterator[Maos]:
    async with maos.open(":memory:") as opened:
        yield opened


@pytest.fixture
async def runs(m: Maos) -> Runs:
    return Runs(m.journal, SystemClock(), m.agents, worker=Hands)


def plan(**needs: str) -> Plan:
    """plan(a="", b="a", c="a b")"""
    return Plan(tasks=[Task(name=name, task="x", needs=wanted.split()) for name, wanted in needs.items()])


async def finished(runs: Runs, plan: Plan, hands: Hands, **more: int) -> Run:
    run = await runs.create(plan)
    async with asyncio.timeout(60):
        return await runs.execute(run.id, worker=hands, **more)


async def test_tasks_begin_when_what_they_need_is_done(runs: Runs) -> None:
    """R-101."""
    hands = Hands()
    hands.after = {"c": "b"}
    run = await finished(runs, plan(a="", b="a", c="a", d="b c"), hands)
    assert run.status == "completed"
    assert hands.did == ["a", "b", "c", "d"]
    assert (run.progress, run.cost_usd, run.tokens) == (100, 4.0, 40)
    again = await runs.get(run.id)
    assert again == run


async def test_no_more_at_once_than_allowed_and_the_important_first(runs: Runs) -> None:
    tasks = [Task(name=f"t{number}", task="x", priority=number) for number in range(10)]
    hands = Hands()
    await finished(runs, Plan(tasks=tasks), hands, concurrency=3)
    assert hands.most == 3
    assert hands.did[:3] == ["t9", "t8", "t7"]


async def test_a_task_that_fails_for_good_fails_the_run_and_what_needs_it_is_not_begun(runs: Runs) -> None:
    hands = Hands({"b": ["failed"]})
    run = await finished(runs, plan(a="", b="a", c="b", d="a"), hands)
    assert (run.status, run.why) == ("failed", "b failed")
    assert hands.did == ["a", "b", "d"]


async def test_a_passing_failure_is_tried_again(runs: Runs) -> None:
    hands = Hands({"a": ["killed", "holder_lost"]})
    run = await finished(runs, plan(a="", b="a"), hands)
    assert run.status == "completed"
    assert hands.did == ["a", "a", "a", "b"]
    assert (run.tasks["a"].tries, run.tasks["a"].attempts) == (2, 3)


async def test_a_failed_run_goes_on_with_what_failed_when_it_is_resumed(runs: Runs) -> None:
    """R-201: finished tasks are never run again."""
    hands = Hands({"b": ["failed"]})
    run = await finished(runs, plan(a="", b="a", c="b"), hands)
    run = await runs.execute(run.id, worker=hands)
    assert run.status == "completed"
    assert hands.did == ["a", "b", "b", "c"]


async def test_more_work_for_a_finished_run(runs: Runs) -> None:
    """R-203."""
    hands = Hands()
    run = await finished(runs, plan(a="", b="a"), hands)
    await runs.add(run.id, plan(c="b"))
    run = await runs.execute(run.id, worker=hands)
    assert run.status == "completed"
    assert hands.did == ["a", "b", "c"]
    with pytest.raises(BadPlan, match="already"):
        await runs.add(run.id, plan(c=""))


async def test_gates_are_passed_in_order_before_a_task_is_done(runs: Runs) -> None:
    gates = [Gate(command=["true"]), Gate(review="look")]
    hands = Hands()
    run = await finished(runs, Plan(tasks=[Task(name="a", task="x", gates=gates)]), hands)
    assert run.status == "completed"
    assert hands.checked == [("a", 0), ("a", 1)]
    assert hands.completed == ["a"]


async def test_work_that_does_not_pass_a_gate_is_done_again(runs: Runs) -> None:
    gates = [Gate(command=["true"])]
    hands = Hands({"gate of a": ["gate_failed"]})
    run = await finished(runs, Plan(tasks=[Task(name="a", task="x", gates=gates)]), hands)
    assert run.status == "completed"
    assert hands.did == ["a", "a"]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.005)


async def test_a_person_is_asked_and_the_run_waits(runs: Runs) -> None:
    """R-207."""
    hands = Hands()
    run = await runs.create(Plan(tasks=[Task(name="a", task="x", gates=[Gate(person="Is it good?")])]))
    seen: list[Run] = []
    task = asyncio.create_task(runs.execute(run.id, worker=hands, listener=lambda run, _events: seen.append(run)))
    await until(lambda: bool(seen and seen[-1].open_questions))
    [question] = seen[-1].open_questions
    assert (question.question, question.choices) == ("Is it good?", ["yes", "no"])
    await runs.answer(run.id, question.id, "yes")
    assert (await task).status == "completed"


async def test_a_question_and_its_answer_reach_who_asked(runs: Runs, m: Maos) -> None:
    hands = Hands()
    hands.hold = {"a"}
    run = await runs.create(plan(a=""))
    task = asyncio.create_task(runs.execute(run.id, worker=hands))
    await until(lambda: bool(hands.did))
    await runs.ask(run.id, "Which one?", key="q1", asked_by="one", choices=["red", "blue"])
    await runs.ask(run.id, "Which one?", key="q1", asked_by="two")
    await runs.answer(run.id, "q1", "blue")
    with pytest.raises(Answered):
        await runs.answer(run.id, "q1", "red")

    async def told(agent: str) -> list[str]:
        return [record.data["text"] async for record in m.journal.read(f"inbox/{agent}")]

    async with asyncio.timeout(60):
        while not await told("two"):
            await asyncio.sleep(0.01)
    assert await told("one") == await told("two") == ["Answer to your question 'Which one?': blue"]
    await runs.pause(run.id)
    assert (await task).status == "paused"


async def test_a_pause_stops_the_agents_and_a_resume_goes_on(runs: Runs) -> None:
    """R-108."""
    hands = Hands()
    hands.hold = {"b"}
    run = await runs.create(plan(a="", b="a", c="b"))
    task = asyncio.create_task(runs.execute(run.id, worker=hands))
    await until(lambda: "b" in hands.did)
    await runs.pause(run.id, "a person wants to sleep")
    run = await task
    assert (run.status, run.why) == ("paused", "a person wants to sleep")
    hands.hold = set()
    run = await runs.execute(run.id, worker=hands)
    assert run.status == "completed"
    assert hands.did == ["a", "b", "b", "c"]


async def test_a_rate_limit_is_waited_for_and_does_not_count(runs: Runs) -> None:
    class Limited(Hands):
        async def work(self, run: Run, task: TaskState) -> Outcome:
            self.did.append(task.name)
            if len(self.did) == 1:
                return Outcome(failure="rate_limited", reset_us=SystemClock().now_us() + 200_000)
            return Outcome()

    hands = Limited()
    run = await finished(runs, plan(a=""), hands)
    assert run.status == "completed"
    assert run.tasks["a"].tries == 0
    assert hands.did == ["a", "a"]


@given(st.data())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_plan_is_carried_out_as_a_naive_scheduler_would(data: st.DataObject) -> None:
    """I29, I30, I32: each task once, needs first, and nothing is left over."""
    count = data.draw(st.integers(1, 12))
    needs = [data.draw(st.sets(st.integers(0, number - 1), max_size=3)) if number else set() for number in range(count)]
    bad = data.draw(st.sets(st.integers(0, count - 1), max_size=2))
    tasks = [
        Task(name=f"t{number}", task="x", needs=[f"t{need}" for need in sorted(wanted)])
        for number, wanted in enumerate(needs)
    ]
    doomed: set[int] = set()
    for number, wanted in enumerate(needs):
        if number in bad or wanted & doomed:
            doomed.add(number)
    expected = {f"t{number}" for number in range(count) if not needs[number] & doomed}

    async def execute() -> tuple[Run, Hands]:
        async with maos.open(":memory:") as m:
            hands = Hands({f"t{number}": ["failed"] for number in bad})
            runs = Runs(m.journal, SystemClock(), m.agents, worker=Hands)
            run = await finished(runs, Plan(tasks=tasks), hands, concurrency=data.draw(st.integers(1, 4)))
            assert await runs.get(run.id) == run
            return run, hands

    run, hands = asyncio.run(execute())
    assert sorted(hands.did) == sorted(expected)
    assert run.status == ("failed" if bad else "completed")
    assert [name for group in batches(Plan(tasks=tasks)) for name in group].__len__() == count


async def test_an_agent_asks_for_more_tasks(runs: Runs, m: Maos) -> None:
    hands = Hands()
    hands.hold = {"a"}
    run = await runs.create(plan(a="", b="a"))
    task = asyncio.create_task(runs.execute(run.id, worker=hands))
    await until(lambda: bool(hands.did))
    wish = {"tasks": [{"name": "c", "task": "x"}], "asked_by": "one", "at_us": 0}
    await m.journal.append(f"inbox/{run.id}", maos.Event("tasks_requested", wish))
    bad = {"tasks": [{"name": "d", "task": "x", "needs": ["nowhere"]}], "asked_by": "one", "at_us": 0}
    await m.journal.append(f"inbox/{run.id}", maos.Event("tasks_requested", bad))
    await until(lambda: "c" in hands.did)
    await runs.pause(run.id)
    run = await task
    assert run.status == "paused"
    assert [run.tasks[name].status for name in "abc"] == ["waiting", "waiting", "done"]
    [refused] = [record.data["text"] async for record in m.journal.read("inbox/one")]
    assert "nowhere" in refused


async def test_a_question_with_a_default_answers_itself(runs: Runs) -> None:
    hands = Hands()
    hands.hold = {"a"}
    run = await runs.create(plan(a=""))
    seen: list[Run] = []
    task = asyncio.create_task(runs.execute(run.id, worker=hands, listener=lambda run, _events: seen.append(run)))
    await until(lambda: bool(hands.did))
    soon = SystemClock().now_us() + 100_000
    await runs.ask(run.id, "Which one?", key="q1", asked_by="one", default="red", expires_us=soon)
    await until(lambda: bool(seen and seen[-1].questions and seen[-1].questions["q1"].answer))
    assert (seen[-1].questions["q1"].answer, seen[-1].questions["q1"].answered_by) == ("red", "default")
    await runs.pause(run.id)
    await task


async def test_ending_a_task_and_beginning_what_waited_for_it_is_one_append(runs: Runs) -> None:
    """I30: nobody can die in between; and what ends at the same time is recorded together."""
    appends: list[list[str]] = []
    run = await runs.create(plan(a="", b="", c="a b", d="c", e="c"))
    run = await runs.execute(
        run.id, worker=Hands(), listener=lambda _run, events: appends.append([each.type for each in events])
    )
    assert run.status == "completed"
    assert appends == [
        ["task_started"] * 2,
        ["task_finished"] * 2 + ["task_started"],
        ["task_finished"] + ["task_started"] * 2,
        ["task_finished"] * 2 + ["run_ended"],
    ]


async def test_deciding_looks_only_at_what_has_happened(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a task costs does not grow with the run: its tasks are gone through twice, however many there are."""
    passes = 0

    class Counting(dict[str, TaskState]):
        def values(self):  # type: ignore[no-untyped-def]
            nonlocal passes
            passes += 1
            return super().values()

        def items(self):  # type: ignore[no-untyped-def]
            nonlocal passes
            passes += 1
            return super().items()

    def counted(run: Run, _events: object) -> None:
        if not isinstance(run.tasks, Counting):
            run.tasks = Counting(run.tasks)

    run = await runs.create(plan(first="", **{f"t{number}": "first" for number in range(200)}))
    run = await runs.execute(run.id, worker=Hands(), listener=counted)
    assert run.status == "completed"
    assert passes <= 2


async def test_a_failing_check_that_is_nobodys_fault_is_made_again_without_doing_the_work_again(runs: Runs) -> None:
    hands = Hands({"gate of a": ["holder_lost", "stopped"]})
    run = await finished(runs, Plan(tasks=[Task(name="a", task="x", gates=[Gate(review="look")])]), hands)
    assert run.status == "completed"
    assert (hands.did, hands.checked) == (["a"], [("a", 0)] * 3)
    assert run.tasks["a"].tries == 1
