"""An agent's state: its usual shape, and what kinds of events change it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from maos.model.changes import Op
from maos.model.events.core import EVENTS
from maos.model.events.state import StateEventBase

PREFIX = "agent/"

SNAPSHOT_KINDS = ("full", "incremental", "checkpoint")
COMPRESSIONS = ("zstd", "lz4", "snappy", "gzip", "none")
"""What a snapshot may be compressed with, the usual one first."""
STRATEGIES = ("snapshot", "merge", "delete")
"""How a history may be compacted."""

EVENT_TYPES = tuple(name for name, each in EVENTS.items() if issubclass(each, StateEventBase))

CRITICAL = frozenset(
    {"instance_created", "error_occurred", "rolled_back", "restored", "migration_completed", "compacted"}
)
"""Types a compaction keeps one by one."""


def stream(agent: str) -> str:
    """The stream an agent's state lives in."""
    return PREFIX + agent


def new_state(**fields: Any) -> dict[str, Any]:
    """The usual shape of an agent's state, with some fields given."""
    state: dict[str, Any] = {
        "status": "idle",
        "configuration": {},
        "capabilities": [],
        "resources": {},
        "execution": {"task": None, "history": [], "memory": {}, "process": None, "communication": {}},
        "performance": {"completion_rate": None, "average_time_s": None, "error_rate": None, "utilisation": None},
    }
    state.update(fields)
    return state


def event_type(ops: Iterable[Op]) -> str:
    """The type of event that says best what some operations do."""
    kinds = {_type_of(op) for op in ops}
    return kinds.pop() if len(kinds) == 1 else "state_updated"


def _type_of(op: Op) -> str:
    gone = op[0] == "del"
    match op[1].split("/"):
        case ["", "status"]:
            return "status_changed"
        case ["", "configuration", *_]:
            return "configuration_updated"
        case ["", "capabilities", *_]:
            return "capability_removed" if gone else "capability_added"
        case ["", "resources", *_]:
            return "resource_deallocated" if gone else "resource_allocated"
        case ["", "execution", "task"]:
            return "task_completed" if gone or op[2] is None else "task_assigned"
    return "state_updated"
