"""Definitions that changed since a workflow began: detected, explained, and ways on (R-1003)."""

import ast
import gc
import itertools
import linecache
from typing import Any

import pytest

import maos
from maos.app import Maos
from maos.workflows import StepFailed, Workflow, WorkflowChanged, definition, gather, patched, signal
from maos.workflows.definition import find
from tests.workflows.conftest import Engine
from tests.workflows.define import Outside, eventually, workflow

outside = Outside()


@pytest.fixture(autouse=True)
def fresh() -> None:
    outside.seen.clear()


@maos.step
async def work(what: str) -> str:
    return str(outside.did(what))


@maos.step
async def other(what: str) -> str:
    return str(outside.did(f"other {what}"))


async def begin(engine: Engine, flow: Workflow[..., Any], id: str = "w") -> None:
    """Run one until it waits for a signal, and let go of it; the signal is sent then."""
    async with engine() as m:
        handle = await m.workflows.start(flow, id=id)
        await eventually(lambda: handle.run.waiting)
        await handle.pause()
        await m.workflows.signal(id, "go")


@workflow("order")
async def first() -> list[str]:
    """Does this."""
    found = [await work("a")]
    await signal("go")
    return [*found, await work("b")]


@workflow("order")
async def reworded() -> list[str]:
    found = [await work("a")]
    # a comment, another docstring and other blanks are no change
    await signal(
        "go",
    )

    return [*found, await work("b")]


@workflow("order")
async def longer() -> list[str]:
    found = [await work("a")]
    await signal("go")
    return [*found, await work("b"), await work("c")]


@workflow("order")
async def renamed() -> list[str]:
    found = [await other("a")]
    await signal("go")
    return [*found, await work("b")]


@workflow("order")
async def reargued() -> list[str]:
    found = [await work("A")]
    await signal("go")
    return [*found, await work("b")]


@workflow("order")
async def swallowing() -> list[str]:
    found = []
    for each in ("A", "z"):
        try:
            found.append(await work(each))
        except Exception:  # noqa: BLE001 - as people write
            found.append("never mind")
    return found


@workflow("order")
async def shorter() -> list[str]:
    return []


async def test_comments_and_docstrings_are_no_change(engine: Engine) -> None:
    await begin(engine, first)
    async with engine() as m:
        handle = await m.workflows.resume("w", workflow=reworded)
        assert await handle.result() == ["a", "b"]
    assert outside.seen == ["a", "b"]


async def test_changed_code_is_refused_before_anything_is_done(engine: Engine) -> None:
    await begin(engine, first)
    async with engine() as m:
        for go_on in (m.workflows.resume("w", workflow=longer), m.workflows.run(longer, id="w")):
            with pytest.raises(WorkflowChanged, match="the definition of order has changed since w was begun") as told:
                await go_on
            assert "patched()" in (told.value.hint or "")
        assert (await m.workflows.get("w")).status == "paused"
        with pytest.raises(maos.InvalidInput, match="on_change cannot be 'guess'"):
            await m.workflows.resume("w", workflow=longer, on_change="guess")
    assert outside.seen == ["a"]


