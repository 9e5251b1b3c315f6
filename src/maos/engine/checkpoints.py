"""Checkpoints of a run: a name for a place in its history, and saved files of everybody who is at work."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable

from maos.bus.mailbox import patiently
from maos.clock import Clock
from maos.engine import ownership
from maos.engine.claims import Held, claim
from maos.engine.recorder import Recorder
from maos.engine.types import RUN
from maos.errors import InvalidInput
from maos.journal.journal import Journal
from maos.model.branch import digest
from maos.model.events.commands import CheckpointRequested
from maos.model.events.run import RunCheckpointed
from maos.model.message import inbox
from maos.model.run import Run, stream

NOTICE_S = 10.0
"""How soon a change of how often checkpoints are made is noticed."""
LOOK_EVERY_S = 1.0

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def check_name(run: Run, name: str) -> str:
    """The name itself if a checkpoint of a run can have it; it also names git refs."""
    if not _NAME.fullmatch(name) or ".." in name or name.endswith((".", ".lock")):
        hint = "use up to 64 letters, digits, dots, dashes, underscores"
        raise InvalidInput(f"{name!r} cannot name a checkpoint", hint=hint)
    if any(each.name == name for each in run.checkpoints):
        raise InvalidInput(f"{run.id} has a checkpoint {name!r} already", hint="choose another name")
    return name


def made(run: Run, name: str, trigger: str, at_us: int, *, inbox_version: int = 0) -> RunCheckpointed:
    """What records a checkpoint, with a checksum of the state that it names (I13)."""
    return RunCheckpointed(
        name=name,
        trigger=trigger,
        commit=run.commit,
        state=digest(run),
        inbox_version=inbox_version,
        at_us=at_us,
    )


async def make(journal: Journal, clock: Clock, run: Run, name: str) -> bool:
    """A checkpoint of a run; False when it is only asked for, of the engine that carries the run out."""
    check_name(run, name)
    try:
        lease = await claim(journal, clock, stream(run.id), run, is_open=run.is_open, hint="")
    except Held:
        await journal.append(inbox(run.id), CheckpointRequested(name=name, at_us=clock.now_us()))
        return False
    recorder = Recorder(journal, RUN, run, lease)
    try:
        await recorder.append(made(run, name, "asked", clock.now_us()))
    finally:
        await journal.release(recorder.lease)
    return True


async def made_by_anybody(journal: Journal, clock: Clock, run: Run, name: str) -> Run:
    """A run with a checkpoint of that name, made by us or by the engine that carries it out: this waits for it."""

    def is_made(each: Run) -> bool:
        return any(point.name == name for point in each.checkpoints)

    while not await make(journal, clock, run, name):
        while not is_made(run) and not ownership.liveness(run.owner).has_ended:
            await until(journal, run, is_made)
        if not is_made(run):  # whoever was asked died before they took note: it is for us to do
            run = await RUN.load(journal, run.id) or run
        if is_made(run):
            return run
    return run


async def until(journal: Journal, run: Run, condition: Callable[[Run], bool]) -> None:
    """Apply new events to a run until a condition holds, or for a second: then the caller can check its owner."""

    async def follow() -> None:
        async for record in journal.follow_stream(stream(run.id), after=run.version):
            run.apply(record.event)
            if condition(run):
                return

    if condition(run):
        return
    try:
        await asyncio.wait_for(follow(), LOOK_EVERY_S)
    except TimeoutError:
        pass


async def now_and_then(
    run: Run, note: Callable[[RunCheckpointed], None], clock: Clock, interval_s: Callable[[], Awaitable[float]]
) -> None:
    """Make checkpoints of a run that is carried out, for as long as this runs, whenever something has happened (R-105).

    Agents make their own, with their files; this one names the place in the history, and the merged work of that time.
    `note` has it recorded by whoever carries the run out: nobody else writes to its stream.
    """
    waited_s = 0.0
    while True:
        left_s = await patiently(interval_s) - waited_s
        if left_s > 0:
            await asyncio.sleep(min(left_s, NOTICE_S))
            waited_s += min(left_s, NOTICE_S)
            continue
        waited_s = 0.0
        named = run.checkpoints[-1].version if run.checkpoints else 0
        if run.version > named and run.is_open:
            note(made(run, f"timer-{run.version}", "timer", clock.now_us()))
