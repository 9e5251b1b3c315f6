"""A workflow with everything in it, to be killed: begins it, or goes on with it until it has ended.

python flow_life.py DATABASE SCHEMA EFFECTS

Each effect is a line in a file outside: the key of the step and what it did. An attendant answers the question, sends
the signal, and says what became of steps that nobody knows of, as a person would: by looking into that file.
"""

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import maos
from maos.app import Maos
from maos.workflows import (
    NOT_DONE,
    Found,
    NotWaiting,
    StepFailed,
    child,
    gate,
    gather,
    key,
    parallel,
    signal,
    sleep,
)
from maos_testing.crash import ack

EFFECTS = Path(os.devnull)


def effect(what: str) -> str:
    """Something that can be counted from outside, however the process ends."""
    with EFFECTS.open("a", encoding="ascii") as file:
        file.write(f"{key()} {what}\n")
    return f"{what}!"


def found(step_id: str) -> str | None:
    """What the step of a key did, as seen from outside."""
    for line in EFFECTS.read_text().splitlines() if EFFECTS.exists() else ():
        if line.startswith(f"{step_id} "):
            return line.partition(" ")[2]
    return None


@maos.step(idempotent=True)
async def prepare(what: str) -> str:
    return effect(what)


@maos.step
async def pay(what: str) -> str:
    return effect(what)


def look(what: str) -> Any:
    did = found(key())
    return NOT_DONE if did is None else Found(f"{did}!")


@maos.step(probe=look)
def book(what: str) -> str:
    return effect(what)


@maos.step(retries=1, backoff_s=0.001, idempotent=True)
async def refuse(what: str) -> str:
    effect(what)
    raise ValueError(f"no {what}")


@maos.workflow(name="life-part")
async def part(name: str) -> str:
    return await pay(f"{name}-paid") + str(await signal("confirmed"))


async def branch(name: str) -> list[str]:
    return [await prepare(f"{name}-prepared"), await pay(f"{name}-paid")]


@maos.workflow(name="life-whole")
async def whole() -> list[Any]:
    done: list[Any] = [await prepare("first"), await pay("second"), await book("third")]
    done.append(await gate("Go on?", choices=["yes", "no"]))
    await sleep(0.01)
    done += await gather(branch("a"), child(part, "child", id="whole.part"))
    done += await parallel(book, ["x", "y"], limit=2)
    try:
        await refuse("never")
    except StepFailed as error:
        done.append(str(error))
    return [*done, await signal("last")]


RESULT = [
    "first!", "second!", "third!", "yes", ["a-prepared!", "a-paid!"], "child-paid!sure",
    "x!", "y!", "refuse failed: ValueError: no never", "bye",
]  # fmt: skip
ONCE = ["second", "third", "a-paid", "child-paid", "x", "y"]
IDEMPOTENT = {"first": 1, "a-prepared": 1, "never": 2}
"""How often each is done when nothing is killed."""


async def attend(m: Maos) -> None:
    """Be the person who is asked."""
    while True:
        async for flow in m.workflows.all():
            try:
                for step_id, call in flow.waiting.items():
                    if call.kind == "gate":
                        await m.workflows.answer(flow.id, step_id, "yes")
                    elif call.kind == "signal":
                        value = {"confirmed": "sure", "last": "bye"}[call.name]
                        await m.workflows.signal(flow.id, call.name, value, key=call.name)
                for step_id in flow.unknown:
                    did = found(f"{flow.id}/{step_id}")
                    outcome = ("again", None) if did is None else ("done", f"{did}!")
                    await m.workflows.resolve(flow.id, step_id, outcome[0], value=outcome[1])
            except NotWaiting:
                pass  # it went on meanwhile
        await asyncio.sleep(0.005)


async def live(database: str, schema: str, effects: Path) -> list[Any]:
    """One life; returns the result when it gets through."""
    global EFFECTS  # noqa: PLW0603 - steps have no other way to know it that would not be recorded
    EFFECTS = effects
    how = {"schema": schema, "mark_path": effects.with_name("mark")} if "://" in database else {}
    async with maos.open(database, **how) as m:  # type: ignore[arg-type]
        attending = asyncio.create_task(attend(m))
        try:
            result = await m.workflows.run(whole, id="whole")
        finally:
            attending.cancel()
            await asyncio.gather(attending, return_exceptions=True)
        ack("completed")
        return result


if __name__ == "__main__":
    asyncio.run(live(sys.argv[1], sys.argv[2], Path(sys.argv[3])))