async def test_changed_code_that_makes_the_same_calls_goes_on_if_asked_to(engine: Engine) -> None:
    await begin(engine, first)
    async with engine() as m:
        handle = await m.workflows.resume("w", workflow=longer, on_change="replay")
        assert await handle.result() == ["a", "b", "c"]
    assert outside.seen == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("now", "why"),
    [
        (renamed, "step 1 was the step 'work', and is the step 'other' now"),
        (reargued, "step 1, the step 'work', was given other arguments before"),
        (swallowing, "step 1, the step 'work', was given other arguments before"),
        (shorter, "it ended without the steps 1, 2 that are recorded"),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
async def test_code_that_makes_other_calls_is_stopped_and_can_be_put_right(
    engine: Engine, now: Workflow[..., Any], why: str
) -> None:
    """Whatever the function does about the error; nothing is done by the wrong code, and the right one goes on."""
    await begin(engine, first)
    async with engine() as m:
        handle = await m.workflows.resume("w", workflow=now, on_change="replay")
        with pytest.raises(WorkflowChanged, match=why):
            await handle.result()
        flow = await m.workflows.get("w")
        assert (flow.status, flow.is_open) == ("changed", True)
        assert why in flow.why
    assert outside.seen == ["a"]
    async with engine() as m:
        assert await (await m.workflows.resume("w", workflow=first)).result() == ["a", "b"]
    assert outside.seen == ["a", "b"]


async def test_code_that_differs_from_run_to_run_is_found_out(engine: Engine) -> None:
    """Side effects outside of steps are the one thing that an author has to avoid."""
    counter = itertools.count()

    @workflow("careless")
    async def careless() -> None:
        await work(f"{next(counter)}")
        await signal("go")

    await begin(engine, careless)
    async with engine() as m:
        flow = await (await m.workflows.resume("w", workflow=careless)).wait()
    assert flow.status == "changed"
    assert "belongs into a step" in str(WorkflowChanged(flow.why, hint="belongs into a step"))
    assert outside.seen == ["0"]


async def test_who_goes_on_with_everything_does_not_run_the_same_code_in_vain_again(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    counter = itertools.count()

    @workflow("careless")
    async def careless() -> None:
        await work(f"{next(counter)}")
        await signal("go")

    monkeypatch.setitem(definition._workflows, ("careless", ""), careless)
    async with engine() as m:
        handle = await m.workflows.start(careless, id="w")
        await eventually(lambda: handle.run.waiting)
    async with engine() as m:
        (handle,) = await m.workflows.resume_all()
        flow = await handle.wait()
        assert flow.status == "changed"
        assert await m.workflows.resume_all() == []
        assert (await m.workflows.get("w")).version == flow.version
        assert (await (await m.workflows.resume("w", workflow=careless)).wait()).claims == 2
    async with engine() as m:  # what the function calls may be other code in another process
        assert len(await m.workflows.resume_all()) == 1


async def test_when_one_branch_has_changed_the_others_begin_nothing_more(engine: Engine) -> None:
    async def branch(*names: str) -> None:
        for name in names:
            await work(name)

    @workflow("two")
    async def before() -> None:
        await gather(branch("a"), branch("b"))
        await signal("go")

    @workflow("two")
    async def after() -> None:
        await gather(branch("A"), branch("b", "c"))
        await signal("go")

    await begin(engine, before)
    async with engine() as m:
        flow = await (await m.workflows.resume("w", workflow=after, on_change="replay")).wait()
    assert flow.status == "changed"
    assert sorted(outside.seen) == ["a", "b"]


# --- patches ----------------------------------------------------------------------------------------------------


@workflow("order")
async def with_patch() -> list[str]:
    found = [await work("a")]
    if patched("tell-sales"):
        found.append(await work("sales"))
    await signal("go")
    return [*found, await work("b")]


async def test_a_patch_is_done_by_new_workflows_and_left_out_by_old_ones(engine: Engine) -> None:
    await begin(engine, first, "old")
    await begin(engine, with_patch, "new")
    async with engine() as m:
        old = await m.workflows.resume("old", workflow=with_patch, on_change="replay")
        assert await old.result() == ["a", "b"]
        assert await (await m.workflows.resume("new", workflow=with_patch)).result() == ["a", "sales", "b"]
    assert outside.seen == ["a", "a", "sales", "b", "b"]


async def test_a_patch_before_branches_is_left_out_by_old_ones(engine: Engine) -> None:
    """Though nothing that came after the branches is recorded."""

    @workflow("order")
    async def before() -> list[str | None]:
        return await gather(work("a"), signal("go"))

    @workflow("order")
    async def after() -> list[str | None]:
        more = [await work("sales")] if patched("tell-sales") else []
        return [*await gather(work("a"), signal("go")), *more]

    await begin(engine, before)
    async with engine() as m:
        handle = await m.workflows.resume("w", workflow=after, on_change="replay")
        assert await handle.result() == ["a", None]
    assert outside.seen == ["a"]


async def test_a_patch_after_everything_that_was_done_is_done(engine: Engine) -> None:
    @workflow("order")
    async def after() -> list[str]:
        found = [await work("a")]
        await signal("go")
        more = [await work("sales")] if patched("tell-sales") else []
        return [*found, *more, await work("b")]

    await begin(engine, first)
    async with engine() as m:
        handle = await m.workflows.resume("w", workflow=after, on_change="replay")
        assert await handle.result() == ["a", "sales", "b"]


async def test_outside_of_a_workflow_everything_is_patched() -> None:
    assert patched("anything")


# --- versions ----------------------------------------------------------------------------------------------------


@maos.workflow(name="versioned", version="1")
async def version_1() -> str:
    await signal("go")
    return await work("one")


@maos.workflow(name="versioned", version="2")
async def version_2() -> str:
    await signal("go")
    return await work("two")


async def test_what_was_begun_with_one_version_is_finished_with_it(engine: Engine) -> None:
    await begin(engine, version_1, "old")
    await begin(engine, version_2, "new")
    await begin(engine, version_1, "asked")
    async with engine() as m:
        assert await m.workflows.run(version_2, id="old") == "one"
        assert await m.workflows.run(version_2, id="new") == "two"
        assert await (await m.workflows.resume("asked")).result() == "one"


async def test_a_version_that_is_gone_is_named(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    await begin(engine, version_1)
    monkeypatch.delitem(definition._workflows, ("versioned", "1"))
    async with engine() as m:
        with pytest.raises(maos.NotFound, match="no workflow 'versioned' version '1'") as told:
            await m.workflows.resume("w")
        assert told.value.hint == "it has versions 2"
    with pytest.raises(maos.NotFound, match="no workflow 'unheard-of' is defined in this process"):
        find("unheard-of")


def test_two_definitions_of_one_name_are_refused() -> None:
    with pytest.raises(maos.InvalidInput, match="there is a workflow 'versioned' already, in tests"):

        @maos.workflow(name="versioned", version="1")
        async def twin() -> None: ...


def test_a_workflow_has_to_be_async() -> None:
    with pytest.raises(maos.InvalidInput, match="is not an async function"):
        maos.workflow(lambda: None)  # type: ignore[arg-type,return-value]


async def test_a_child_whose_code_changed_stops_its_parent_with_the_reason(engine: Engine) -> None:
    @workflow("inner")
    async def inner() -> str:
        await signal("go")
        return await work("a")

    @workflow("inner")
    async def inner_now() -> str:
        await signal("go")
        return await work("A")

    inners = [inner]

    @workflow("outer")
    async def outer() -> str:
        try:
            return str(await maos.workflows.child(inners[-1], id="i"))
        except StepFailed:
            return "failed"

    async with engine() as m:
        handle = await m.workflows.start(outer, id="o")
        await eventually(lambda: handle.run.steps)
        executions = m.workflows._engine._executions
        await eventually(lambda: "i" in executions and executions["i"].run.waiting)
        await m.workflows.signal("i", "go")
    inners.append(inner_now)
    async with engine() as m:
        flow = await (await m.workflows.resume("o", workflow=outer)).wait()
        assert flow.status == "changed"
        assert "the definition of inner has changed since i was begun" in flow.why
        handle = await m.workflows.resume("o", workflow=outer, on_change="replay")
        assert await handle.result() == "A"
    assert outside.seen == ["A"]


async def test_the_code_of_a_definition_is_the_same_in_memory_and_without_its_source(m: Maos) -> None:
    made: dict[str, Any] = {}
    exec("async def generated():\n    return 7\n", made)
    flow = Workflow(made["generated"], name="generated", version="")
    assert len(flow.code) == 16
    assert await m.workflows.run(flow) == 7


def taking(signature: str, body: str = "await work('a'); return await signal('go')") -> Workflow[..., Any]:
    """A workflow with another signature; its source is to be had, as of any file."""
    source = f"async def taking({signature}):\n    {body}\n"
    name = f"<taking {signature}>"
    made: dict[str, Any] = {"work": work, "signal": signal}
    exec(compile(source, name, "exec"), made)
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    return Workflow(made["taking"], name="taking", version="")


async def test_a_changed_signature_is_a_change_and_no_failure(engine: Engine) -> None:
    """R-1003: before anything is taken, whichever way it is gone on with; and the old one still finishes it."""
    async with engine() as m:
        handle = await m.workflows.start(taking("a"), 1, id="w")
        await eventually(lambda: handle.run.waiting)
    async with engine() as m:
        version = (await m.workflows.get("w")).version
        with pytest.raises(WorkflowChanged, match="the definition of taking has changed since w was begun"):
            await m.workflows.resume("w", workflow=taking("a, b"))
        for signature, why in (("a, b", "missing a required argument"), ("a: list[str]", "is not what its signature")):
            with pytest.raises(WorkflowChanged, match=f"does not fit what w was begun with.*{why}"):
                await m.workflows.resume("w", workflow=taking(signature), on_change="replay")
        assert (await m.workflows.get("w")).version == version
        await m.workflows.signal("w", "go", "on")
        assert await (await m.workflows.resume("w", workflow=taking("a: int"))).result() == "on"


async def test_a_result_of_another_type_than_before_is_a_change_and_no_failure(engine: Engine) -> None:
    kinds = itertools.chain([int], itertools.repeat(dict))

    @workflow("typed")
    async def typed() -> object:
        async def counted() -> object:
            return 1

        counted.__annotations__["return"] = next(kinds)
        await maos.step(counted)()
        return await signal("go")

    await begin(engine, typed)
    async with engine() as m:
        flow = await (await m.workflows.resume("w", workflow=typed)).wait()
    assert (flow.status, flow.error) == ("changed", None)
    assert "what the step counted returned is not what its signature says" in flow.why


def test_the_digest_of_code_is_the_same_with_every_python() -> None:
    """Else a newer Python would refuse what an older one began. What it was made of is spelled out."""
    body = "x = [f'{a!r:>{b}}', -1.5, 'ü', *c] if a is None else {**b}; return await x[0](a, *c, key=lambda y=1: y)"
    assert taking("a, /, b=2, *c, d: int = 3, **e", body).code == "fd10e9235dd7d6e3"
    assert taking("a, /, b=2, *c, d=3, **e", body).code == "fd10e9235dd7d6e3"
    others = [taking(each, body).code for each in ("a, b=2, *c, d=3, **e", "a, /, b=3, *c, d=3, **e", "z")]
    assert len({"fd10e9235dd7d6e3", *others}) == 4


def test_a_traceback_printed_while_a_function_is_read_changes_nothing() -> None:
    """It is parsed too, to mark what it shows; Python 3.11 then says that the function could not be."""

    class Finalised:
        def __init__(self) -> None:
            self.itself = self  # so that only the collector ends it

        def __del__(self) -> None:
            ast.parse("[one for one in (1, (2, (3, 4)))]")

    source = "async def long():\n" + "    await step(1, [2, (3, 4)])\n" * 500
    known = ast.dump(definition._parse(source))
    before = gc.get_threshold()
    gc.set_threshold(20)
    try:
        Finalised()
        assert ast.dump(definition._parse(source)) == known
    finally:
        gc.set_threshold(*before)
