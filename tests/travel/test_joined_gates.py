"""What a person answered in one run, and what it means for another that is joined with it."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from maos.app import Maos
from maos.clock import SystemClock
from maos.journal.codec import Event
from maos.journal.journal import Journal
from maos.model.message import inbox
from maos.model.plan import Gate, Task
from maos.model.run import Run, TaskState
from maos.travel import points_in_time
from maos.travel.service import TimeTravel
from tests.travel.conftest import order, repository, says

OURS, THEIRS = "r-ours", "r-theirs"


@pytest.fixture
def joining(m: Maos) -> TimeTravel:
    return TimeTravel(m.journal, SystemClock(), m.runs, m.agents)


async def until_asked(m: Maos, id: str, question: str) -> Run:
    """Carry a run out until it asks something; it is paused then."""
    work = asyncio.create_task(m.runs.execute(id))
    async with asyncio.timeout(60):
        async for record in m.journal.follow_stream(f"run/{id}"):
            if record.type == "question_asked" and record.data["id"] == question:
                break
        m.runs.pause_here(id, "for a look")
        return await work


async def parted(m: Maos, travel: TimeTravel, folder: Path, last: Task) -> None:
    """A run whose first task waits for a person, and a fork of it."""
    tasks = [
        Task(name="a", command=says("a"), gates=[Gate(person="good?")]),
        Task(name="b", command=says("b"), needs=["a"]),
        last,
    ]
    await order(m, repository(folder), tasks, id=OURS)
    run = await until_asked(m, OURS, "gate/a/0/1")
    await travel.fork(OURS, await points_in_time.find(m.journal, run, None), into=THEIRS)
    await m.runs.answer(THEIRS, "gate/a/0/1", "yes")


async def test_a_task_that_is_taken_as_done_is_not_opened_by_its_gate(
    tmp_path: Path, m: Maos, travel: TimeTravel, joining: TimeTravel
) -> None:
    """I29: what is done is done once; the answer has had its effect where it was given."""
    last = Task(name="c", command=says("c"), needs=["b"], gates=[Gate(person="fine?")])
    await parted(m, travel, tmp_path, last)
    theirs = await until_asked(m, THEIRS, "gate/c/0/1")
    assert {name: task.status for name, task in theirs.tasks.items()} == {"a": "done", "b": "done", "c": "gated"}
    await joining.join(OURS, THEIRS)
    joined = await m.runs.get(OURS)
    assert joined.open_questions == [], "nobody is asked about what is done"
    run = await until_asked(m, OURS, "gate/c/0/1")
    assert (run.done, run.tasks["b"].missing) == (2, 0)
    after = [each async for each in m.journal.read(f"run/{OURS}", after=joined.version)]
    assert not [each for each in after if each.data.get("task") in ("a", "b")], "they are as they were taken"
    await m.runs.answer(OURS, "gate/c/0/1", "yes")
    run = await m.runs.execute(OURS)
    assert (run.status, run.done, run.progress) == ("completed", 3, 100)


async def test_a_run_with_a_task_that_failed_is_not_completed_by_an_answer_from_elsewhere(
    tmp_path: Path, m: Maos, travel: TimeTravel, joining: TimeTravel
) -> None:
    """A task that finished twice would count for one that did not."""
    await parted(m, travel, tmp_path, Task(name="c", command=["sh", "-c", "exit 3"], needs=["b"]))
    assert (await m.runs.execute(THEIRS)).status == "failed"
    await joining.join(OURS, THEIRS)
    for _ in range(2):
        run = await m.runs.execute(OURS)
        assert (run.status, run.done, run.tasks["c"].status) == ("failed", 2, "failed")


async def test_what_another_run_was_told_about_a_task_is_asked_here_once_more(
    tmp_path: Path, m: Maos, travel: TimeTravel, joining: TimeTravel
) -> None:
    """The task is done here anew: with the answer from there it would wait for ever, and never be asked."""
    last = Task(name="c", command=says("c"), needs=["b"], gates=[Gate(person="fine?")])
    await parted(m, travel, tmp_path, last)
    await until_asked(m, THEIRS, "gate/c/0/1")
    await m.runs.answer(THEIRS, "gate/c/0/1", "no")
    theirs = await until_asked(m, THEIRS, "gate/c/0/2")
    assert theirs.questions["gate/c/0/1"].answer == "no"
    await joining.join(OURS, THEIRS)
    run = await until_asked(m, OURS, "gate/c/0/1")
    assert [each.id for each in run.open_questions] == ["gate/c/0/1"]


class Late:
    """A journal into whose inbox something comes while it is looked at."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)

    async def read(self, stream: str, **how: Any) -> AsyncIterator[Any]:
        if stream == inbox(OURS) and "until" in how:
            asked = {"tasks": [{"name": "late", "command": ["true"]}], "asked_by": "person", "at_us": 1}
            await self._journal.append(stream, Event("tasks_requested", asked))
        async for record in self._journal.read(stream, **how):
            yield record


async def test_a_wish_that_comes_while_runs_are_joined_is_granted_once(
    tmp_path: Path, m: Maos, travel: TimeTravel
) -> None:
    """It is after what the join has taken note of, so it waits where it is."""
    await order(m, repository(tmp_path), [Task(name="a", command=says("a"))], id=OURS)
    run = await m.runs.execute(OURS)
    await travel.fork(OURS, await points_in_time.find(m.journal, run, None), into=THEIRS)
    await TimeTravel(Late(m.journal), SystemClock(), m.runs, m.agents).join(OURS, THEIRS)  # type: ignore[arg-type]
    joined = await m.runs.get(OURS)
    left = [each.type async for each in m.journal.read(inbox(OURS), after=joined.inbox_cursor)]
    assert left == ["tasks_requested"]


def test_a_task_asks_only_while_it_waits_for_a_person() -> None:
    task = TaskState(name="a", plan={"gates": [{"person": "good?"}, {"command": ["true"]}]}, needs=[], attempts=2)
    assert task.asks == ""
    task.status = "gated"
    assert task.asks == "gate/a/0/2"
    task.gate = 1
    assert task.asks == ""
    task.failure, task.conflicts = "merge_conflict", 3
    assert task.asks == "merge/a/3"
    task.resolve = "agent"
    assert task.asks == ""
    task.resolve, task.status = "", "done"
    assert task.asks == ""
