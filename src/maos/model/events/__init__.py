"""Every event there is, as a class: the only definition of what is stored.

`EVENTS` has all of them by the names that they are stored under.
"""

from maos.model.events import access, attempt, audit, commands, facts, messages, records, run, state, workflow
from maos.model.events.core import EVENTS, EventBase

__all__ = [
    "EVENTS", "EventBase", "access", "attempt", "audit", "commands", "facts", "messages", "records", "run", "state",
    "workflow",
]  # fmt: skip
