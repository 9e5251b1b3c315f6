"""Which moment of a run is meant: a checkpoint's name, a version, a position, or a time."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

from maos.cli.arguments import VERSION, WHEN
from maos.clock import to_datetime
from maos.errors import InvalidInput

if TYPE_CHECKING:
    from maos.app import Maos
    from maos.model.run import Run
    from maos.travel.points_in_time import PointInTime, When

MOMENT = "a checkpoint's name, a version such as 12 or -1, @POSITION, or a time such as 10m or 2026-03-01T14:30"
_POSITION = re.compile(r"@([0-9]{1,18})")
_VERSION = re.compile(r"[0-9]{1,18}|(newest)?(-[0-9]{1,18})?")


async def moment(m: Maos, run: Run, text: str | None) -> PointInTime:
    """The moment that is meant; now, if nothing is."""
    return await m.travel.moment(run.id, _when(run, text))


def _when(run: Run, text: str | None) -> When:
    if not text:
        return None
    if any(each.get("name") == text for each in run.checkpoints) or _POSITION.fullmatch(text):
        return text
    if _VERSION.fullmatch(text):
        found = VERSION.convert(text, None, None)
        if not found.number and not found.from_newest:
            raise InvalidInput(f"{run.id} has no version 0", hint=f"its versions are 1 to {run.version}")
        return -found.number if found.from_newest else found.number
    try:
        return to_datetime(WHEN.convert(text, None, None))
    except click.BadParameter:
        hint = f"give {MOMENT}; `maos orchestration checkpoints {run.id}` lists checkpoints"
        raise InvalidInput(f"{run.id} has no moment {text!r}", hint=hint) from None
