"""Limits that a person changes: while an engine executes the run, while it stops agents, and while none executes it."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import maos
from maos import Limits
from maos.app import Maos
from maos.clock import SystemClock
from maos.engine.recorder import Recorder
from maos.model.attempt import Attempt
from maos.model.events.run import RunUpdated
from maos.model.message import inbox
from maos.model.run import Run, stream
from maos.runs.budgets import left_of_attempt
from maos.runs.service import Runs
from tests.events import event
from tests.runs.test_operations import until
from tests.runs.test_scheduler import Hands, plan

IN_PLACE = {"in_place": True, "kind": "shell"}


async def updates(m: Maos, id: str) -> list[RunUpdated]:
    return [each.event async for each in m.journal.read(stream(id)) if isinstance(each.event, RunUpdated)]


def runs_of(m: Maos, hands: Hands) -> Runs:
    return Runs(m.journal, SystemClock(), m.agents, worker=lambda: hands)


async def ended(executing: "asyncio.Task[Run]") -> Run:
    async with asyncio.timeout(30):
        return await executing


async def test_more_agents_work_at_once_as_soon_as_a_person_says_so(m: Maos) -> None:
    hands = Hands()
    hands.hold = {"a", "b"}
    runs = runs_of(m, hands)
    run = await runs.create(plan(a="", b=""))
    executing = asyncio.create_task(runs.execute(run.id, concurrency=1))
    await until(m, run.id, lambda each: each.running == 1)
    run = await runs.update(run.id, Limits(concurrency=2))
    assert run.options["concurrency"] == 2
    await until(m, run.id, lambda each: each.running == 2)
    hands.hold.clear()
    hands.stopped.set()
    assert (await ended(executing)).status == "completed"
    [changed] = await updates(m, run.id)
    assert (changed.limits, changed.by) == (Limits(concurrency=2), m.journal.by)


async def test_a_budget_that_is_raised_while_agents_are_being_stopped_for_it_is_not_reached(m: Maos) -> None:
    """The run is never paused: what waited continues."""
    hands = Hands()
    hands.hold = {"a"}
    runs = runs_of(m, hands)
    run = await runs.create(plan(a="", b="", c="b"), options={"budget": {"cost_usd": 1.0}})
    executing = asyncio.create_task(runs.execute(run.id))
    await until(m, run.id, lambda each: each.tasks["b"].status == "done")
    assert hands.did == ["a", "b"], "c would cost more"
    run = await runs.update(run.id, Limits(cost_usd=9.0))
    await until(m, run.id, lambda each: each.tasks["c"].status == "done")
    hands.hold.clear()
    hands.stopped.set()
    assert (await ended(executing)).status == "completed"
    types = [each.type async for each in m.journal.read(stream(run.id))]
    assert "run_paused" not in types
    [changed] = await updates(m, run.id)
    assert (changed.before, changed.limits) == (Limits(cost_usd=1.0), Limits(cost_usd=9.0))


@pytest.mark.parametrize("limit", ["cost_usd", "tokens"])
async def test_a_paused_run_keeps_what_it_is_given_for_the_engine_that_resumes_it(m: Maos, limit: str) -> None:
    hands = Hands()
    runs = runs_of(m, hands)
    first, more = {"cost_usd": (1.0, 9.0), "tokens": (10, 90)}[limit]
    run = await runs.create(plan(a="", b="a"), options={"budget": {limit: first}})
    run = await runs.execute(run.id)
    assert (run.status, run.limit, hands.did) == ("paused", limit, ["a"])
    run = await runs.update(run.id, Limits(**{limit: more}))
    assert (run.status, run.limit, run.why) == ("paused", "", "")
    assert (await runs.execute(run.id)).status == "completed"
    [changed] = await updates(m, run.id)
    assert (changed.before.given, changed.limits.given) == ({limit: first}, {limit: more})


async def test_resuming_with_a_limit_changes_it_in_the_same_way(m: Maos) -> None:
    """And what it does not name stays as it was."""
    hands = Hands()
    runs = runs_of(m, hands)
    options = {"budget": {"cost_usd": 1.0, "tokens": 500}}
    run = await runs.execute((await runs.create(plan(a="", b="a"), options=options)).id)
    resumed = await runs.resume(run.id, limits=Limits(cost_usd=5.0, concurrency=3))
    assert resumed is not None
    assert resumed.options["budget"] == {"cost_usd": 5.0, "tokens": 500}
    assert (await runs.execute(run.id)).status == "completed"
    assert [each.limits for each in await updates(m, run.id)] == [Limits(cost_usd=5.0, concurrency=3)]
    assert await m.journal.version(inbox(run.id)) == 0, "it is applied under the claim, before anything else"


async def test_time_that_is_over_is_given_back_before_the_agents_have_stopped(m: Maos) -> None:
    hands = Hands()
    hands.hold = {"a"}
    runs = runs_of(m, hands)
    run = await runs.create(plan(a="", b="a"), options={"budget": {"time_s": 3600}})
    executing = asyncio.create_task(runs.execute(run.id))
    await until(m, run.id, lambda each: each.running == 1)
    await runs.update(run.id, Limits(time_s=0.01))
    run = await ended(executing)
    assert (run.status, run.limit, run.why) == ("paused", "time_s", "the time limit of 0.01 s is reached")
    hands.hold.clear()
    await runs.update(run.id, Limits(time_s=0))
    assert (await runs.execute(run.id)).status == "completed"


async def test_a_task_that_failed_at_the_time_limit_is_retried_when_that_is_raised(m: Maos) -> None:
    """One that has a limit of its own is not, nor is one that failed for another reason."""
    hands = Hands({"a": ["timed_out"], "b": ["failed"], "own": ["timed_out"]})
    hands.hold = {"z"}
    runs = runs_of(m, hands)
    tasks = [{"name": name, "task": "x"} for name in "abz"] + [{"name": "own", "task": "x", "time_limit_s": 5}]
    run = await runs.create({"tasks": tasks}, options={"time_limit_s": 60.0, "kind": "claude"})
    executing = asyncio.create_task(runs.execute(run.id))
    await until(m, run.id, lambda each: [task.status for task in each.tasks.values()].count("failed") == 3)
    await runs.update(run.id, Limits(time_limit_s=30.0))
    assert hands.did.count("a") == 1, "less time is no reason to try again"
    await runs.update(run.id, Limits(time_limit_s=3600.0))
    await until(m, run.id, lambda each: each.tasks["a"].status == "done")
    hands.hold.clear()
    hands.stopped.set()
    run = await ended(executing)
    assert {name: each.status for name, each in run.tasks.items()} == {
        "a": "done", "b": "failed", "z": "done", "own": "failed",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("limits", "what"),
    [
        (Limits(), "nothing is to be changed"),
        (Limits(cost_usd=-1.0), "cost_usd cannot be -1.0"),
        (Limits(time_s=float("nan")), "time_s cannot be nan"),
        (Limits(concurrency=0), "0 agents cannot work at once"),
        (Limits(concurrency=1001), "1001 agents cannot work at once"),
    ],
)
async def test_what_is_no_limit_is_refused(m: Maos, limits: Limits, what: str) -> None:
    run = await m.runs.create(plan(a=""), options={"kind": "claude"})
    with pytest.raises(maos.InvalidInput, match=what):
        await m.runs.update(run.id, limits)
    assert await m.journal.version(inbox(run.id)) == 0


async def test_a_limit_of_money_for_a_model_without_a_price_is_refused(m: Maos) -> None:
    run = await m.runs.create(plan(a=""), options={"kind": "claude", "model": "claude-new-9"})
    with pytest.raises(maos.InvalidInput, match="claude-new-9 has no price"):
        await m.runs.update(run.id, Limits(cost_usd=1.0))


# --- agents at work ----------------------------------------------------------------------------------------------


async def at_work(m: Maos, folder: Path, options: dict[str, Any]) -> "tuple[asyncio.Task[Run], str]":
    """A run with a command that lasts until there is a file `go`, and which is at work now."""
    command = ["sh", "-c", f"echo begun; while [ ! -e {folder}/go ]; do sleep 0.05; done; echo done"]
    run = await m.runs.create(
        {"tasks": [{"name": "a", "command": command}]}, folder=folder, options={**IN_PLACE, **options}
    )
    executing = asyncio.create_task(m.runs.execute(run.id))
    await attempt_until(m, f"{run.id}.a", lambda each: each.lines == 1)
    return executing, run.id


async def attempt_until(m: Maos, agent: str, condition: Callable[[Attempt], bool]) -> Attempt:
    async with asyncio.timeout(30):
        while (found := await m.agents.newest(agent)) is None or not condition(found):
            await asyncio.sleep(0.02)
        return found


async def test_an_agent_at_work_gets_more_time(m: Maos, tmp_path: Path) -> None:
    executing, id = await at_work(m, tmp_path, {"time_limit_s": 1.0})
    await m.runs.update(id, Limits(time_limit_s=3600))
    attempt = await attempt_until(m, f"{id}.a", lambda each: each.order["time_limit_s"] == 3600)
    await asyncio.sleep(max(0.0, 1.5 - attempt.worked_us(SystemClock().now_us()) / 1e6))
    attempt = await m.agents.get(f"{id}.a")
    assert attempt.is_open, "the first limit is over"
    left = left_of_attempt(attempt, SystemClock().now_us())
    assert left.time_s is not None
    assert 3500 < left.time_s < 3599
    (tmp_path / "go").touch()
    assert (await ended(executing)).status == "completed"


async def test_an_agent_at_work_gets_less_time(m: Maos, tmp_path: Path) -> None:
    executing, id = await at_work(m, tmp_path, {"time_limit_s": 3600.0})
    await m.runs.update(id, Limits(time_limit_s=0.01))
    run = await ended(executing)
    assert (run.status, run.tasks["a"].failure) == ("failed", "timed_out")


async def test_an_engine_that_attaches_tells_the_holder_a_limit_that_only_is_recorded(
    m: Maos, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine was killed between the two."""
    executing, id = await at_work(m, tmp_path, {"time_limit_s": 3600.0})
    append = Recorder.append

    async def killed_after(self: Any, *events: Any, **more: Any) -> None:
        await append(self, *events, **more)
        if any(each.type == "attempt_limited" for each in events if hasattr(each, "type")):
            executing.cancel()
            await asyncio.sleep(3600)

    monkeypatch.setattr(Recorder, "append", killed_after)
    await m.runs.update(id, Limits(time_limit_s=0.01))
    with pytest.raises(asyncio.CancelledError):
        await ended(executing)
    monkeypatch.undo()
    await m.agents.close()
    assert (await m.agents.get(f"{id}.a")).is_open
    run = await ended(asyncio.create_task(m.runs.execute(id)))
    assert (run.status, run.tasks["a"].failure) == ("failed", "timed_out")


