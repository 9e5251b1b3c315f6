"""What a person is told elsewhere about a run (a mail, a chat, a push message), in the stream `notices/<run>`.

What is to be told is recorded before it is sent, and then what became of it at each address. Addresses have secrets in
them, so none is recorded: only its number and its scheme.
"""

from __future__ import annotations

import msgspec

from maos.model.events.records import NoticeFailed, NoticeOutcome, NoticePlanned, NoticeSent, NoticeUnknown

PLANNED = "planned"
"""To be sent, and shown as *being sent*. Sent, failed or, when the process dies, unknown."""
SENT = "sent"
"""The address has taken it. For good."""
FAILED = "failed"
"""The address did not take it, after some tries. For good."""
UNKNOWN = "unknown"
"""It was being sent when the process died. It is not sent twice."""


def stream(run: str) -> str:
    """The stream of the notices about a run."""
    return f"notices/{run}"


class RunNotice(msgspec.Struct, kw_only=True):
    """One thing to tell."""

    id: str
    """Made of what it is about, so that nothing is told twice."""
    what: str
    title: str
    body: str
    addresses: list[str]
    """Number and scheme of each."""
    at_us: int
    became: dict[str, str] = {}
    """What became of it, by address; nobody knows as long as there is nothing here."""
    why: dict[str, str] = {}

    def status(self, address: str) -> str:
        """What became of it at an address."""
        return self.became.get(address, PLANNED)


_BECAME: dict[type[NoticeOutcome], str] = {NoticeSent: SENT, NoticeFailed: FAILED, NoticeUnknown: UNKNOWN}


class RunNotices:
    """Everything that was told about a run: a fold of its stream."""

    def __init__(self) -> None:
        self.version = 0
        self.by_id: dict[str, RunNotice] = {}

    def apply(self, event: NoticePlanned | NoticeOutcome) -> None:
        """Fold one more event in."""
        self.version += 1
        if isinstance(event, NoticePlanned):
            self.by_id[event.id] = RunNotice(**msgspec.structs.asdict(event))
            return
        notice = self.by_id[event.id]
        notice.became[event.address] = _BECAME[type(event)]
        notice.why[event.address] = event.why

    def unknown(self) -> list[tuple[RunNotice, str]]:
        """Notices of whose fate at an address nothing is recorded."""
        return [(each, address) for each in self.by_id.values() for address in each.addresses
                if each.status(address) == PLANNED]  # fmt: skip
