"""Workflows that Hypothesis invents and kills, against the plainest thing that could carry them out.

A workflow is a tree of steps, sequences, branches, children and failures that are caught or not. A life ends at some
crash point or within some step; the dead one writes nothing more and has no more effects. The next one goes on.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import maos
from maos.bus.mailbox import Mailbox
from maos.clock import SystemClock
from maos.engine import ownership, recorder
from maos.engine.streams import TYPES, WORKFLOW_RUN
from maos.journal.journal import Journal
from maos.model.workflow import COMPLETED, WorkflowRun
from maos.workflows import (
    NotWaiting,
    StepDefinition,
    StepFailed,
    child,
    children,
    gather,
    parallel,
    record,
    steps,
    unique,
)
from maos.workflows.service import Workflows
from tests.store.oracle import MemoryStore
from tests.workflows.define import workflow

Node = list[Any]
LIVES_MAX = 5


class Killed(BaseException):
    """A life is over."""


class World:
    """What is outside, and the one who kills."""

    def __init__(self) -> None:
        self.effects: Counter[str] = Counter()
        self.left = 0
        self.dead = asyncio.Event()

    def live(self, points: int) -> None:
        """Begin a life of so many crash points; 0: it is not killed."""
        self.left, self.dead = points, asyncio.Event()

    def crash_point(self, name: str) -> None:
        if self.left and not self.dead.is_set():
            self.left -= 1
            if not self.left:
                self.dead.set()
        if self.dead.is_set():
            raise Killed(name)


world = World()


async def act(name: str, fails: bool, turns: int) -> str:
    """What every step does."""
    for _ in range(turns):
        await asyncio.sleep(0)
    world.crash_point("before the effect")
    world.effects[name] += 1
    world.crash_point("after the effect")
    if fails:
        raise ValueError(f"no {name}")
    return name.upper()


once: StepDefinition[..., str] = maos.step(act)
often: StepDefinition[..., str] = maos.step(idempotent=True)(act)


async def perform(node: Node) -> Any:
    """Carry out a tree as a workflow does."""
    kind = node[0]
    if kind == "step":
        _, name, idempotent, fails, turns = node
        return await (often if idempotent else once)(name, fails, turns)
    if kind == "chance":
        return len(unique())
    if kind == "catch":
        try:
            return await perform(node[1])
        except StepFailed as error:
            return f"caught {error.message.rpartition(': ')[2]}"
    if kind == "child":
        return await child(tree, node[1])
    if kind == "sequence":
        return [await perform(each) for each in node[1]]
    if kind == "gather":
        return await gather(*map(perform, node[1]))
    if kind == "tasks":
        return list(await asyncio.gather(*(perform(["catch", each]) for each in node[1])))
    return await parallel(perform, node[1], limit=node[2])


@workflow("tree")
async def tree(node: Node) -> Any:
    return await perform(node)


def naive(node: Node) -> Any:
    """What comes of a tree, with nothing in the way; a failure is raised."""
    kind = node[0]
    if kind == "step":
        if node[3]:
            raise ValueError(f"no {node[1]}")
        return node[1].upper()
    if kind == "chance":
        return 32
    if kind == "catch":
        try:
            return naive(node[1])
        except ValueError as error:
            return f"caught {error}"
    if kind == "child":
        return naive(node[1])
    if kind == "tasks":
        return [naive(["catch", each]) for each in node[1]]
    return [naive(each) for each in node[1]]


def nodes() -> st.SearchStrategy[Node]:
    step = st.tuples(
        st.just("step"), st.just(""), st.booleans(), st.sampled_from([False, False, False, True]), st.integers(0, 3)
    ).map(list)
    leaves = st.one_of(step, step, step, st.just(["chance"]))

    def larger(inner: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
        several = st.lists(inner, min_size=1, max_size=4)
        return st.one_of(
            *(st.tuples(st.just(kind), several).map(list) for kind in ("sequence", "gather", "tasks")),
            st.tuples(st.just("parallel"), several, st.integers(1, 3)).map(list),
            *(st.tuples(st.just(kind), inner).map(list) for kind in ("catch", "child")),
        )

    return st.recursive(leaves, larger, max_leaves=12).map(numbered)


def numbered(node: Node) -> Node:
    """The same tree with names for its steps."""
    names = (f"s{n}" for n in range(1000))

    def named(node: Node) -> Node:
        if node[0] == "step":
            return ["step", next(names), *node[2:]]
        return [
            named(each) if part and isinstance(each, list) and each and isinstance(each[0], str) and each[0] in KINDS
            else [named(one) for one in each] if isinstance(each, list) else each
            for part, each in enumerate(node)
        ]  # fmt: skip

    return named(node)


KINDS = ("step", "chance", "catch", "child", "sequence", "gather", "tasks", "parallel")


@pytest.fixture(autouse=True)
def killer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Crash points are those of the world above, and the dead say no last words."""
    for module in (recorder, children, steps):
        monkeypatch.setattr(module, "crash_point", world.crash_point)
    monkeypatch.setattr(record, "CLOSE_S_MAX", 0.0)


