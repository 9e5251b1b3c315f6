"""How it stands with a run, from its fold, its agents and its inbox alone."""

from collections.abc import Iterable
from typing import Any

import pytest

from maos.model.attempt import Attempt, Permission
from maos.model.events.attempt import OpenTool
from maos.model.run import Run
from maos.model.run_status import SupervisorStatus, pending_commands, status_of
from maos.model.status import SupervisorState
from tests.events import event

NOW_US = 1_000_000_000
OWNER = {"pid": 1}


def run_of(*events: tuple[str, dict[str, Any]], taken: int = 1) -> Run:
    """A run of two tasks, `api` and then `page`, with what happened to it."""
    run = Run(id="r-1")
    run.apply(event("run_created", request="x", folder="", options={}, owner=OWNER, at_us=1))
    run.apply(event("run_planned", tasks=[{"name": "api"}, {"name": "page", "needs": ["api"]}], at_us=2))
    for number in range(taken):
        run.apply(event("run_claimed", owner=OWNER, source="manual", at_us=3 + number))
    for type_, data in events:
        run.apply(event(type_, **{"at_us": 10, **data}))
    return run


def started(task: str) -> tuple[str, dict[str, Any]]:
    return "task_started", {"task": task, "number": 1}


def failed(task: str, failure: str) -> tuple[str, dict[str, Any]]:
    return "task_failed", {"task": task, "failure": failure, "why": "it broke"}


def asked(id: str = "q-1", by: str = "r-1.api") -> tuple[str, dict[str, Any]]:
    return "question_asked", {"id": id, "question": "which one?", "asked_by": [by], "at_us": 20}


def attempt(**more: Any) -> dict[str, Attempt]:
    return {"r-1.api": Attempt(id="r-1.api.1", agent="r-1.api", status="running", **more)}


def commands(inbox: Iterable[tuple[str, dict[str, Any]]]) -> list[Any]:
    return [event(type_, **{"at_us": 10, **data}) for type_, data in inbox]


def look(
    run: Run,
    attempts: dict[str, Attempt] | None = None,
    inbox: Iterable[tuple[str, dict[str, Any]]] = (),
    *,
    lives: bool = True,
) -> SupervisorStatus:
    return status_of(
        run,
        attempts or {},
        pending_commands(run, commands(inbox)),
        lives=lives,
        now_us=NOW_US,
    )


WAITING = ("task_released", {"task": "api", "not_before_us": NOW_US + 5, "why": "rate limit"})
ASKS = {"p-1": Permission("p-1", "Bash")}

CASES: list[tuple[str, Run, dict[str, Attempt]]] = [
    ("initializing", run_of(taken=0), {}),
    ("initializing", Run(id="r-1", version=1, owner=OWNER), {}),
    ("working", run_of(started("api")), {}),
    ("working", run_of(started("api"), asked()), attempt()),
    ("waiting_for_user", run_of(started("api"), asked()), attempt(in_turn=False)),
    ("waiting_for_user", run_of(started("api"), asked()), attempt(tools_open={"t": OpenTool("mcp__maos__ask_person")})),
    ("waiting_for_user", run_of(started("api")), attempt(permissions=ASKS)),
    ("working", run_of(started("api")), attempt(permissions={"p-1": Permission("p-1", "Bash", allow=True)})),
    (
        "waiting_for_user",
        run_of(started("api"), ("task_gated", {"task": "api", "passed": 0}), asked("gate/api/0/1", "r-1")),
        {},
    ),
    ("waiting_for_tasks", run_of(started("api"), WAITING), {}),
    ("blocked", run_of(started("api"), failed("api", "failed")), {}),
    ("blocked", run_of(failed("api", "no_credit"), ("run_ended", {"status": "failed"})), {}),
    ("failed", run_of(failed("api", "failed"), ("run_ended", {"status": "failed"})), {}),
    ("idle", run_of(("run_paused", {"why": "asked"})), {}),
    ("idle", run_of(), {}),
    ("completed", run_of(("run_ended", {"status": "completed"})), {}),
    ("cancelled", run_of(("run_ended", {"status": "cancelled"})), {}),
]


