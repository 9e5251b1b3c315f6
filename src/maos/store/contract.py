"""The store contract: durable, ordered events, and the coordination that events cannot express.

A store does not know what a task, an agent or a message is; bodies are bytes to it. When a method returns, its effect
is on disk. New features add event types and folds, not methods here.

A *position* is the number of an event in the whole journal, a *version* its number in one stream (both start at 1). A
*lease* is the right to act on a name until a time, with a token that only grows. A *document* is disposable: a
snapshot, a view or a cursor that can be rebuilt from the events.
"""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

GENESIS = bytes(32)
"""The hash before the first event of every stream."""


class RawEvent(NamedTuple):
    """An event to be written: its type, the format of its body, and the body as stored."""

    type: str
    format: int
    body: bytes


class Write(NamedTuple):
    """Events to append to one stream, if it is at the expected version (None: any version)."""

    stream: str
    events: Sequence[RawEvent]
    expected: int | None = None


class Replacement(NamedTuple):
    """One event that replaces the versions first..last of a stream (compaction)."""

    stream: str
    first: int
    last: int
    event: RawEvent


class Document(NamedTuple):
    """A disposable value under (kind, key); a body of None deletes it; an older version never replaces a newer."""

    kind: str
    key: str
    version: int
    body: bytes | None


class Key(NamedTuple):
    """An idempotency key: its id, and the fingerprint of the append that it stands for."""

    id: str
    fingerprint: bytes


class Lease(NamedTuple):
    """The right to act on a name until a time, in database time."""

    name: str
    owner: str
    token: int
    expires_us: int


class Appended(NamedTuple):
    """The result of an append: the position of its last event, and the new version of each stream written."""

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
    """An event as it is stored in the journal."""

    position: int
    stream: str
    version: int
    spans: int
    """How many versions it covers: 1, or more after compaction."""
    type: str
    format: int
    time_us: int
    token: int
    """The fencing token it was written under; 0 when without a lease."""
    body: bytes
    hash: bytes


class Health(NamedTuple):
    """What the database itself reports."""

    versions: int
    """How many versions it holds, including those merged by compaction; equals the head of an undamaged journal."""
    problems: tuple[str, ...]
    notes: tuple[str, ...]
    """What was missing or repaired when it was opened."""


class Store(Protocol):
    """Durable, ordered events; see the docstring of the module."""

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
        """Append all events or none; they are on disk when it returns.

        Raises Conflict, LeaseLost, KeyReused, UntrustedStore (nothing written) or StoreUnavailable (see its `written`).
        A repeated key returns the first reply, with `repeated` set, and writes nothing.
        """
        ...

    async def read(self, stream: str, *, after: int = 0, limit: int = 256, backwards: bool = False) -> list[Recorded]:
        """Return events of a stream with a version above `after`, oldest first; `backwards`: below it, newest first."""
        ...

    async def read_log(self, *, after: int = 0, limit: int = 256) -> list[Recorded]:
        """Return events of all streams with a position above `after`, in order and without gaps."""
        ...

    async def version(self, stream: str) -> int:
        """Return the newest version of a stream; 0 when it does not exist."""
        ...

    async def head(self) -> int:
        """Return the newest position; 0 in an empty journal."""
        ...

    async def streams(self, *, prefix: str = "", after: str = "", limit: int = 256) -> list[str]:
        """Return names of streams, sorted by code points."""
        ...

    async def wait(self, *, after: int, timeout_s: float) -> int:
        """Wait until the newest position is above `after` or the time is up; return the newest position."""
        ...

    async def acquire(self, name: str, *, owner: str, ttl_s: float) -> Lease | None:
        """Return a new lease with a larger token than any before; None while another one is valid."""
        ...

    async def renew(self, lease: Lease, *, ttl_s: float) -> Lease | None:
        """Extend a lease and return it; None when it is lost: expired, released or taken over."""
        ...

    async def release(self, lease: Lease) -> None:
        """End a lease early; do nothing when it is lost already."""
        ...

    async def load(self, kind: str, key: str) -> Document | None:
        """Return a document; None when there is none."""
        ...

    async def scan(self, kind: str, *, prefix: str = "", after: str = "", limit: int = 256) -> list[Document]:
        """Return documents of one kind, sorted by key."""
        ...

    async def check_own(self) -> None:
        """Raise UntrustedStore unless this user made the database on this machine, or has agreed to use it."""
        ...

    async def trust(self) -> None:
        """Note that this user has agreed to use the database on this machine."""
        ...

    async def copy_to(self, path: Path) -> int:
        """Write a consistent copy while the store is in use; return its newest position."""
        ...

    async def check(self) -> Health:
        """Check the integrity of the database."""
        ...

    async def close(self) -> None:
        """Complete accepted appends and close the database."""
        ...
