"""Runs and agents at a glance, runs on a time axis, and what people decided: from real runs of commands."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import maos
from maos.app import Maos
from maos.clock import SystemClock
from maos.model.attempt import Attempt
from maos.model.events.attempt import AttemptOutput
from maos.model.events.facts import QuotaWindow
from maos.model.plan_file import Origin
from maos.model.read_models import CardState
from maos.views import workflows as workflow_views
from maos.views.activity import NO_OUTPUT, ActivityFilter
from maos.views.fleet import quotas_of
from maos_testing.manual_clock import ManualClock


@pytest.fixture
async def m(tmp_path: Path) -> AsyncIterator[Maos]:
    async with maos.open(tmp_path / "maos.db", home=tmp_path / "home") as opened:
        yield opened


def command(name: str, line: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "command": ["sh", "-c", line], **more}


async def start(m: Maos, tmp_path: Path, *tasks: dict[str, Any], **options: Any) -> asyncio.Task[Any]:
    plan = {"tasks": list(tasks)}
    await m.runs.start(plan, folder=tmp_path, options={"in_place": True, **options}, id="r-1")
    return asyncio.create_task(m.runs.execute("r-1"))


async def states_of(m: Maos) -> dict[str, str]:
    runs = (await m.fleet.read()).runs
    return {each.task: str(each.state) for card in runs for each in card.cards}


async def test_each_task_has_its_true_state_and_says_since_when(m: Maos, tmp_path: Path) -> None:
    go = tmp_path / "go"
    executing = await start(
        m, tmp_path,
        command("done", "echo ready"),
        command("works", f"echo at work; until [ -e {go} ]; do sleep 0.02; done"),
        command("asks", "echo look at this", gates=[{"person": "Good?"}]),
        command("fails", "exit 3"),
        command("stuck", "echo never", needs=["fails"]),
        command("later", "echo later", needs=["works"]),
    )  # fmt: skip
    wanted = {
        "done": "done", "works": "working", "asks": "waiting_for_you", "fails": "failed", "stuck": "stuck",
        "later": "waiting",
    }  # fmt: skip
    while await states_of(m) != wanted or not (await m.fleet.read()).runs[0].output_us:
        await asyncio.sleep(0.02)
    (card,) = (await m.fleet.read()).runs
    cards = {each.task: each for each in card.cards}
    (question,) = await m.questions.open()
    assert card.strip == "dryxbw"
    assert cards["works"].activity == "at work"
    assert cards["stuck"].activity == "needs fails, which failed"
    assert cards["stuck"].since_us == cards["fails"].since_us > 0
    assert cards["asks"].since_us == question.asked_us
    await m.questions.give(question, "yes")
    go.touch()
    await executing
    fleet = await m.fleet.read()
    assert (fleet.runs, [each.run.id for each in fleet.recent], fleet.ended) == ([], ["r-1"], 1)


async def test_runs_that_need_a_person_come_before_newer_ones(m: Maos, tmp_path: Path) -> None:
    """And the list of workflow runs has the same state for them (R-902)."""
    go = tmp_path / "go"
    works = command("works", f"until [ -e {go} ]; do sleep 0.02; done")
    asks = command("asks", "true", gates=[{"person": "Good?"}])
    made_from = Origin(name="plan", file="plan.yaml", digest="0" * 64).option()
    executing = []
    for id, tasks in (("r-old", [works]), ("r-asks", [asks, works]), ("r-new", [works])):
        options = {"in_place": True, **made_from}
        await m.runs.start({"tasks": tasks}, folder=tmp_path, options=options, id=id)
        executing.append(asyncio.create_task(m.runs.execute(id)))
    while not (asked := await m.questions.open()):
        await asyncio.sleep(0.02)
    assert [each.view.run.id for each in (await m.fleet.read()).runs] == ["r-asks", "r-new", "r-old"]
    listed = {each.id: each.state for each in await workflow_views.list_all(m.runs, m.views.workflows)}
    assert listed == {"r-asks": "waiting_for_user", "r-new": "working", "r-old": "working"}
    await m.questions.give(asked[0], "yes")
    go.touch()
    await asyncio.gather(*executing)


async def test_an_agent_that_prints_nothing_for_long_is_not_shown_as_working(tmp_path: Path) -> None:
    clock = ManualClock(SystemClock().now_us())
    go = tmp_path / "go"
    async with maos.open(tmp_path / "maos.db", home=tmp_path / "home", clock=clock) as m:
        line = f"echo hello; until [ -e {go} ]; do sleep 0.02; done"
        running = await m.agents.start("wait", name="a", argv=("sh", "-c", line), cwd=tmp_path, in_place=True)
        while (await m.agents.status("a")).activity != "hello":
            await asyncio.sleep(0.02)
        assert [each.state for each in (await m.fleet.read()).agents] == [CardState.WORKING]
        clock.advance(600)
        (card,) = (await m.fleet.read()).agents
        assert (card.state, card.since_us) == (CardState.QUIET, card.output_us)
        go.touch()
        await running.wait()


async def test_of_many_tasks_those_that_need_somebody_come_first_and_all_are_counted(m: Maos, tmp_path: Path) -> None:
    tasks = [command(f"t-{n:03}", "exit 1" if n == 2 else "echo done") for n in range(15)]
    executing = await start(m, tmp_path, *tasks, command("last", "true", needs=["t-002"]), concurrency=8)
    while (await states_of(m)).get("last") != "stuck" or (await m.fleet.read()).runs[0].states.get("done") != 14:
        await asyncio.sleep(0.02)
        if executing.done():
            break
    view = await m.fleet.read()
    cards = view.runs[0].cards if view.runs else []
    assert [each.task for each in cards] in (["last", "t-002"], [])
    await executing


async def test_a_timeline_has_the_times_of_each_try_and_what_happened(m: Maos, tmp_path: Path) -> None:
    await (await start(m, tmp_path, command("first", "echo 1"), command("second", "exit 2", needs=["first"])))
    found = await m.timelines.read("r-1")
    (first,), (second,) = found.spans["first"], found.spans["second"]
    assert (first.outcome, second.outcome) == ("done", "failed")
    assert found.run.created_us <= first.start_us < first.end_us <= second.start_us < second.end_us <= found.end_us
    assert [each.kind for each in found.marks] == ["created", "planned", "claimed", "ended"]
    again = await m.timelines.read("r-1")
    assert (again.spans, again.marks) == (found.spans, found.marks)


async def test_of_a_task_that_was_tried_again_the_past_has_the_attempt_of_then(m: Maos, tmp_path: Path) -> None:
    """Also of one that had ended by then, whose output can be read (R-902)."""
    line = "echo try; test -e again || { touch again; exit 1; }"
    await (await start(m, tmp_path, command("a", line), command("b", "echo b")))
    first = await m.travel.point("r-1", (await m.runs.get("r-1")).version)
    await m.runs.resume("r-1")
    await m.runs.execute("r-1")
    last = await m.travel.point("r-1", (await m.runs.get("r-1")).version)
    for point, number, status in ((first, 1, "failed"), (last, 2, "done")):
        view, _ = await m.runs.status_at(point)
        found = await m.runs.attempts_at(view, point.position, ["a", "b"])
        assert {name: (each.number, each.status) for name, each in found.items()} == {
            "a": (number, status), "b": (1, "done"),
        }  # fmt: skip


async def test_waiting_for_a_person_is_a_time_of_its_own(m: Maos, tmp_path: Path) -> None:
    executing = await start(m, tmp_path, command("checked", "echo done", gates=[{"person": "Good?"}]))
    while not (asked := await m.questions.open()):
        await asyncio.sleep(0.02)
    worked, gated, waits = (await m.timelines.read("r-1")).spans["checked"]
    assert (worked.outcome, gated.outcome, waits.outcome) == ("done", "done", "asked")
    assert (gated.start_us, waits.start_us, waits.end_us) == (worked.end_us, gated.end_us, 0)
    await m.questions.give(asked[0], "yes")
    await executing
    spans = (await m.timelines.read("r-1")).spans["checked"]
    (waited,) = (each for each in spans if each.outcome == "asked")
    assert waits.start_us == waited.start_us < waited.end_us <= spans[-1].start_us
    assert {each.outcome for each in spans} == {"done", "asked"}
    (decision,) = await m.questions.decided()
    assert (decision.kind, decision.text, decision.answer, decision.by) == ("gate", "Good?", "yes", str(m.principal))


async def test_work_that_a_rollback_begins_again_is_a_time_of_its_own(m: Maos, tmp_path: Path) -> None:
    """The attempt is resumed from a point at which it was running, which is not recorded as a start."""
    await (await start(m, tmp_path, command("a", "echo 1")))
    events = [each async for each in m.journal.read("run/r-1")]
    started = next(each.version for each in events if each.event.__class__.__name__ == "TaskStarted")
    await m.travel.rollback("r-1", started, without_files=True)
    assert len((await m.timelines.read("r-1")).spans["a"]) == 1
    await m.runs.resume("r-1")
    await m.runs.execute("r-1")
    first, second = (await m.timelines.read("r-1")).spans["a"]
    (rolled_back,) = (each for each in (await m.timelines.read("r-1")).marks if each.kind == "rolled_back")
    assert (first.outcome, second.outcome) == ("done", "done")
    assert first.end_us <= rolled_back.at_us <= second.start_us < second.end_us


async def test_a_reader_without_output_still_gets_what_needs_a_person(m: Maos, tmp_path: Path) -> None:
    await (await start(m, tmp_path, command("a", "echo 1; echo 2; echo 'found: three modules'")))
    events, _ = await m.activity.page(wanted=ActivityFilter(output=NO_OUTPUT), limit=500)
    lines = [fact for each in events if each.type == "attempt_output" for fact in each.json.split(b'"kind":')]
    assert not any(each.is_output for each in events)
    assert any(b"discovery" in each for each in lines)
    own, _ = await m.activity.page(wanted=ActivityFilter(output="r-1.a"), limit=500)
    every, _ = await m.activity.page(limit=500)
    assert [each.position for each in own] == [each.position for each in every]


def test_of_each_window_of_an_account_what_was_said_last_counts_until_it_begins_anew() -> None:
    def told(at_us: int, *windows: QuotaWindow) -> Attempt:
        attempt = Attempt(id=f"a.{at_us}", kind="claude")
        attempt.apply(AttemptOutput(offset=0, at_us=at_us, facts=list(windows)))
        return attempt

    attempts = [
        told(2, QuotaWindow("five_hour", 0.4, 1_000), QuotaWindow("seven_day", 0.9, 9_000)),
        told(1, QuotaWindow("five_hour", 0.3, 1_000)),
        told(3, QuotaWindow("opus", 0.99, 50)),
    ]
    assert [(each.window, each.used) for each in quotas_of(attempts, 100)] == [("seven_day", 0.9), ("five_hour", 0.4)]
    assert [each.window for each in quotas_of(attempts, 1_000)] == ["seven_day"]
