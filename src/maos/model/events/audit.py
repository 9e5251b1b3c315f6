"""Events of the streams `audit/YEAR-MONTH`: who read or did what over HTTP, from where, and with what result."""

from __future__ import annotations

import msgspec

from maos.model.events.core import EventBase, event


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one caller asked for, once or several times within a short time."""

    principal: str
    """As text; empty for a caller without a valid credential."""
    verb: str
    on: str
    """What it was to be used on: `store`, `run/ID`, `agent/NAME`."""
    what: str
    """The endpoint."""
    outcome: str
    """allowed, denied, or unauthenticated."""
    address: str = ""
    client: str = ""
    """What the program called itself."""
    count: int = 1
    first_us: int
    last_us: int


@event("access_audited")
class AccessAudited(EventBase, frozen=True, kw_only=True):
    """Requests of callers were admitted or refused."""

    entries: list[AuditEntry]
    at_us: int
