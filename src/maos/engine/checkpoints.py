"""Checkpoints of a run: a name for a place in its history, and saved files of everybody who is at work."""

from __future__ import annotations

import re

from maos.clock import Clock
from maos.engine.claims import Held, claim
from maos.engine.recorder import Recorder
from maos.engine.types import RUN
from maos.errors import InvalidInput
from maos.journal.codec import Event
from maos.journal.journal import Journal
from maos.model.attempt import inbox
from maos.model.run import Run, stream

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def check_name(run: Run, name: str) -> str:
    """The name itself if a checkpoint of a run can have it; it also names git refs."""
    if not _NAME.fullmatch(name) or ".." in name or name.endswith((".", ".lock")):
        hint = "use up to 64 letters, digits, dots, dashes, underscores"
        raise InvalidInput(f"{name!r} cannot name a checkpoint", hint=hint)
    if any(each.get("name") == name for each in run.checkpoints):
        raise InvalidInput(f"{run.id} has a checkpoint {name!r} already", hint="choose another name")
    return name


async def make(journal: Journal, clock: Clock, run: Run, name: str) -> bool:
    """A checkpoint of a run; False when it is only asked for, of the engine that carries the run out."""
    check_name(run, name)
    try:
        lease = await claim(journal, clock, stream(run.id), run, is_open=run.is_open, hint="")
    except Held:
        await journal.append(inbox(run.id), Event("checkpoint_asked", {"name": name, "at_us": clock.now_us()}))
        return False
    recorder = Recorder(journal, RUN, run, lease)
    data = {"name": name, "trigger": "asked", "commit": run.commit, "at_us": clock.now_us()}
    try:
        await recorder.append(Event("run_checkpointed", data))
    finally:
        await journal.release(recorder.lease)
    return True
