"""The store contract: durable, ordered events, and the coordination that events cannot express.

A store does not know what a task, an agent or a message is; bodies are bytes to it. When a method returns, its effect
is on disk. New features add event types and folds, not methods here.

A *position* is the number of an event in the whole journal, a *version* its number in one stream (both start at 1). A
*lease* is the right to act on a name until a time, with a token that only grows. A *document* is disposable: a
snapshot, a view or a cursor that can be rebuilt from the events.
"""

from __future__ import annotations

from collections.abc import Collection, Coroutine, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from maos.tuples import NamedTuple

if TYPE_CHECKING:
    from maos.store.patience import Patience

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


class UsedKey(NamedTuple):
    """A key that an append has used, and the reply of that append."""

    id: str
    fingerprint: bytes
    position: int
    versions: str


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


class DataKey(NamedTuple):
    """A key that seals the bodies of one scope, such as a run, as the database keeps it."""

    id: bytes
    scope: str
    wrapped: bytes | None
    """None when it was erased."""
    wrapped_by: bytes
    """The key of the keyring that it is wrapped by."""
    made_us: int
    retired: int = 0
    """1: it opens what it has sealed, and seals nothing more."""
    erased_us: int = 0


class Sealer(Protocol):
    """Seals the bodies of an encrypted store; the store itself never opens an event."""

    def scope_of(self, stream: str) -> str:
        """Return whose key seals the events of a stream."""
        ...

    def scope_of_document(self, kind: str, key: str) -> str:
        """Return whose key seals a document."""
        ...

    def knows(self, scope: str) -> bool:
        """Return whether the keys of a scope were read from the database."""
        ...

    def learn(self, scope: str, rows: Sequence[Sequence[Any]]) -> None:
        """Take the keys of a scope, the newest first, as the database has them."""
        ...

    def current(self, scope: str) -> DataKey | None:
        """Return the key that seals for a scope; None when it has none yet. Raise Erased, or Locked."""
        ...

    def new_key(self, scope: str, now_us: int) -> DataKey:
        """Make a key for a scope, to be written with the first body that it seals."""
        ...

    def check_newest(self, keyring: Sequence[Sequence[Any]]) -> None:
        """Raise Locked unless new keys are wrapped by the newest key of the keyring."""
        ...

    def seal_events(self, key: DataKey, stream: str, version: int, events: Sequence[RawEvent]) -> Sequence[RawEvent]:
        """Return events that follow a version of a stream, with sealed bodies."""
        ...

    def seal_document(self, key: DataKey, document: Document) -> Document:
        """Return a document with a sealed body."""
        ...

    async def open_document(self, document: Document) -> Document | None:
        """Return a document as it was saved; None when it was erased."""
        ...

    def fingerprint(self, fingerprint: bytes) -> bytes:
        """Return the fingerprint of a key that the store keeps: it says nothing without the store's key."""
        ...


class StreamEnding(NamedTuple):
    """What the last event of a stream is when nothing more is expected of it."""

    types: tuple[str, ...]
    before_us: int
    """It was recorded before this time; a later one counts as open, whatever its type is."""


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
    patience: Patience
    """How long its calls wait while it cannot be used."""

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

    async def streams(
        self,
        *,
        prefix: str = "",
        after: str = "",
        limit: int = 256,
        unless: StreamEnding | None = None,
        newest: bool = False,
    ) -> list[str]:
        """Return names of streams, sorted by code points; `unless` one has ended so; or the newest first, in the order
        in which they were made."""
        ...

    async def wait(self, *, after: int, timeout_s: float, streams: Collection[str] = ()) -> int:
        """Wait until the newest position is above `after` or the time is up; return the newest position.

        With `streams`, only their events count.
        """
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

    async def identity(self) -> str:
        """Return what tells this store from every other."""
        ...

    async def read_keys(self, *, first: int, last: int) -> list[UsedKey]:
        """Return the keys of appends whose last position is from `first` to `last`."""
        ...

    async def restore(self, events: Sequence[Recorded], keys: Sequence[UsedKey]) -> None:
        """Append events as another store recorded them, with their positions, times, tokens and hashes; all or none.

        Raises Corrupt when an event does not match its hash or its predecessor. Leases that are acquired afterwards
        have larger tokens than these events.
        """
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
