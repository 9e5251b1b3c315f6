"""What people were told about runs, and a test that they can be told."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple

from maos.model.notice import RunNotice
from maos.model.run import Run
from maos.model.status import NoticeStatus
from maos.runs import notify
from maos.runs.notify import Address
from maos.runs.service import Runs
from maos.runs.status import is_executing

TITLE, BODY = "maos: a test", "If you can read this, maos can tell you when a run needs you."
BEING_SENT = "being sent"


class NoticeInfo(NamedTuple):
    """Something that people were told about a run."""

    run: str
    id: str
    what: str
    title: str
    addresses: dict[str, str]
    """What came of it, by address."""
    why: dict[str, str]
    time_us: int


class Tested(NamedTuple):
    """Whether an address takes notices."""

    address: str
    sent: bool
    why: str | None


def test(addresses: Sequence[Address]) -> list[Tested]:
    """Send a test to every address. Waits for the network."""
    return [Tested(each.name, not why, why or None) for each in addresses for why in [notify.send(each, TITLE, BODY)]]


async def notices(runs: Runs) -> AsyncIterator[NoticeInfo]:
    """What people were told about all runs, run by run."""
    async for run in runs.all():
        for each in await runs.notices(run.id):
            yield _info(run, each)


def _info(run: Run, notice: RunNotice) -> NoticeInfo:
    pending = BEING_SENT if is_executing(run) else NoticeStatus.UNKNOWN
    statuses = {each: str(notice.status(each)) for each in notice.addresses}
    statuses = {each: pending if status == NoticeStatus.PLANNED else status for each, status in statuses.items()}
    return NoticeInfo(run.id, notice.id, notice.what, notice.title, statuses, notice.why, notice.at_us)
