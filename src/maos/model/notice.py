"""Notices about a run that are sent to a person elsewhere (a mail, a chat, a push message), in the stream
`notices/<run>`.

A notice is recorded before it is sent, and then its outcome at each address. Addresses have secrets in them, so none is
recorded: only its number and its scheme.
"""

from __future__ import annotations

from maos.model.events.records import NoticeOutcome, NoticePlanned
from maos.model.status import NoticeStatus
from maos.tuples import NamedTuple


def stream(run: str) -> str:
    """The stream of the notices about a run."""
    return f"notices/{run}"


class RunNotice(NamedTuple):
    """One notice."""

    planned: NoticePlanned
    statuses: dict[str, NoticeStatus]
    """By address; planned where there is nothing here."""
    why: dict[str, str]


class RunNotices:
    """All notices about a run: a fold of their stream."""

    def __init__(self) -> None:
        self.version = 0
        self.by_id: dict[str, RunNotice] = {}

    def apply(self, event: NoticePlanned | NoticeOutcome) -> None:
        """Fold one more event in."""
        self.version += 1
        if isinstance(event, NoticePlanned):
            self.by_id[event.id] = RunNotice(event, {}, {})
            return
        notice = self.by_id[event.id]
        notice.statuses[event.address] = NoticeStatus(event.type.removeprefix("notice_"))
        notice.why[event.address] = event.why

    def unknown(self) -> list[tuple[NoticePlanned, str]]:
        """Notices, and the addresses at which no outcome is recorded for them."""
        return [(each.planned, address) for each in self.by_id.values() for address in each.planned.addresses
                if address not in each.statuses]  # fmt: skip
