"""A workflow run that failed or was cancelled is retried: finished steps are kept, and its code may be corrected."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

import maos
from maos.app import Maos
from maos.engine import consent
from maos.errors import InvalidInput, NotFound, NotPermitted
from maos.journal.journal import Journal
from maos.model.principal import Principal, PrincipalKind
from maos.model.workflow import Step, WorkflowRun, steps_from, steps_to_retry
from maos.workflows import NotWaiting, StepFailed, WorkflowFailed, agent, child, gather, parallel, signal
from maos_testing.crash import Starter
from tests.workflows import retry_life
from tests.workflows.conftest import Engine
from tests.workflows.define import Outside, eventually, workflow


class Shop:
    """Steps with effects; one of them can be broken and repaired."""

    def __init__(self) -> None:
        self.outside = Outside()
        self.broken: set[str] = set()

    def step(self, **options: Any) -> Any:
        @maos.step(**options)
        async def pay(what: str) -> str:
            self.outside.did(what)
            if what in self.broken:
                raise ValueError(f"{what} is broken")
            return f"paid {what}"

        return pay


@pytest.fixture
def shop() -> Shop:
    return Shop()


async def failed(m: Maos, definition: Any, id: str = "w") -> WorkflowFailed:
    with pytest.raises(WorkflowFailed) as caught:
        await m.workflows.run(definition, id=id)
    return caught.value


async def test_the_failed_step_is_executed_again_and_finished_ones_are_kept(engine: Engine, shop: Shop) -> None:
    pay = shop.step()
    shop.broken = {"b"}

    @workflow("order")
    async def order() -> list[str]:
        return [await pay("a"), await pay("b"), await pay("c")]

    async with engine() as m:
        await failed(m, order)
        run = await m.workflows.get("w")
        assert (run.status, run.error and run.error["step"]) == ("failed", "2")
        shop.broken = set()
        chosen = await m.workflows.retry("w")
        assert (chosen.again, chosen.finished, chosen.kept) == (["2"], [], 1)
        run = await m.workflows.get("w")
        assert (run.status, run.why, run.done, run.retries, run.error) == ("paused", "retry", 1, 1, None)
    async with engine() as m:
        assert await m.workflows.run(order, id="w") == ["paid a", "paid b", "paid c"]
        assert shop.outside.seen == ["a", "b", "b", "c"]
        run = await m.workflows.get("w")
        assert (run.status, run.done, run.is_retry_due) == ("completed", 3, False)
        event = (await m.journal.event("workflow/w", 7)).event  # type: ignore[union-attr]
        assert event.type == "workflow_retried"
        assert event.by == m.journal.by != ""


async def test_a_correction_of_the_function_counts_where_the_kept_steps_are_the_same(
    engine: Engine, shop: Shop
) -> None:
    """A changed definition is refused by `resume`, but not after a retry: that is when code is corrected."""
    pay = shop.step()

    @workflow("order")
    async def order() -> Any:
        first = await pay("a")
        return [first, await pay({}["missing"])]  # type: ignore[index]

    @workflow("order")
    async def corrected() -> Any:
        first = await pay("a")
        return [first, await pay("b"), await pay("c")]

    @workflow("order")
    async def unfit() -> Any:
        return [await pay("other")]

    async with engine() as m:
        assert (await failed(m, order)).type == "KeyError"
        assert (await m.workflows.retry("w")).again == []
        handle = await m.workflows.resume("w", workflow=unfit)
        assert (await handle.wait()).status == "changed"  # nothing was executed
        assert shop.outside.seen == ["a"]
        handle = await m.workflows.resume("w", workflow=corrected)
        assert await handle.result() == ["paid a", "paid b", "paid c"]
        assert shop.outside.seen == ["a", "b", "c"]


async def test_the_failed_step_may_be_another_one_after_a_correction(m: Maos, shop: Shop) -> None:
    pay, other = shop.step(), shop.step(name="other")
    shop.broken = {"b"}

    @workflow("order")
    async def order() -> Any:
        return [await pay("a"), await pay("b")]

    @workflow("order")
    async def corrected() -> Any:
        return [await pay("a"), await other("b2")]

    await failed(m, order)
    await m.workflows.retry("w")
    assert await (await m.workflows.resume("w", workflow=corrected)).result() == ["paid a", "paid b2"]


async def test_all_branches_that_failed_or_were_not_begun_are_executed(m: Maos, shop: Shop) -> None:
    pay = shop.step()
    shop.broken = {"b", "c"}

    @workflow("order")
    async def order() -> list[str]:
        await pay("first")
        return await parallel(pay, ["a", "b", "c", "d", "e"], limit=2)

    await failed(m, order)
    assert shop.outside.seen[:3] == ["first", "a", "b"]
    assert "e" not in shop.outside.seen
    before = list(shop.outside.seen)
    shop.broken = set()
    await m.workflows.retry("w")
    assert await m.workflows.run(order, id="w") == [f"paid {each}" for each in "abcde"]
    assert "a" not in shop.outside.seen[len(before) :]
    assert "first" not in shop.outside.seen[1:]


async def test_a_failure_that_the_function_handled_is_kept(m: Maos, shop: Shop) -> None:
    pay = shop.step()
    shop.broken = {"card", "post"}

    @workflow("order")
    async def order() -> str:
        try:
            paid = await pay("card")
        except StepFailed:
            paid = await pay("cash")
        return f"{paid}, {await pay('post')}"

    await failed(m, order)
    shop.broken = set()
    assert (await m.workflows.retry("w")).again == ["3"]
    assert await m.workflows.run(order, id="w") == "paid cash, paid post"
    assert shop.outside.seen == ["card", "cash", "post", "post"]


async def test_steps_after_the_failed_one_are_executed_again_only_if_a_person_says_so(m: Maos, shop: Shop) -> None:
    """What was undone after a failure is not taken for done: a person decides where to begin again."""
    pay = shop.step()
    shop.broken = {"ship"}

    @workflow("order")
    async def order() -> str:
        await pay("charge")
        try:
            return str(await pay("ship"))
        except StepFailed:
            await pay("refund")
            raise

    await failed(m, order)
    with pytest.raises(InvalidInput, match=r"step 2, pay, failed, and w executed more .*: 3 .*maos retry w/2"):
        await m.workflows.retry("w")
    with pytest.raises(NotFound, match="no step '9'"):
        await m.workflows.retry("w", step="9")
    foreseen = await m.workflows.retry("w", step="1", dry_run=True)
    assert (foreseen.again, foreseen.finished, foreseen.kept) == (["1", "2", "3"], ["1", "3"], 0)
    assert (await m.workflows.get("w")).status == "failed"
    shop.broken = set()
    await m.workflows.retry("w", step="1")
    assert await m.workflows.run(order, id="w") == "paid ship"
    assert shop.outside.seen == ["charge", "ship", "refund", "charge", "ship"]


async def test_a_signal_that_a_forgotten_step_received_is_received_again(m: Maos, shop: Shop) -> None:
    pay = shop.step()
    shop.broken = {"b"}

    @workflow("order")
    async def order() -> str:
        value = await signal("go", type=int)
        return f"{value} {await pay('b')}"

    handle = await m.workflows.start(order, id="w")
    await m.workflows.signal("w", "go", 7)
    with pytest.raises(WorkflowFailed):
        await handle.result()
    shop.broken = set()
    await m.workflows.retry("w", step="1")
    assert await m.workflows.run(order, id="w") == "7 paid b"


async def test_a_child_is_retried_with_its_parent(m: Maos, shop: Shop) -> None:
    pay = shop.step()
    shop.broken = {"b"}

    @workflow("part")
    async def part() -> str:
        return f"{await pay('a')} {await pay('b')}"

    @workflow("whole")
    async def whole() -> str:
        return await child(part)

    error = await failed(m, whole)
    assert error.step_id == "1"
    assert "ValueError" in str(error)
    shop.broken = set()
    await m.workflows.retry("w")
    assert await m.workflows.run(whole, id="w") == "paid a paid b"
    assert shop.outside.seen == ["a", "b", "b"]
    assert (await m.workflows.get("w.1")).retries == 1


async def test_a_cancelled_workflow_is_retried(m: Maos, shop: Shop) -> None:
    """And commands that were sent before do not count: it would be cancelled at once."""
    pay = shop.step()

    @workflow("order")
    async def order() -> str:
        first = await pay("a")
        return f"{first} {await signal('go')}"

    handle = await m.workflows.start(order, id="w")
    await eventually(lambda: handle.run.waiting)
    await m.workflows.cancel("w")
    assert (await handle.wait()).status == "cancelled"
    await m.workflows.retry("w")
    handle = await m.workflows.resume("w", workflow=order)
    await m.workflows.signal("w", "go", "on")
    assert await handle.result() == "paid a on"
    assert shop.outside.seen == ["a"]


async def test_a_retry_is_refused_where_there_is_nothing_to_retry(m: Maos, shop: Shop) -> None:
    pay = shop.step()
    shop.broken = {"b"}

    @workflow("order")
    async def order() -> str:
        return f"{await pay('a')} {await pay('b')}"

    await failed(m, order)
    await m.workflows.retry("w")
    with pytest.raises(InvalidInput, match=r"is paused, and nothing of it has failed.*workflow resume w"):
        await m.workflows.retry("w")
    shop.broken = set()
    await m.workflows.run(order, id="w")
    with pytest.raises(InvalidInput, match="is completed"):
        await m.workflows.retry("w")


async def test_a_step_that_another_retry_has_finished_meanwhile_is_not_skipped(
    m: Maos, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    pay = shop.step()
    shop.broken = {"b"}

    @workflow("order")
    async def order() -> list[str]:
        return [await pay("a"), await pay("b"), await pay("c")]

    await failed(m, order)
    check = consent.check

    async def check_late(journal: Journal, id: str) -> None:
        """Another person is faster: the step succeeds, and a later one fails."""
        monkeypatch.setattr(consent, "check", check)
        shop.broken = {"c"}
        await m.workflows.retry("w")
        with pytest.raises(WorkflowFailed):
            await (await m.workflows.resume("w", workflow=order)).result()
        await check(journal, id)

    monkeypatch.setattr(consent, "check", check_late)
    with pytest.raises(NotWaiting, match=r"no failed step '2'"):
        await m.workflows.skip("w", "2", value="by hand")
    run = await m.workflows.get("w")
    assert (run.status, run.steps["2"].result) == ("failed", "paid b")


async def test_without_its_steps_a_workflow_is_not_executed_from_the_start(m: Maos, shop: Shop) -> None:
    pay = shop.step()
    shop.broken = {"b"}

    @workflow("order")
    async def order() -> str:
        return f"{await pay('a')} {await pay('b')}"

    await failed(m, order)
    await m.workflows.forget(["w"])
    with pytest.raises(InvalidInput, match="were removed by a cleanup"):
        await m.workflows.retry("w")
    assert shop.outside.seen == ["a", "b"]


async def test_a_failed_step_is_skipped_with_a_value(m: Maos, shop: Shop) -> None:
    pay = shop.step()
    shop.broken = {"b"}

    @workflow("order")
    async def order() -> list[str]:
        return [await pay("a"), await pay("b"), await pay("c")]

    await failed(m, order)
    with pytest.raises(NotWaiting, match=r"no failed step '1'.*2 \(pay\)"):
        await m.workflows.skip("w", "1")
    await m.workflows.skip("w", "2", value="by hand")
    assert await m.workflows.run(order, id="w") == ["paid a", "by hand", "paid c"]
    assert shop.outside.seen == ["a", "b", "c"]
    run = await m.workflows.get("w")
    assert run.done == 3
    assert run.steps["2"].by == m.journal.by


async def test_serving_executes_what_was_retried(m: Maos, shop: Shop) -> None:
    pay = shop.step()
    shop.broken = {"b"}

    async def function() -> str:
        return str(await pay("b"))

    order = maos.workflow(name="served-retry")(function)
    await failed(m, order)
    shop.broken = set()
    assert await m.workflows.resume_all() == []
    await m.workflows.retry("w")
    [handle] = await m.workflows.resume_all()
    assert await handle.result() == "paid b"


async def test_the_agent_of_a_failed_step_is_resumed_with_the_corrected_command(m: Maos, tmp_path: Path) -> None:
    def defined(command: str) -> Any:
        @workflow("build")
        async def build() -> str:
            return await agent(argv=["sh", "-c", command], cwd=str(tmp_path), in_place=True)

        return build

    await failed(m, defined("exit 3"))
    await m.workflows.retry("w")
    handle = await m.workflows.resume("w", workflow=defined("echo built"))
    assert await handle.result() == "built"
    assert [each.number for each in await m.agents.history("w.1")] == [1, 2]
    assert (await m.agents.get("w.1")).order["argv"] == ["sh", "-c", "echo built"]


async def test_a_task_that_the_author_started_is_retried(m: Maos, shop: Shop) -> None:
    pay = shop.step()
    shop.broken = {"beside"}

    @workflow("order")
    async def order() -> list[str]:
        beside = asyncio.create_task(pay("beside"))
        await pay("a")
        await pay("b")
        return [await beside]

    await failed(m, order)
    shop.broken = set()
    assert (await m.workflows.retry("w")).again == ["1~1.1"]
    assert await m.workflows.run(order, id="w") == ["paid beside"]
    assert sorted(shop.outside.seen) == ["a", "b", "beside", "beside"]


async def test_several_branches_are_chosen_by_their_place() -> None:
    def run(**steps: str) -> WorkflowRun:
        return WorkflowRun(id="w", status="failed", steps={
            name.replace("_", ":").replace("x", "."): Step(status=status) for name, status in steps.items()
        })  # fmt: skip

    nested = run(**{"1": "done", "2_1x1": "failed", "2_2x1": "done", "2_2x2_1x1": "failed", "2_2x2_2x1": "failed"})
    assert steps_to_retry(nested) == ["2:1.1", "2:2.2:1.1", "2:2.2:2.1"]
    assert steps_from(nested, "2:2.2:1.1") == ["2:2.2:1.1"]
    assert steps_from(nested, "2:2.1") == ["2:2.1", "2:2.2:1.1", "2:2.2:2.1"]
    assert steps_from(nested, "2") == ["2:1.1", "2:2.1", "2:2.2:1.1", "2:2.2:2.1"]
    handled = run(**{"1_1x1": "failed", "1_2x1": "done", "2": "failed"})
    assert steps_to_retry(handled) == ["2"]


async def test_where_it_failed_is_kept_and_raised(engine: Engine) -> None:
    """B4: a traceback that names the author's line; without frames of maos, without secrets, and bounded."""

    @maos.step
    def scan(what: str) -> str:
        token = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
        raise ValueError(f"cannot scan {what} with {token}")  # this line

    @workflow("scans")
    async def scans() -> Any:
        return await gather(scan("a"))

    async with engine() as m:
        error = await failed(m, scans)
        assert "# this line" in error.traceback
        assert "in scans" in error.traceback
        assert (error.type, error.step_id) == ("StepFailed", "1:1.1")
        assert error.traceback in "".join(error.__notes__)
    async with engine() as m:  # by another process, from the record alone
        run = await m.workflows.get("w")
        kept = run.steps["1:1.1"].error or {}
        assert "# this line" in kept["traceback"]
        assert "ghp_a1B2" not in str(kept)
        assert "maos/workflows" not in kept["traceback"] + (run.error or {})["traceback"]
        assert "# this line" in (await failed(m, scans)).traceback

    @maos.step
    def deep(number: int = 0) -> int:
        return deep.function(number + 1)  # type: ignore[no-any-return]

    @workflow("deeply")
    async def deeply() -> Any:
        return await deep()

    async with engine() as m:
        assert (await failed(m, deeply, "d")).step_id == "1"
        assert len((await m.workflows.get("d")).steps["1"].error["traceback"]) < 30_000  # type: ignore[index]


