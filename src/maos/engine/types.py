"""The streams that engines own, and the events they and inboxes are made of."""

from __future__ import annotations

from maos.engine.recorder import Kind
from maos.journal.codec import EventType
from maos.model import attempt

ATTEMPT = Kind("attempt", attempt.Attempt, format=attempt.FORMAT, quiet=("attempt_heard",))

TYPES = tuple(EventType(name) for name in (*attempt.EVENT_TYPES, *attempt.INBOX_TYPES))
