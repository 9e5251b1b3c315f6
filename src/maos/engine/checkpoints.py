"""Checkpoints of a run: a name for a version of it, made by the process that owns the run, or at an interval; and how
often the files of agents are saved: as a setting in the journal says, which every engine uses, else as the settings of
the machine do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

from maos.bus.mailbox import patiently
from maos.clock import Clock
from maos.engine import ownership
from maos.engine.ownership import Held
from maos.engine.streams import RUN, own_run, while_at
from maos.errors import InvalidInput
from maos.journal.journal import Append, Journal
from maos.model.branch import digest
from maos.model.events.commands import CheckpointRequested
from maos.model.events.records import SettingChanged
from maos.model.events.run import RunCheckpointed
from maos.model.message import inbox
from maos.model.run import Run
from maos.patterns import regex
from maos.settings import schema
from maos.settings.schema import CheckpointSettings

NOTICE_S = 10.0
"""How soon a change of how often checkpoints are made is noticed."""
INTERVAL = "settings/save-interval"
"""The stream of the interval that all engines on a journal use."""
_NAME = regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


async def ticks(interval_s: Callable[[], Awaitable[float]]) -> AsyncIterator[None]:
    """Yield whenever an interval is over; it is asked for again and again, so that a change of it counts soon."""
    while True:
        waited_s = 0.0
        while (left_s := await patiently(interval_s) - waited_s) > 0:
            await asyncio.sleep(min(left_s, NOTICE_S))
            waited_s += min(left_s, NOTICE_S)
        yield


async def interval_s(journal: Journal, otherwise_s: float) -> float:
    """The interval that counts now: as last set for all engines, else that of the settings."""
    version = await journal.version(INTERVAL)
    record = await journal.event(INTERVAL, version) if version else None
    return otherwise_s if record is None or record.event.value is None else record.event.value


async def set_interval(journal: Journal, clock: Clock, seconds: float) -> None:
    """Have every engine on this journal, also those that run, save files that often."""
    field = schema.fields()["checkpoint.interval_s"]
    try:
        value = float(field.convert(seconds))
    except ValueError:
        raise InvalidInput(f"the interval cannot be {seconds} seconds", hint=f"give {field.allowed}") from None
    journal.principal.check_may_decide("change a setting")
    await journal.append(INTERVAL, SettingChanged(value=value, by=journal.by, at_us=clock.now_us()))


def is_due(settings: CheckpointSettings, trigger: str, turns: int) -> bool:
    """Whether the files of an agent are saved at the end of a turn, or because an interval is over (R-1002)."""
    if not settings.enabled:
        return False
    if trigger == "timer":
        return settings.frequency in ("every_step", "time_based")
    if settings.frequency == "every_n_steps":
        return turns % settings.steps == 0
    return settings.frequency == "every_step"


def check_name(run: Run, name: str) -> str:
    """The name itself if a checkpoint of a run can have it; it also names git refs."""
    if not _NAME.fullmatch(name) or ".." in name or name.endswith((".", ".lock")):
        hint = "use up to 64 letters, digits, dots, dashes, underscores"
        raise InvalidInput(f"{name!r} cannot name a checkpoint", hint=hint)
    if any(each.name == name for each in run.checkpoints):
        raise InvalidInput(f"{run.id} has a checkpoint {name!r} already", hint="choose another name")
    return name


def made(run: Run, name: str, trigger: str, at_us: int, *, by: str = "", inbox_version: int = 0) -> RunCheckpointed:
    """What records a checkpoint, with a checksum of the state that it names (I13)."""
    return RunCheckpointed(
        name=name,
        trigger=trigger,
        commit=run.commit,
        state=digest(run),
        inbox_version=inbox_version,
        by=by,
        at_us=at_us,
    )


async def make(journal: Journal, clock: Clock, run: Run, name: str, expected: int | None = None) -> bool:
    """A checkpoint of a run; False when it is only requested, of the engine that executes the run."""
    check_name(run, name)
    journal.principal.check_may_decide(f"make a checkpoint of {run.id}")
    try:
        async with own_run(journal, clock, run, expected=expected) as recorder:
            await recorder.append(made(recorder.fold, name, "asked", clock.now_us(), by=journal.by))
    except Held:
        command = CheckpointRequested(name=name, by=journal.by, at_us=clock.now_us())
        await journal.append_all([Append(inbox(run.id), [command]), *while_at(run.id, expected)])
        return False
    return True


async def make_and_wait(journal: Journal, clock: Clock, run: Run, name: str, expected: int | None = None) -> Run:
    """A run with a checkpoint of that name, made here or by the engine that executes it: this waits for it.

    With `expected`, Conflict unless the run is at that version when it is made or requested.
    """

    def is_made(each: Run) -> bool:
        return any(point.name == name for point in each.checkpoints)

    while not await make(journal, clock, run, name, expected):
        expected = None  # it was requested at that version
        while not is_made(run) and not ownership.liveness(run.owner).has_ended:
            await RUN.until(journal, run, is_made)
        if not is_made(run):  # the engine died before it recorded it: it is made here
            run = await RUN.load(journal, run.id) or run
        if is_made(run):
            return run
    return await RUN.load(journal, run.id) or run


async def autosave(
    run: Run, note: Callable[[RunCheckpointed], None], clock: Clock, interval_s: Callable[[], Awaitable[float]]
) -> None:
    """Checkpoint a run that is executed at an interval, if it has changed (R-105).

    Agents make their own, with their files; this one names the place in the history, and the merged work of that time.
    `note` has it recorded by the scheduler, which alone writes to the stream of the run.
    """
    async for _ in ticks(interval_s):
        named = run.checkpoints[-1].version if run.checkpoints else 0
        if run.version > named and run.is_open:
            note(made(run, f"timer-{run.version}", "timer", clock.now_us()))
