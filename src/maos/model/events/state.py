"""Events of an agent's state, in the stream `agent/<name>`.

An operation is one of `["set", path, value]` (the path `""` sets the whole state), `["del", path]`, which removes a
field or the last item of a list, and `["ext", path, index, items]`, which adds items to a list that has `index` items.
Paths are JSON pointers (RFC 6901). An operation that does not fit the state is damage.
"""

from __future__ import annotations

from typing import Annotated, Any

from maos.model.events.core import EventBase, event
from maos.model.events.parts import EXACT, Replaced


class StateEventBase(EventBase, frozen=True, kw_only=True):
    """What all events of an agent's state have."""

    ops: Annotated[list[Any], EXACT]
    """The operations. `AgentStates` removes secrets from them before it computes the checksum."""
    source: str = ""
    """Who made the change."""
    meta: dict[str, Any] = {}
    """Metadata: any JSON object."""
    cause: str = ""
    """Causation: the id of what led to it."""
    corr: str = ""
    """Correlation: an id that connects several events."""
    critical: bool = False
    """Whether compaction keeps it."""


@event("state_updated")
class StateUpdated(StateEventBase, frozen=True, kw_only=True):
    """A state changes in a way that no other type names."""

    sum: str
    """The checksum of the state after the operations, 32 hex digits."""


TYPES = {
    "instance_created": "An agent is created.",
    "status_changed": "Only `/status` changes.",
    "configuration_updated": "Only `/configuration` changes.",
    "capability_added": "Only `/capabilities` changes: one is added.",
    "capability_removed": "Only `/capabilities` changes: one is removed.",
    "task_assigned": "Only `/execution/task` changes, to a value.",
    "task_completed": "Only `/execution/task` changes, to nothing.",
    "error_occurred": "A caller reports an error (`type=`).",
    "resource_allocated": "Only `/resources` changes: one is added.",
    "resource_deallocated": "Only `/resources` changes: one is removed.",
    "snapshot_created": "A snapshot is taken; `meta` has its id, kind, version and trigger. It changes nothing.",
    "migration_started": "A caller reports that the agent begins to move (`type=`).",
    "migration_completed": "A caller reports that the agent has moved (`type=`).",
    "rolled_back": "A rollback; `meta.to` is the version whose state it restores.",
    "restored": "A snapshot is restored; `meta` has its id and version.",
}
"""Types that differ from `state_updated` in their names alone, and what each says."""

for _name, _meaning in TYPES.items():

    @event(_name)
    class _Named(StateUpdated, frozen=True, kw_only=True):
        __doc__ = _meaning

    _Named.__name__ = _name.title().replace("_", "")


@event("compacted")
class Compacted(StateEventBase, frozen=True, kw_only=True):
    """A compaction has replaced events by fewer ones. It changes nothing."""

    sum: str = ""
    replaced: list[Replaced]


class CompactionBase(StateEventBase, frozen=True, kw_only=True):
    """What the events have that a compaction writes in place of others."""

    sum: str
    since_us: int
    """The time of the first event that it stands for."""


@event("merged")
class EventsMerged(CompactionBase, frozen=True, kw_only=True):
    """Stands for several events after a compaction; `meta.events` is how many."""


@event("baseline")
class Baseline(CompactionBase, frozen=True, kw_only=True):
    """Stands for everything before a version after a compaction."""


StateEvent = StateUpdated | Compacted | CompactionBase
"""Every event of an agent's state."""
