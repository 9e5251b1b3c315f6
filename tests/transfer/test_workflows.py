"""Workflows travel too: what was recorded is not called again, and nothing goes on by itself."""

from pathlib import Path

import pytest

import maos
from maos.app import Maos
from maos.engine import consent
from maos.transfer.bundle_import import MORE, NEW, SAME
from maos.workflows import agent, child, signal
from tests.transfer import runs
from tests.transfer.runs import Parts, bring, exported
from tests.workflows.define import Outside, eventually, workflow


@pytest.fixture
def outside() -> Outside:
    return Outside()


@pytest.fixture
def definition(outside: Outside):  # type: ignore[no-untyped-def]
    """A workflow with a step, children with and without names of their own, an agent, and a signal to wait for."""

    @maos.step
    async def charge(amount: int) -> str:
        outside.did(amount)
        return f"charged {amount}"

    @workflow("part")
    async def part(amount: int) -> str:
        return await charge(amount)

    @workflow("whole")
    async def whole() -> list[str]:
        first = await child(part, 1)
        second = await child(part, 2, id="named")
        told = await agent(argv=["echo", "hello"], cwd="/", in_place=True)
        await signal("go")
        return [first, second, told, await charge(3)]

    return whole


async def until_it_waits(m: Maos, definition: object) -> None:
    handle = await m.workflows.start(definition, id="w-1")  # type: ignore[arg-type]
    await eventually(lambda: handle.run.waiting)


async def test_a_workflow_goes_on_elsewhere_once_a_person_agrees(
    tmp_path: Path, folder: Path, definition: object, outside: Outside
) -> None:
    """R-702, R-1001: steps with an outcome are not called again."""
    async with maos.open(tmp_path / "a.db", home=tmp_path / "a") as here:
        await until_it_waits(here, definition)
    async with maos.open(tmp_path / "a.db", home=tmp_path / "a") as here:
        bundle, made = await runs.export(here, "w-1")
    names = {each.name for each in made.manifest.streams}
    assert "workflow/w-1" in names
    assert sum(name.startswith("workflow/") for name in names) == 3
    assert any(name.startswith("attempt/w-1.") for name in names)
    assert made.manifest.kind == "workflow"
    assert outside.seen == [1, 2]
    async with maos.open(tmp_path / "b.db", home=tmp_path / "b") as there:
        assert (await bring(there, bundle, folder)).what == NEW
        flow = await there.workflows.get("w-1")
        assert (flow.status, flow.options["where"]) == ("running", {}), "no file is loaded because a stranger names it"
        assert await there.workflows.resume_all() == []
        with pytest.raises(consent.NotAgreed):
            await there.workflows.resume("w-1", workflow=definition)  # type: ignore[arg-type]
        with pytest.raises(consent.NotAgreed):
            await there.workflows.run(definition, id="w-1")  # type: ignore[arg-type]
        await consent.agree(there.journal, there._clock, "w-1")
        await there.workflows.signal("w-1", "go")
        result = await there.workflows.run(definition, id="w-1")  # type: ignore[arg-type]
        assert result == ["charged 1", "charged 2", "hello", "charged 3"]
        assert outside.seen == [1, 2, 3]
        back = await exported(there, "w-1")
    async with maos.open(tmp_path / "a.db", home=tmp_path / "a") as here:
        assert (await bring(here, back, folder)).what == MORE
        assert (await here.workflows.get("w-1")).status == "completed"
        assert (await bring(here, back, folder)).what == SAME


async def test_a_workflow_whose_calls_were_forgotten_travels_with_its_result(
    here: Maos, there: Maos, folder: Path, outside: Outside
) -> None:
    """What a compaction notes of itself stays behind."""

    @maos.step
    async def charge(amount: int) -> int:
        outside.did(amount)
        return 1 << 60

    @workflow("short")
    async def short() -> int:
        return await charge(1)

    await here.workflows.run(short, id="w-2")
    await here.workflows.forget(["w-2"])
    bundle = await exported(here, "w-2")
    await bring(there, bundle, folder)
    flow = await there.workflows.get("w-2")
    assert (flow.status, flow.result) == ("completed", 1 << 60)
    assert (await there.verify()).ok
    assert (await bring(there, bundle, folder)).what == SAME
    assert (await bring(here, bundle, folder)).what == SAME


async def test_a_child_of_nobody_is_refused(here: Maos, there: Maos, folder: Path) -> None:
    """A stranger cannot claim a name by calling it a child."""

    @workflow("alone")
    async def alone() -> int:
        return 1

    await here.workflows.run(alone, id="w-3")
    await here.workflows.run(alone, id="victim")
    bundle = await exported(here, "w-3")
    for wrong in ({"name": 7}, {"options": []}, {"parent": None}, {"code": {}}, {"at_us": "now"}):
        stranger = Parts(bundle)
        stranger.line("workflow_started").update(wrong)
        with pytest.raises(maos.Corrupt):
            await bring(there, stranger.bytes(), folder)
    stranger = Parts(bundle)
    begun = maos.Event("step_started", {"step_id": "9", "kind": "step", "name": "x", "at_us": 1})
    stranger.add("workflow/w-3", begun, maos.Event("step_retried", {"step_id": "9", "error": "x"}))
    with pytest.raises(maos.Corrupt, match="cannot be decoded"):
        await bring(there, stranger.bytes(), folder)
    stranger = Parts(bundle)
    records = [each async for each in here.journal.read("workflow/victim")]
    stranger.add("workflow/victim", *(maos.Event(each.type, {**each.data, "parent": "w-3"}) for each in records))
    with pytest.raises(maos.Corrupt, match="'workflow/victim' is not one of w-3"):
        await bring(there, stranger.bytes(), folder)


async def test_a_child_of_that_name_is_not_another_run_here(here: Maos, there: Maos, folder: Path) -> None:
    """Nor can one: what a stranger's workflow calls its child may be something else here."""

    @workflow("inner")
    async def inner() -> int:
        return 1

    @workflow("outer")
    async def outer() -> int:
        return await child(inner, id="mine")

    await here.workflows.run(outer, id="w-4")
    bundle = await exported(here, "w-4")
    mine = await there.runs.create({"tasks": [{"name": "x", "command": ["true"]}]}, folder=folder, id="mine")
    with pytest.raises(maos.InvalidInput, match="something else called mine here: run/mine"):
        await bring(there, bundle, folder)
    assert await there.runs.get("mine") == mine