ASKED = {"kind": "permission_requested", "id": "p", "tool": "Bash"}
LIMITED = {"kind": "retry", "status": 429, "delay_s": 300.0}
WORKS = {"kind": "text", "text": "I continue."}


@pytest.mark.parametrize(
    ("waits", "continues"),
    [
        pytest.param((ASKED,), ("attempt_answered", {"request": "p", "allow": True}), id="for a person"),
        pytest.param((LIMITED,), ("attempt_output", {"facts": [WORKS]}), id="for a rate limit"),
        pytest.param((LIMITED, {"kind": "quota", "window": "5h"}), ("attempt_output", {"facts": [WORKS]}),
                     id="for a rate limit, with news of it"),
    ],
)  # fmt: skip
def test_time_in_which_an_agent_waits_is_not_used(
    waits: tuple[dict[str, Any], ...], continues: tuple[str, dict[str, Any]]
) -> None:
    attempt = Attempt(id="a.1", order={"time_limit_s": 60.0})
    type_, data = continues
    for each in (
        event("attempt_started", pid=1, at_us=1_000_000),
        *(event("attempt_output", **_output(11 + number, fact)) for number, fact in enumerate(waits)),
        event(type_, **{**(_output(511) if type_ == "attempt_output" else {}), "at_us": 511_000_000, **data}),
        event("attempt_output", **_output(515, WORKS)),
    ):
        attempt.apply(each)
    assert attempt.worked_us(516_000_000) == 15_000_000
    assert left_of_attempt(attempt, 516_000_000).time_s == 45.0


@pytest.mark.parametrize("status", [500, 529])
def test_time_in_which_an_agent_retries_what_is_no_limit_is_used(status: int) -> None:
    """A model that is overloaded has no end that is worth waiting for."""
    attempt = Attempt(id="a.1", order={"time_limit_s": 60.0})
    attempt.apply(event("attempt_started", pid=1, at_us=1_000_000))
    attempt.apply(event("attempt_output", **_output(11, {**LIMITED, "status": status})))
    assert attempt.worked_us(41_000_000) == 40_000_000


def _output(at_s: int, *facts: dict[str, Any]) -> dict[str, Any]:
    return {"offset": at_s, "at_us": at_s * 1_000_000, "facts": list(facts)}