async def attend(workflows: Workflows) -> None:
    """Say what became of steps, as somebody who looks at what is outside."""
    while True:
        async for flow in workflows.all():
            for step_id, call in flow.unknown.items():
                name = call.about["given"].split("'")[1]
                with contextlib.suppress(NotWaiting):
                    if world.effects[name] and "True" in call.about["given"]:
                        await workflows.resolve(flow.id, step_id, "failed", why=f"no {name}")
                    elif world.effects[name]:
                        await workflows.resolve(flow.id, step_id, "done", value=name.upper())
                    else:
                        await workflows.resolve(flow.id, step_id, "again")
        await asyncio.sleep(0.001)


async def one_life(store: MemoryStore, node: Node, points: int) -> WorkflowRun | None:
    """Begin, or go on; None when it was killed."""
    world.live(points)
    journal = Journal(store, TYPES)
    clock = SystemClock()
    async for name in journal.streams("workflow/"):  # what somebody does who sees that the process is gone
        known = await WORKFLOW_RUN.load(journal, name.removeprefix("workflow/"))
        if known is not None:
            await journal.release(ownership.lease_of(known.owner))
    workflows = Workflows(journal, clock, mailbox=Mailbox(journal), attempts=lambda: pytest.fail("there are no agents"))
    attending = asyncio.create_task(attend(workflows))
    living = asyncio.create_task(execute(workflows, node))
    dying = asyncio.create_task(world.dead.wait())
    try:
        await asyncio.wait([living, dying], return_when=asyncio.FIRST_COMPLETED)
        return None if world.dead.is_set() else living.result()
    finally:
        for task in (attending, living, dying):
            task.cancel()
        await asyncio.gather(attending, living, dying, return_exceptions=True)
        await workflows.close()


async def execute(workflows: Workflows, node: Node) -> WorkflowRun:
    return await (await workflows.start(tree, node, id="t")).wait()


async def check(node: Node, kills: list[int]) -> None:
    world.effects.clear()
    store = MemoryStore(SystemClock())
    died = 0
    async with asyncio.timeout(60):
        for points in [*kills, 0]:
            flow = await one_life(store, node, points)
            if flow is not None:
                break
            died += 1
    assert flow is not None
    try:
        expected, status = naive(node), COMPLETED
    except ValueError as error:
        expected, status = str(error), "failed"
    assert flow.status == status, flow.error
    if status == COMPLETED:
        assert flow.result == expected
    else:
        assert flow.error is not None
        assert expected in flow.error["message"]
    idempotent = {each[1]: each[2] for each in steps_of(node)}
    for name, count in world.effects.items():
        assert count <= (1 + died if idempotent[name] else 1), f"{name} was done {count} times in {died + 1} lives"
    await check_records(store)


def steps_of(node: Node) -> Iterator[Node]:
    if node[0] == "step":
        yield node
        return
    for each in node[1:]:
        if isinstance(each, list):
            for one in [each] if each and isinstance(each[0], str) else each:
                yield from steps_of(one)


async def check_records(store: MemoryStore) -> None:
    """I12, I15, I32: folding from the beginning gives what folding on gives, and no call is without an outcome."""
    journal = Journal(store, TYPES)
    async for name in journal.streams("workflow/"):
        id = name.removeprefix("workflow/")
        found = await WORKFLOW_RUN.load(journal, id)
        assert found is not None
        afresh = WorkflowRun(id=id)
        async for each in journal.read(name):
            afresh.apply(each.event)
        assert WORKFLOW_RUN.keep(afresh) == WORKFLOW_RUN.keep(found)
        assert not found.is_open
        for step_id, call in found.steps.items():
            assert call.status in ("done", "failed"), f"call {step_id} of {id} is {call.status}"
            assert not (call.status == "done" and call.error)


STEP = ["step", "s0", False, False, 1]
FAILS = ["step", "s1", True, True, 0]


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(node=nodes(), kills=st.lists(st.integers(1, 25), max_size=LIVES_MAX - 1))
@example(node=["parallel", [STEP, FAILS, ["step", "s2", False, False, 0]], 2], kills=[6, 5])
@example(node=["tasks", [["child", ["chance"]], STEP, ["sequence", [FAILS]]]], kills=[4, 12, 9, 9])
@example(node=["gather", [["child", ["sequence", [STEP]]], ["catch", FAILS]]], kills=[4, 4, 4])
def test_whatever_is_killed_it_ends_as_the_plainest_way_would(node: Node, kills: list[int]) -> None:
    """I29, I31, I32."""
    asyncio.run(check(node, kills))


@pytest.mark.soak
@settings(max_examples=5000, deadline=None, suppress_health_check=list(HealthCheck))
@given(node=nodes(), kills=st.lists(st.integers(1, 40), max_size=8))
def test_the_same_for_long(node: Node, kills: list[int]) -> None:
    asyncio.run(check(node, kills))
