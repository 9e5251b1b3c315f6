"""The kinds of events that attempts and inboxes are made of."""

from __future__ import annotations

from maos.journal.codec import EventType
from maos.model.attempt import EVENT_TYPES, INBOX_TYPES

TYPES = tuple(EventType(name) for name in (*EVENT_TYPES, *INBOX_TYPES))
