"""What the state API takes and gives back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from maos.ids import event_id
from maos.model import agent as agents
from maos.model import changes
from maos.model import checksum as checksums
from maos.model.changes import Change, MapView, Op, copied
from maos.tuples import NamedTuple

SHOWN_CHARS_MAX = 500
"""How much of its data the representation of a state has."""


class State(msgspec.Struct, eq=False):
    """An agent's data at a version. It never changes; an update makes another one.

    Example::

        state = await m.state.get("reviewer")
        print(state.version, state.data["status"], state.checksum)
    """

    agent: str
    version: int
    _data: dict[str, Any]
    total: int
    """The checksum as a number."""
    time_us: int
    source: str
    """Who made the last change."""
    type: str
    """The type of the last event."""

    @property
    def data(self) -> MapView:
        """The data, to be read only: `state.data["status"]`."""
        return MapView(self._data)

    @property
    def checksum(self) -> str:
        """Identifies the data: equal states have equal checksums."""
        return checksums.text(self.total)

    def to_dict(self) -> dict[str, Any]:
        """A copy of the data that is the caller's own.

        Example::

            state = await m.state.get("reviewer")
            draft = state.to_dict()
            draft["status"] = "busy"
        """
        return copied(self._data)  # type: ignore[no-any-return]

    def raw(self) -> dict[str, Any]:
        """The data itself, for maos' own folds; altering it breaks the cache."""
        return self._data

    def __repr__(self) -> str:
        data = repr(self._data)
        data = data if len(data) <= SHOWN_CHARS_MAX else f"{data[:SHOWN_CHARS_MAX]}…"
        return f"State(agent={self.agent!r}, version={self.version}, data={data}, checksum={self.checksum!r})"


class Update(msgspec.Struct, eq=False):
    """What an update did."""

    version: int
    _before: State
    state: State
    """The state after it."""
    _ops: Sequence[Op]
    position: int
    """The place of its event in the journal; 0 when nothing had to change."""

    @property
    def previous(self) -> int:
        """The version before it."""
        return self._before.version

    @property
    def checksum(self) -> str:
        """The checksum of the state after it."""
        return self.state.checksum

    @property
    def changes(self) -> tuple[Change, ...]:
        """What it changed: path, old, new and kind."""
        return tuple(changes.changes(self._before.raw(), self._ops))

    def __repr__(self) -> str:
        return f"Update(version={self.version}, previous={self.previous}, checksum={self.checksum!r})"


class StateEvent(NamedTuple):
    """A change of an agent's state, with everything that is known about it."""

    agent: str
    version: int
    """Its sequence number, without gaps, and the version of the state after it."""
    spans: int
    type: str
    time_us: int
    changes: tuple[Change, ...]
    checksum: str
    source: str
    metadata: Mapping[str, Any]
    causation: str | None
    correlation: str | None
    critical: bool
    position: int

    @property
    def id(self) -> str:
        """The event's name."""
        return event_id(agents.stream(self.agent), self.version)

    @property
    def replayable(self) -> bool:
        """Whether each of its versions can be replayed alone; not after a compaction merged several."""
        return self.spans == 1


class StateVersion(NamedTuple):
    """A line of an agent's history."""

    version: int
    type: str
    time_us: int
    source: str
    changes: int
    checksum: str
    spans: int


class Replay(NamedTuple):
    """What replaying a range of events came to."""

    state: State
    events: int
    duration_us: int
    verified: bool
    """Whether every recorded checksum on the way was reproduced."""
    warnings: tuple[str, ...]


class Peek(NamedTuple):
    """The head of a state and the last entries of one long list, read without the rest."""

    agent: str
    version: int
    checksum: str
    head: MapView
    """The state without its long lists."""
    elided: Mapping[str, int]
    """The long lists that were left out, with their lengths."""
    entries: list[Any]
    start: int
    """The index of the first of `entries`."""
    length: int


class StateSummary(NamedTuple):
    """One agent in a list."""

    agent: str
    version: int
    status: Any
    type: str
    source: str
    time_us: int


class StatePreview(NamedTuple):
    """What a rollback or a restore would do."""

    target: str
    """The version or the snapshot whose state it leads to."""
    newest: int
    """The version that it was computed from."""
    changes: Sequence[Change]
    warnings: tuple[str, ...] = ()


class Retention(NamedTuple):
    """How long a snapshot is kept. Permanent and critical ones are never removed by themselves.

    Example::

        await m.state.snapshot("reviewer", retention=maos.Retention(permanent=True))
    """

    expires_us: int | None = None
    permanent: bool = False
    critical: bool = False


class SnapshotInfo(NamedTuple):
    """A snapshot of an agent's state."""

    id: str
    agent: str
    version: int
    kind: str
    """full (all data), incremental (changes since its base) or checkpoint (a name for the version)."""
    trigger: str
    name: str
    time_us: int
    source: str
    checksum: str
    compression: str
    base: str | None
    bytes_plain: int
    bytes_stored: int
    duration_us: int
    retention: Retention

    @property
    def ratio(self) -> float:
        """Plain size over stored size."""
        return self.bytes_plain / self.bytes_stored if self.bytes_stored else 1.0


class SnapshotRestored(NamedTuple):
    """What restoring a snapshot did."""

    version: int
    previous: int
    snapshot: str
    integrity_verified: bool
    downtime_us: int
    """How long readers could not see a state: none, they see the old one until the new one is there."""
    duration_us: int
    warnings: tuple[str, ...]


class Compaction(NamedTuple):
    """What a compaction did, or would do."""

    agent: str
    strategy: str
    through: int
    """Versions up to here were compacted."""
    events_before: int
    """How many events stood for these versions before..."""
    events_after: int
    """...and how many do now."""
    snapshot: str | None
    version: int | None
    """The version of the event that records it; None after a dry run or when there was nothing to do."""


class CacheStatistics(msgspec.Struct, frozen=True):
    """How the cache is doing."""

    hits: int
    misses: int
    refreshes: int
    """Hits that only needed the events since."""
    evictions: int
    entries: int
    bytes: int
    mean_access_us: float

    @property
    def hit_rate(self) -> float:
        """The share of reads that needed no loading from the start."""
        reads = self.hits + self.refreshes + self.misses
        return (self.hits + self.refreshes) / reads if reads else 0.0