@pytest.mark.parametrize(("state", "run", "attempts"), CASES)
def test_the_state_follows_from_what_is_recorded(state: str, run: Run, attempts: dict[str, Attempt]) -> None:
    """R-204."""
    assert look(run, attempts).state == state


def test_every_state_can_be_reached() -> None:
    assert {state for state, _run, _attempts in CASES} | {"interrupted"} == set(SupervisorState)


@pytest.mark.parametrize(("state", "run", "attempts"), CASES)
def test_only_a_run_that_should_go_on_is_interrupted_by_its_engines_death(
    state: str, run: Run, attempts: dict[str, Attempt]
) -> None:
    now = look(run, attempts, lives=False).state
    assert now == (state if run.status in ("completed", "failed", "cancelled", "paused") else "interrupted")


def test_who_waits_for_a_person_is_known_while_others_work() -> None:
    """R-208."""
    run = run_of(started("api"), asked())
    now = look(run, attempt())
    assert (now.state, now.waiting, now.needs_person) == ("working", ("q-1",), True)
    assert not look(run_of(started("api")), attempt()).needs_person


def test_what_lies_in_the_inbox_counts_before_an_engine_records_it() -> None:
    """R-207: before or after a crash."""
    run = run_of(started("api"))
    assert look(run, attempt(in_turn=False), [asked()]).state == "waiting_for_user"
    answer = ("question_answered", {"id": "q-1", "answer": "this", "by": "person", "at_us": 30})
    late = ("question_answered", {"id": "q-1", "answer": "that", "by": "person", "at_us": 31})
    assert look(run, attempt(in_turn=False), [asked(), answer]).waiting == ()
    found = pending_commands(run, commands([asked(), asked(by="r-1.page"), answer, late]))
    assert found.questions["q-1"].answer == "this", "the first answer counts"
    assert found.questions["q-1"].asked_by == ["r-1.api", "r-1.page"]
    assert found.unrecorded == {"q-1"}
    assert run.questions == {}, "looking changes nothing"


def test_a_wish_that_was_recorded_is_not_counted_twice() -> None:
    run = run_of(asked())
    found = pending_commands(run, commands([asked()]))
    assert found.questions["q-1"].asked_by == ["r-1.api"]
    assert found.unrecorded == frozenset()


def test_a_pause_that_somebody_wants_is_said() -> None:
    run = run_of(started("api"))
    assert look(run, inbox=[("pause_requested", {"why": "asked", "at_us": 9})]).activity == "is being paused"
    done = run_of(("run_ended", {"status": "completed"}))
    assert pending_commands(done, commands([("pause_requested", {"why": "asked", "at_us": 9})])).pause == ""


def test_tasks_behind_a_failed_one_are_stuck_and_the_failure_says_what_to_do() -> None:
    now = look(run_of(started("api"), failed("api", "no_credit")))
    assert now.stuck == ("page",)
    assert now.error == "api: it broke"
    assert now.to_do == "add credit, then resume"


def test_what_to_do_about_a_failure_names_the_task_that_has_it() -> None:
    run = run_of(started("api"), failed("api", "failed"), started("page"), failed("page", "gate_failed"))
    of_api, of_page = look(run).to_do.split("; ")
    assert of_api == f"look at `maos logs {run.id}/api`"
    assert of_page == f"fix what the check found, then `maos retry {run.id}/page`"


def test_restorations_are_those_after_the_beginning() -> None:
    """R-204."""
    first, third = run_of(taken=1), run_of(taken=3)
    assert first.times_restored == 0
    assert (third.times_restored, third.restored_us, third.restored_from) == (2, 5, "manual")


def test_what_one_agent_does_is_what_the_run_does() -> None:
    assert look(run_of(started("api")), attempt(activity="runs Bash")).activity == "api: runs Bash"
