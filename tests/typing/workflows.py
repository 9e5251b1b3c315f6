"""A user's file, checked by mypy: every line with an `error:` comment is a mistake that mypy must find, no other is."""

from typing import Any, assert_type

import maos
from maos.workflows import Handle, StepDefinition, Workflow, child, parallel


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
    await fetch(7)  # error: [arg-type]
    await pay("much")  # error: [arg-type]
    read("b", limit="two")  # error: [arg-type] [unused-coroutine]
    text: str = await fetch("a")  # error: [assignment]
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
        number: int = await m.workflows.run(order, 7.0)  # error: [arg-type]
        print(number)
