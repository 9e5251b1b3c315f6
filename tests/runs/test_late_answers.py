"""Answers that come when nobody waits for them any more, and upkeep that goes wrong: neither changes what was done."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from maos.app import Maos
from maos.clock import SystemClock
from maos.model.events.run import RunEvent
from maos.model.plan import Gate, Plan, Task
from maos.model.run import Run
from maos.plans.parser import parse
from maos.plans.source import YAML, Source
from maos.runs import cleanup
from maos.runs import file_changes as changing
from maos.runs.cleanup import Cleaner, Upkeep
from maos.runs.decisions import CommandHandler, gate_question
from maos.settings import find_files
from maos.settings.loader import Current
from tests.events import event

PERSON = {"name": "a", "command": ["true"], "gates": [{"person": "good?"}]}


def waiting(*more: dict[str, Any]) -> Run:
    """A run whose first task waits for a person."""
    run = Run(id="r-1")
    apply(run, "run_created", request="", folder="/", options={}, owner={})
    apply(run, "run_planned", tasks=[PERSON, *more])
    apply(run, "task_started", task="a", number=1)
    apply(run, "task_gated", task="a", passed=0, result="x")
    run.apply(gate_question(run, run.tasks["a"], "good?", 1))
    return run


def apply(run: Run, type_: str, **data: Any) -> None:
    run.apply(event(type_, **data, at_us=1))


def answer(run: Run, id: str, said: str = "yes") -> list[RunEvent]:
    """What follows from an answer; it is folded in."""
    answered = event("question_answered", id=id, answer=said, by="person", at_us=1)
    decided = CommandHandler(None).decide(run, answered, 1, 2)  # type: ignore[arg-type]
    for each in decided.events:
        run.apply(each)
    return list(decided.events)


def test_the_answer_that_a_task_waits_for_has_its_effect() -> None:
    run = waiting()
    assert [each.type for each in answer(run, "gate/a/0/1")] == ["question_answered", "task_gated"]
    assert (run.tasks["a"].gate, run.open_questions) == (1, [])


@pytest.mark.parametrize("said", ["yes", "no"])
def test_an_answer_about_a_task_that_is_done_changes_nothing_but_the_question(said: str) -> None:
    """I29: done is done, however it came about."""
    run = waiting()
    apply(run, "task_gated", task="a", passed=1)
    apply(run, "task_finished", task="a", result="x")
    assert [each.type for each in answer(run, "gate/a/0/1", said)] == ["question_answered"]
    assert (run.tasks["a"].status, run.done, run.open_questions) == ("done", 1, [])


def test_an_answer_about_an_earlier_try_is_no_answer_about_this_one() -> None:
    run = waiting()
    apply(run, "task_released", task="a", why="again")
    apply(run, "task_started", task="a", number=2)
    apply(run, "task_gated", task="a", passed=0)
    assert [each.type for each in answer(run, "gate/a/0/1")] == ["question_answered"]
    assert (run.tasks["a"].status, run.tasks["a"].gate) == ("gated", 0)


def test_an_answer_about_a_merge_that_went_well_since_changes_nothing() -> None:
    run = waiting()
    conflict = {"task": "a", "passed": 1, "failure": "merge_conflict", "why": "x", "conflict": ["f"]}
    apply(run, "task_gated", **conflict)
    apply(run, "question_asked", id="merge/a/1", question="?", asked_by=[])
    apply(run, "task_finished", task="a", result="x")
    assert [each.type for each in answer(run, "merge/a/1", "give up")] == ["question_answered"]
    assert run.tasks["a"].status == "done"


def test_an_answer_about_a_task_that_is_gone_changes_nothing() -> None:
    run = waiting()
    del run.tasks["a"]
    assert [each.type for each in answer(run, "gate/a/0/1")] == ["question_answered"]


# --- a plan file that has changed --------------------------------------------------------------------------------


def changed(run: Run, *gates: Gate, command: str = "true") -> Run:
    """The run with another plan for its task."""
    plan = Plan(tasks=[Task(name="a", command=[command], gates=list(gates))])
    read = parse(Source("tasks: [{name: a, command: 'true'}]", YAML, "x.yaml"))._replace(plan=plan)
    state = changing._state(run, plan, read, {})
    apply(run, "run_changed", state=state, branch=1, to=5, position=5, file="")
    return run


def test_a_gate_that_is_another_one_now_is_asked_anew_or_not_at_all() -> None:
    """Who says yes to a question that was asked before says nothing about what is asked now."""
    assert [each.id for each in changed(waiting(), Gate(person="good?")).open_questions] == ["gate/a/0/1"]
    assert changed(waiting(), Gate(person="good, and quick?")).open_questions == []
    run = changed(waiting(), Gate(command=["true"]))
    assert run.open_questions == []
    apply(run, "run_resumed")
    apply(run, "task_gated", task="a", passed=1)
    apply(run, "task_finished", task="a", result="x")
    assert answer(run, "gate/a/0/1") == []
    assert run.tasks["a"].status == "done"


def test_a_task_that_is_begun_anew_is_asked_about_anew() -> None:
    """Its question has the id of one that was answered; with that answer, it would wait for ever."""
    run = waiting()
    answer(run, "gate/a/0/1", "no")
    assert run.tasks["a"].status == "waiting"
    run = changed(run, Gate(person="good?"), command="false")
    assert (run.tasks["a"].attempts, run.questions) == (0, {})


# --- upkeep ------------------------------------------------------------------------------------------------------


def test_settings_that_cannot_be_looked_for_are_told_once(tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    current = Current(lambda: find_files(folder, tmp_path / "config").sources, {})
    folder.rmdir()
    news = current.look()
    assert news is not None
    assert news.problem is not None
    assert "cannot look for settings files" in news.problem.what
    assert current.look() is None
    folder.mkdir()
    (folder / "maos.toml").write_text("[orchestrate]\nconcurrency = 3\n")
    news = current.look()
    assert news is not None
    assert (news.problem, [each.name for each in news.changed]) == (None, ["orchestrate.concurrency"])


async def test_upkeep_that_fails_is_told_and_never_outweighs_the_work(
    engine_m: Maos, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that went well went well."""
    monkeypatch.setattr(cleanup, "LOOK_S", 0.01)

    def look() -> None:
        raise OSError("the disk is gone")

    def is_kept() -> bool:
        return any("Upkeep._keep" in str(task.get_coro()) for task in asyncio.all_tasks())

    monkeypatch.setattr(engine_m.agents.settings, "look", look)
    told: list[tuple[str, dict[str, Any]]] = []
    cleaner = Cleaner(SystemClock(), engine_m.runs, engine_m.agents)
    keeping = Upkeep(cleaner, engine_m.agents.settings, tell=lambda *said: told.append(said))

    async def work(result: str) -> str:
        async with asyncio.timeout(60):
            while is_kept():
                await asyncio.sleep(0.01)
        if not result:
            raise ValueError("the work failed")
        return result

    assert await keeping.beside(work("it went well")) == "it went well"
    assert ["the disk is gone" in text for text, _document in told] == [True]
    assert told[0][1]["kind"] == "upkeep"
    with pytest.raises(ValueError, match="the work failed"):
        await keeping.beside(work(""))
