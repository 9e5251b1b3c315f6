"""Which run or workflow a person means: its id, or as much of its beginning as tells it from the others.

Only people shorten ids. A program that did would reach `order-71` when it meant an `order-7` that is not there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from maos.errors import InvalidInput

if TYPE_CHECKING:
    from maos.app import Maos
    from maos.journal.journal import Journal

RUN, WORKFLOW_RUN = "run", "workflow"
SHOWN_MAX = 5


class Meant(NamedTuple):
    """What a person means."""

    kind: str
    id: str


async def workflow(m: Maos, given: str) -> Meant | None:
    """The workflow run, or the run of a workflow file, that a person means."""
    return await meant(m.journal, given, WORKFLOW_RUN, RUN)


async def meant(journal: Journal, given: str, *kinds: str) -> Meant | None:
    """The one whose id is that or begins so; a whole id counts before any beginning. InvalidInput for more than one."""
    found = [Meant(*name.split("/", 1)) for kind in kinds async for name in journal.streams(f"{kind}/{given}")]
    found = [each for each in found if each.id == given][:1] or found
    if len(found) > 1:
        could = ", ".join(each.id for each in found[:SHOWN_MAX])
        raise InvalidInput(f"{given!r} could be {could}", hint="give more of the id")
    return found[0] if found else None
