"""Which moment of a run is meant: a checkpoint's name, a version, a position, or a time."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

from maos.cli.arguments import VERSION, WHEN
from maos.errors import InvalidInput

if TYPE_CHECKING:
    from maos.app import Maos
    from maos.engine.moments import Moment
    from maos.model.run import Run

MOMENT = "a checkpoint's name, a version such as 12 or -1, @POSITION, or a time such as 10m or 2026-03-01T14:30"
_POSITION = re.compile(r"@([0-9]{1,18})")
_VERSION = re.compile(r"[0-9]{1,18}|(newest)?(-[0-9]{1,18})?")


async def moment(m: Maos, run: Run, text: str | None) -> Moment:
    """The moment that is meant; now, if nothing is."""
    from maos.engine import moments

    if not text:
        return await moments.newest(m.journal, run)
    if any(each.get("name") == text for each in run.checkpoints):
        return await moments.named(m.journal, run, text)
    if _VERSION.fullmatch(text):
        found = VERSION.convert(text, None, None)
        number = run.version - found.number if found.from_newest else found.number
        return await moments.at_version(m.journal, run, number)
    if match := _POSITION.fullmatch(text):
        return await moments.at_position(m.journal, run, int(match[1]))
    try:
        time_us = WHEN.convert(text, None, None)
    except click.BadParameter:
        hint = f"give {MOMENT}; `maos orchestration checkpoints {run.id}` lists checkpoints"
        raise InvalidInput(f"{run.id} has no moment {text!r}", hint=hint) from None
    return await moments.at_time(m.journal, run, time_us)


async def last_checkpoint(m: Maos, run: Run) -> Moment:
    """The moment of the newest checkpoint of a run; one of a branch that was given up is not meant."""
    from maos.engine import moments
    from maos.model.branch import leads_here

    found = [each["version"] for each in run.checkpoints if leads_here(run, each["version"])]
    if not found:
        hint = f"say where to go with --to: {MOMENT}"
        raise InvalidInput(f"{run.id} has no checkpoints", hint=hint)
    return await moments.at_version(m.journal, run, found[-1])