async def test_an_agent_cannot_retry_or_remove(engine: Engine, shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    pay = shop.step()
    shop.broken = {"b"}

    @workflow("order")
    async def order() -> str:
        return str(await pay("b"))

    async with engine() as m:
        await failed(m, order)
        monkeypatch.setattr(m.journal, "principal", Principal(PrincipalKind.AGENT, "w.1", attempt="w.1.1"))
        for attempted in (m.workflows.retry("w"), m.workflows.skip("w", "1"), m.workflows.remove("w")):
            with pytest.raises(NotPermitted):
                await attempted


async def test_a_removed_workflow_leaves_the_lists(m: Maos, shop: Shop) -> None:
    pay = shop.step()
    shop.broken = {"b"}

    @workflow("part")
    async def part() -> str:
        return str(await pay("b"))

    @workflow("whole")
    async def whole() -> str:
        return await child(part)

    await failed(m, whole)
    assert (await m.workflows.remove("w", dry_run=True)).worktrees == []
    assert len(await m.workflows.list()) == 2
    await m.workflows.remove("w")
    assert await m.workflows.list() == []
    assert (await m.workflows.get("w")).error is not None  # its history stays
    for attempted in (m.workflows.retry("w"), m.workflows.remove("w")):
        with pytest.raises(InvalidInput, match="was removed"):
            await attempted


@pytest.mark.parametrize(("point", "is_recorded"), [("before", False), ("after", True)])
async def test_a_retry_that_is_killed_is_recorded_once_or_not_at_all(
    tmp_path: Path, point: str, *, is_recorded: bool
) -> None:
    """Killed before it is recorded, the workflow is still failed, and the retry is repeated. Killed after, it is
    executed. Finished steps are executed once."""
    database, name = tmp_path / "maos.db", f"workflow:{point} workflow_retried"
    with Starter() as starter:
        argv = [sys.executable, retry_life.__file__, database]
        life = await asyncio.to_thread(starter.start(argv, crash_at=1, crash_name=name).wait, 1)
    assert (life.died_at, life.acks) == (name, ["failed"])
    async with maos.open(database) as m:
        assert bool((await m.workflows.get("w")).retries) is is_recorded
    assert await retry_life.live(database) == ["paid a", "paid b", "paid c"]
    assert Path(f"{database}.seen").read_text().split() == ["a", "b", "b", "c"]


JOBS = """
import dataclasses

@dataclasses.dataclass
class Count:
    files: int
    names: list[str]

def count(context):
    return Count(2, ["a", context.task])

def nothing(context):
    return None

def fails(context):
    return {}["missing"]  # this line
"""


class Count(msgspec.Struct):
    files: int
    names: list[str]


async def test_an_agent_that_is_a_function_gives_what_it_returned_or_where_it_failed(m: Maos, tmp_path: Path) -> None:
    """B4: the data itself and not its JSON; `type` makes it what the caller wants."""
    (tmp_path / "jobs.py").write_text(JOBS)
    options: dict[str, Any] = {"kind": "python", "cwd": str(tmp_path), "in_place": True}

    @workflow("counting")
    async def counting() -> Any:
        plain = await agent("b", argv=["jobs:count"], **options)
        typed = await agent("b", argv=["jobs:count"], type=Count, **options)
        nothing = await agent(argv=["jobs:nothing"], **options)
        said = await agent(argv=["echo", "[1, 2]"], cwd=str(tmp_path), in_place=True, type=list[int])
        return [plain, typed.names, nothing, said]

    assert await m.workflows.run(counting) == [{"files": 2, "names": ["a", "b"]}, ["a", "b"], None, [1, 2]]

    @workflow("failing")
    async def failing() -> Any:
        return await agent(argv=["jobs:fails"], **options)

    error = await failed(m, failing)
    assert (error.step_id, error.message) == ("1", "w.1 failed: failed: KeyError: 'missing'")
    run = await m.workflows.get("w")
    assert "# this line" in (run.cause or {})["traceback"]
    assert "# this line" in (await m.agents.get("w.1")).traceback
