"""What a store is: durable, ordered facts, and the little coordination that cannot be facts.

A store does not know what a task, an agent or a message is; bodies are bytes to it. What a method returns is on
disk. New features add event types and folds, not methods here.

Words: a *position* is a place in the whole journal, a *version* a place in one stream (both start at 1). A *lease* is
the right to act on a name until a time, with a token that only grows. A *document* is disposable: a snapshot, a view
or a cursor that could be built again from the events.
"""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

GENESIS = bytes(32)
"""The hash before the first event of every stream."""


class RawEvent(NamedTuple):
    """A fact to be written: its type, the format of its body, and the body as stored."""

    type: str
    format: int
    body: bytes


class Write(NamedTuple):
    """Events for the end of one stream, if it is at the expected version (any version when None)."""

    stream: str
    events: Sequence[RawEvent]
    expected: int | None = None


class Replacement(NamedTuple):
    """One event that stands for the versions first..last of a stream from now on (compaction)."""

    stream: str
    first: int
    last: int
    event: RawEvent


class Document(NamedTuple):
    """A disposable thing under (kind, key); a body of None deletes it, an older version never overwrites a newer."""

    kind: str
    key: str
    version: int
    body: bytes | None


class Key(NamedTuple):
    """The id that makes a repeated append harmless, and the fingerprint of what it stands for."""

    id: str
    fingerprint: bytes


class Lease(NamedTuple):
    """The right to act on a name until a time, in database time."""

    name: str
    owner: str
    token: int
    expires_us: int


class Appended(NamedTuple):
    """Where an append went: the position of its last event and the new version of each stream written."""

    position: int
    versions: tuple[int, ...]
    repeated: bool = False
    time_us: int = 0
    """The time recorded with the events; 0 when repeated."""

    @property
    def version(self) -> int:
        """The new version of the (only, or last) stream."""
        return self.versions[-1]


class Recorded(NamedTuple):
    """An event as it stands in the journal."""

    position: int
    stream: str
    version: int
    spans: int
    """How many versions it stands for: 1, or more after compaction."""
    type: str
    format: int
    time_us: int
    token: int
    """The fencing token it was written under; 0 when under none."""
    body: bytes
    hash: bytes


class Health(NamedTuple):
    """What the database itself reports."""

    versions: int
    """How many versions it holds, those that compaction merged included; equals the head of an undamaged journal."""
    problems: tuple[str, ...]
    notes: tuple[str, ...]
    """Things that were missing or repaired when it was opened."""


class Store(Protocol):
    """Durable, ordered facts. See the module's text for the promises."""

    place: str
    """Where the data is, for messages; never a password."""

    def append(
        self,
        *writes: Write,
        key: Key | None = None,
        under: Lease | None = None,
        documents: Sequence[Document] = (),
        replacing: Sequence[Replacement] = (),
    ) -> Coroutine[Any, Any, Appended]:
        """All or nothing, on disk when it returns.

        Raises Conflict, LeaseLost, KeyReused (nothing written) or StoreUnavailable (see its `written`).
        A repeated key returns the first reply, with `repeated` set, and writes nothing.
        """
        ...

    async def read(self, stream: str, *, after: int = 0, limit: int = 256, backwards: bool = False) -> list[Recorded]:
        """Events of a stream with a version above `after`, oldest first; or below `after`, newest first, backwards."""
        ...

    async def read_log(self, *, after: int = 0, limit: int = 256) -> list[Recorded]:
        """Events of all streams with a position above `after`, in order and without gaps to be filled later."""
        ...

    async def version(self, stream: str) -> int:
        """The newest version of a stream; 0 when it does not exist."""
        ...

    async def head(self) -> int:
        """The newest position; 0 in an empty journal."""
        ...

    async def streams(self, *, prefix: str = "", after: str = "", limit: int = 256) -> list[str]:
        """Names of streams, sorted by their characters' code points."""
        ...

    async def wait(self, *, after: int, timeout_s: float) -> int:
        """Returns the newest position as soon as it is above `after`, or whatever it is at the time-out."""
        ...

    async def acquire(self, name: str, *, owner: str, ttl_s: float) -> Lease | None:
        """A new lease with a larger token than any before, or None while another one is valid."""
        ...

    async def renew(self, lease: Lease, *, ttl_s: float) -> Lease | None:
        """The lease with a later end, or None when it is lost: expired, released or taken."""
        ...

    async def release(self, lease: Lease) -> None:
        """Ends a lease early; harmless when it is lost already."""
        ...

    async def load(self, kind: str, key: str) -> Document | None:
        """One document."""
        ...

    async def scan(self, kind: str, *, prefix: str = "", after: str = "", limit: int = 256) -> list[Document]:
        """Documents of one kind, sorted by key."""
        ...

    async def copy_to(self, path: Path) -> int:
        """A consistent copy beside the running store; returns the position it holds."""
        ...

    async def check(self) -> Health:
        """What the database says of its own integrity."""
        ...

    async def close(self) -> None:
        """Finishes what was accepted and lets go of everything."""
        ...
