"""The status of workflow runs: what is recorded, and whether a process executes them."""

import asyncio
from collections.abc import Iterator

import msgspec
import pytest

import maos
from maos.app import Maos
from maos.model.events.workflow import StepStarted
from maos.model.workflow import CHANGED, DONE, FAILED, STARTED, UNKNOWN, Step, WorkflowRun
from maos.workflows import Handle, gate
from maos.workflows.status import Status
from maos.workflows.steps import BEGIN, REPEAT, RESOLVE, RETRY, RETURN, decide
from tests.workflows.define import Outside, eventually, workflow

outside = Outside()


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    outside.__init__()  # type: ignore[misc]
    yield
    outside.hold.set()


@maos.step
async def charge(amount: int) -> int:
    await outside.slow(amount)
    return amount


@workflow("buying")
async def buying() -> str:
    await charge(7)
    return await gate("Ship it?", choices=["yes", "no"])


def orphaned(flow: WorkflowRun) -> WorkflowRun:
    """As it is recorded when the process that executes it has ended."""
    return msgspec.structs.replace(flow, owner={**flow.owner, "since": 1})


async def test_a_run_whose_process_has_ended_is_interrupted(m: Maos) -> None:
    """Until then a step that runs is no reason to ask anybody; from then on its outcome is unknown."""
    handle = await m.workflows.start(buying, id="b")
    await eventually(lambda: outside.seen)
    alive, dead = await m.workflows.status("b"), Status.of(orphaned(handle.run))
    assert (alive.name, alive.needs_resume, alive.unknown) == ("running", False, [])
    assert (dead.name, dead.needs_resume, dead.unknown) == ("interrupted", True, ["1"])
    outside.hold.set()
    await eventually(lambda: handle.run.waiting)
    assert (await m.workflows.status("b")).needs_person == "answer"
    await m.workflows.answer("b", "2", "yes")
    assert await handle.result() == "yes"
    assert Status.of(orphaned(handle.run)).name == "completed"


async def test_runs_are_listed_by_the_status_they_have_now(m: Maos) -> None:
    outside.hold.set()
    handles = {id: await m.workflows.start(buying, id=id) for id in ("a", "b", "c")}
    await handles["b"].pause()
    await eventually(lambda: handles["a"].run.waiting)
    await m.workflows.answer("a", "2", "no")
    await handles["a"].wait()
    assert [(each.run.id, each.name) for each in await m.workflows.list()] == [
        ("a", "completed"), ("b", "paused"), ("c", "running"),
    ]  # fmt: skip
    assert [each.run.id for each in await m.workflows.list("paused")] == ["b"]
    assert await m.workflows.list("interrupted") == []


async def test_a_person_who_watches_is_told_what_it_waits_for(m: Maos) -> None:
    outside.hold.set()
    await m.workflows.start(buying, id="b")
    async with asyncio.timeout(10):
        notice = await anext(m.workflows.notices("b"))
    assert isinstance(notice, StepStarted)
    assert (notice.step_id, notice.kind, notice.name) == ("2", "gate", "Ship it?")


async def test_a_resume_is_previewed_without_resuming(m: Maos) -> None:
    handle = await m.workflows.start(buying, id="b")
    await eventually(lambda: outside.seen)
    found = await m.workflows.preview("b", workflow=buying)
    assert (found.definition, found.is_refused, found.unknown) == ("same", False, ["1"])
    gone = await m.workflows.preview("b")  # it is in no register
    assert (gone.definition, gone.is_refused) == ("gone", True)
    assert [(each.step_id, each.next) for each in gone.pending] == [("1", "interrupted")]
    outside.hold.set()
    await handle.pause()


async def test_the_handle_of_a_run_that_has_ended_has_its_result() -> None:
    flow = WorkflowRun(id="b", name="buying", status="completed", result="yes")
    handle: Handle[str] = Handle(flow, buying)
    handle.stop("paused", "too late")
    assert (handle.id, await handle.wait(), await handle.result()) == ("b", flow, "yes")


@pytest.mark.parametrize(
    ("call", "idempotent", "decision"),
    [
        (None, True, BEGIN),
        (None, False, BEGIN),
        (Step(status=DONE), False, RETURN),
        (Step(status=FAILED), True, RETURN),
        (Step(status=STARTED, until_us=9), False, RETRY),
        (Step(status=STARTED), True, REPEAT),
        (Step(status=STARTED), False, RESOLVE),
        (Step(status=UNKNOWN), True, RESOLVE),
    ],
)
def test_what_is_done_about_a_step_follows_from_what_is_recorded(
    call: Step | None, idempotent: bool, decision: str
) -> None:
    """I31: one that was interrupted is called again only if it says that it may be."""
    assert decide(call, idempotent=idempotent) == decision


def test_a_run_whose_code_has_changed_needs_to_be_resumed() -> None:
    assert Status.of(WorkflowRun(id="b", status=CHANGED)).needs_resume
