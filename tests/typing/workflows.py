"""A user's file, checked by mypy: every line with an `error:` comment is a mistake that mypy must find, no other is."""

from datetime import datetime
from typing import Any, assert_type

import maos
from maos.workflows import Handle, StepDefinition, Workflow, agent, child, gate, now, parallel, signal


@maos.step
async def fetch(url: str) -> int:
    return len(url)


@maos.step
def read(path: str, limit: int = 10) -> bytes:
    return path.encode()[:limit]


@maos.step(retries=3, idempotent=True)
async def pay(amount: float) -> str:
    return f"receipt {amount}"


@maos.step(timeout_s=5.0)
def charge(amount: float) -> list[str]:
    return [str(amount)]


@maos.workflow
async def order(amount: float) -> dict[str, int]:
    assert_type(await fetch("a"), int)
    assert_type(await read("b", limit=2), bytes)
    assert_type(await pay(amount), str)
    assert_type(await charge(amount), list[str])
    assert_type(await parallel(fetch, ["a", "b"]), list[int])
    assert_type(await child(refund, "x"), bool)
    assert_type(await agent("Write the invoice", kind="claude"), str)
    assert_type(await agent(kind="python", argv=["jobs:count"]), Any)
    assert_type(await agent(kind="python", argv=["jobs:count"], type=list[int]), list[int])
    assert_type(await gate("Pay?", choices=["yes", "no"]), str)
    assert_type(await signal("paid", type=float), float)
    assert_type(await signal("packed", type=list[str]), list[str])
    assert_type(await signal("anything"), Any)
    assert_type(now(), datetime)
    await fetch(7)  # error: [arg-type]
    await pay("much")  # error: [arg-type]
    read("b", limit="two")  # error: [arg-type] [unused-coroutine]
    text: str = await fetch("a")  # error: [assignment]
    count: int = await agent("Count the invoices")  # error: [assignment]
    paid: int = await signal("paid", type=str)  # error: [arg-type]
    done: str = await child(refund, "x")  # error: [arg-type]
    print(count, paid, done)
    return {text: await read("b")}  # error: [dict-item]


@maos.workflow(version="2")
async def refund(id: str) -> bool:
    return bool(await charge(float(id)))


@maos.workflow  # error: [arg-type]
def no_coroutine(id: str) -> bool:
    return bool(id)


async def main() -> None:
    a_step: StepDefinition[..., int] = fetch
    a_workflow: Workflow[[str], bool] = refund
    print(a_step, a_workflow)
    async with maos.open(":memory:") as m:
        assert_type(await m.workflows.run(order, 7.0), dict[str, int])
        handle = await m.workflows.start(refund, "7")
        assert_type(handle, Handle[bool])
        assert_type(await handle.result(), bool)
        assert_type(await (await m.workflows.resume("w-1")).result(), Any)
        assert_type(await (await m.workflows.resume("w-1", workflow=refund)).result(), bool)
        assert_type(await (await m.workflows.start_with(refund, ["7"], {})).result(), bool)
        assert_type((await handle.wait()).status, str)
        assert_type((await m.workflows.retry("w-1")).again, list[str])
        number: int = await m.workflows.run(order, 7.0)  # error: [arg-type]
        print(number)
