"""Folds kept for speed: what a load would otherwise compute from the start.

One per agent, disposable (I17), saved with an append now and then, so that it costs no commit of its own. Long lists
are kept in segments that are written once, so saving a state that grows costs what was added, not what is there; and
who needs only the end of a list reads no more of it.

Recently used states are in memory as well. A cached state is used only after its version was compared with the
journal's, so it is never stale, whichever process on whichever machine wrote in the meantime; what others wrote since
is applied to it.
"""

from __future__ import annotations

import zlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from hashlib import blake2b
from typing import Any

import cramjam
import msgspec

from maos.model.changes import Op, meet, parse_pointer, pointer
from maos.state.records import CacheStatistics, State
from maos.store.contract import Document, Store
from maos.tuples import NamedTuple

FORMAT = 1
FOLD_EVERY = 64  # while saving it is cheap: most of the state in segments, which are not written again
FOLD_COSTLY_EVERY = 256  # and before the first: the history of most agents is shorter
REWRITTEN_BYTES_MAX = 64 << 10  # what a cheap fold writes that was written before
LONG_LIST = 32  # items from which a list is long
SEGMENT_ITEMS_MAX = 1024
SEGMENTS_AT_ONCE = 64
BYTES_MAX = 64 << 20  # of the cache
ENTRY_BYTES_MIN = 1024
ENTRY_BYTES_SLACK = 64 << 10


class ListSegment(NamedTuple):
    """Some consecutive items of a long list."""

    start: int
    length: int
    version: int

    @property
    def end(self) -> int:
        """The index after its last item."""
        return self.start + self.length


class KeptFold(NamedTuple):
    """A fold as loaded."""

    state: State
    segments: dict[str, list[ListSegment]]
    size: int
    """The bytes it comes to, unpacked."""
    tail: list[Any]
    """The last items of the one long list that was asked for; the state has no items of long lists then."""


class Tally:
    """What has happened to an agent since its folds were saved, as far as this process has seen."""

    __slots__ = ("changed_inside", "fold_every", "fold_version", "segments")

    def __init__(self, fold_version: int = 0, segments: dict[str, list[ListSegment]] | None = None) -> None:
        self.fold_version = fold_version
        self.fold_every = FOLD_EVERY if fold_version else FOLD_COSTLY_EVERY
        self.segments = segments or {}
        self.changed_inside: set[str] = set()
        """Lists whose old items were altered: their segments are no longer true."""

    def distrust(self) -> None:
        """Have the next fold write all segments again."""
        self.changed_inside.update(self.segments)

    def saw(self, ops: list[Op]) -> None:
        """Take note of operations that segments do not survive."""
        for op in ops:
            for path in self.segments:
                if (op[0] != "ext" or op[1] != path) and meet(op[1], path):
                    self.changed_inside.add(path)


def split(state: dict[str, Any]) -> tuple[dict[str, Any], dict[str, list[Any]]]:
    """The state with its long lists emptied, and those lists by path."""
    lists: dict[str, list[Any]] = {}

    def strip(node: dict[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
        result = node
        for key, value in node.items():
            replacement: Any = value
            if type(value) is list and len(value) >= LONG_LIST:
                lists[pointer((*path, key))] = value
                replacement = []
            elif type(value) is dict:
                replacement = strip(value, (*path, key))
            if replacement is not value:
                if result is node:
                    result = dict(node)
                result[key] = replacement
        return result

    return strip(state, ()), lists


def due(state: State, tally: Tally, stream: str) -> list[Document]:
    """The documents to save along with the next append, if any; the tally notes that they are."""
    if state.version - tally.fold_version < tally.fold_every:
        return []
    tally.fold_version = state.version  # also if it fails: not again with every update
    return _fold_documents(state, tally, stream) or []


def _fold_documents(state: State, tally: Tally, stream: str) -> list[Document] | None:
    """The documents of a fold; None with integers beyond 64 bits: such a state is loaded from its events."""
    skeleton, lists = split(state.raw())
    table: list[Any] = []
    documents: list[Document] = []
    kept: dict[str, list[ListSegment]] = {}
    rewritten_bytes = 0
    try:
        for path, items in lists.items():
            anew = path in tally.changed_inside
            segments = [] if anew else list(tally.segments.get(path, ()))
            start = segments[-1].end if segments else 0
            for begin in range(start, len(items), SEGMENT_ITEMS_MAX):
                part = items[begin : begin + SEGMENT_ITEMS_MAX]
                packed = _pack(part)
                rewritten_bytes += len(packed) if anew else 0
                segments.append(ListSegment(begin, len(part), state.version))
                documents.append(Document("segment", _segment_key(stream, path, begin), state.version, packed))
            kept[path] = segments
            table.append([path, len(items), [list(segment) for segment in segments]])
        meta = [FORMAT, state.version, f"{state.total:x}", state.time_us, state.source, state.type]
        body = _pack({"meta": meta, "state": skeleton, "lists": table})
    except (OverflowError, msgspec.MsgspecError):
        return None
    still = {(path, segment.start) for path, segments in kept.items() for segment in segments}
    for path, segments in tally.segments.items():
        gone = (segment.start for segment in segments if (path, segment.start) not in still)
        documents += [Document("segment", _segment_key(stream, path, start), state.version, None) for start in gone]
    documents.append(Document("fold", stream, state.version, body))
    cheap = rewritten_bytes + len(body) <= REWRITTEN_BYTES_MAX
    tally.fold_every = FOLD_EVERY if cheap else FOLD_COSTLY_EVERY
    tally.segments = kept
    tally.changed_inside = set()
    return documents


def renewed(state: State, tally: Tally, stream: str) -> list[Document]:
    """A fold of this state, which replaces an older one: compaction may have cut that off from the events after it."""
    tally.distrust()
    return _fold_documents(state, tally, stream) or [Document("fold", stream, state.version, None)]


async def load(
    store: Store, stream: str, agent: str, notes: list[str], *, path: str | None = None, last: int = 0
) -> KeptFold | None:
    """The newest fold of an agent; None when there is none, or when it is damaged and the events have to do (I17).

    With a path, nothing of its long lists is read but the last items of the one there.
    """
    document = await store.load("fold", stream)
    if document is None:
        return None
    segments: dict[str, list[ListSegment]] = {}
    tail: list[Any] = []
    size = _size(document)
    try:
        content = _unpack(document)
        for each, length, rows in content["lists"]:
            found = segments[each] = [ListSegment(*row) for row in rows]
            if path is None:
                items, added = await _load_segments(store, stream, each, found, length)
                _put(content["state"], each, items)
                size += added
            elif path == each:
                found = [segment for segment in found if segment.end > length - last]
                tail, _added = await _load_segments(store, stream, each, found, length)
        format_, version, total, time_us, source, type_ = content["meta"]
        if format_ != FORMAT:
            raise ValueError("another format")
        state = State(agent, version, content["state"], int(total, 16), time_us, source, type_)
        return KeptFold(state, segments, size, tail)
    except _UNUSABLE as error:
        notes.append(f"the saved fold of {stream} could not be used and was computed again: {error}")
        return None


async def _load_segments(
    store: Store, stream: str, path: str, segments: list[ListSegment], length: int
) -> tuple[list[Any], int]:
    """The items of a list from the first of some segments to its end, and their size."""
    items: list[Any] = []
    size = 0
    start = segments[0].start if segments else length
    prefix = after = _segment_prefix(stream, path)
    if start:
        after = _segment_key(stream, path, start - 1)
    found: dict[str, Document] = {}
    while page := await store.scan("segment", prefix=prefix, after=after, limit=SEGMENTS_AT_ONCE):
        found.update((document.key, document) for document in page)
        after = page[-1].key
        if len(page) < SEGMENTS_AT_ONCE:
            break
    for segment in segments:
        document = found.get(_segment_key(stream, path, segment.start))
        if document is None or document.version != segment.version or start + len(items) != segment.start:
            raise ValueError(f"the segment of {path} from {segment.start} is missing")
        items.extend(_unpack(document))
        size += _size(document)
    if start + len(items) != length:
        raise ValueError(f"{path} has {start + len(items)} items instead of {length}")
    return items, size


def _put(state: dict[str, Any], path: str, items: list[Any]) -> None:
    *parents, last = parse_pointer(path, state)
    node: Any = state
    for part in parents:
        node = node[part]
    node[last] = items


def _segment_key(stream: str, path: str, start: int) -> str:
    return f"{_segment_prefix(stream, path)}{start:012d}"


def _segment_prefix(stream: str, path: str) -> str:
    """A path may be long and have any characters; the name of a document may not."""
    return f"{stream}\t{blake2b(path.encode(), digest_size=16).hexdigest()}\t"


def _pack(content: Any) -> bytes:
    packed = bytes(cramjam.lz4.compress_block(msgspec.msgpack.encode(content)))
    return zlib.crc32(packed).to_bytes(4, "big") + packed


def _size(document: Document) -> int:
    return int.from_bytes((document.body or b"")[4:8], "little")


def _unpack(document: Document) -> Any:
    body = memoryview(document.body or b"")
    packed = body[4:]
    if zlib.crc32(packed) != int.from_bytes(body[:4], "big"):
        raise ValueError("its checksum does not match")
    return msgspec.msgpack.decode(memoryview(cramjam.lz4.decompress_block(packed)))


_UNUSABLE = (KeyError, TypeError, ValueError, IndexError, cramjam.DecompressionError)
"""What a damaged document, or one of another format, leads to."""


# --- in memory ---------------------------------------------------------------------------------------------------


class Entry:
    """A state in the cache."""

    __slots__ = ("bytes", "measured", "state", "tally")

    def __init__(self, state: State, tally: Tally, size: int) -> None:
        self.state = state
        self.tally = tally
        self.bytes = self.measured = max(size, ENTRY_BYTES_MIN)


class Cache:
    """The states used last, up to a limit of memory."""

    def __init__(self, warm: Callable[[str], Awaitable[object]], *, bytes_max: int = BYTES_MAX) -> None:
        self._entries: OrderedDict[str, Entry] = OrderedDict()
        self._bytes = 0
        self._bytes_max = bytes_max
        self._warm = warm
        self.hits = 0
        self.misses = 0
        self.refreshes = 0
        self._evictions = 0
        self.access_ns = 0

    def look(self, agent: str) -> Entry | None:
        """What is cached for an agent, however old."""
        entry = self._entries.get(agent)
        if entry is not None:
            self._entries.move_to_end(agent)
        return entry

    def put(self, agent: str, entry: Entry) -> None:
        """Keep a state, and evict those unused for longest when there are too many."""
        self.invalidate(agent)
        self._entries[agent] = entry
        self._bytes += entry.bytes
        self._shrink()

    def grow(self, entry: Entry, size: int) -> None:
        """Count what was added. What it took the place of is not known, so now and then all of it is measured."""
        before = entry.bytes
        entry.bytes += size
        if entry.bytes > 2 * entry.measured + ENTRY_BYTES_SLACK:
            entry.bytes = entry.measured = max(size_of(entry.state.raw()), ENTRY_BYTES_MIN)
        if self._entries.get(entry.state.agent) is entry:  # it may have been evicted meanwhile
            self._bytes += entry.bytes - before
            self._shrink()

    def invalidate(self, agent: str) -> None:
        """Forget an agent's state; the next read loads it again.

        Example::

            m.state.cache.invalidate("reviewer")
        """
        entry = self._entries.pop(agent, None)
        if entry is not None:
            self._bytes -= entry.bytes

    def clear(self) -> None:
        """Forget everything.

        Example::

            m.state.cache.clear()
        """
        self._entries.clear()
        self._bytes = 0

    def _shrink(self) -> None:
        while self._bytes > self._bytes_max and len(self._entries) > 1:
            _agent, oldest = self._entries.popitem(last=False)
            self._bytes -= oldest.bytes
            self._evictions += 1

    async def warm(self, agents: Iterable[str]) -> None:
        """Load states before they are read.

        Example::

            await m.state.cache.warm(["reviewer"])
        """
        for agent in agents:
            await self._warm(agent)

    def statistics(self) -> CacheStatistics:
        """Hits and misses of the cache since it was opened.

        Example::

            statistics = m.state.cache.statistics()
            print(statistics.hit_rate, statistics.bytes)
        """
        reads = self.hits + self.refreshes + self.misses
        mean_us = self.access_ns / 1000 / reads if reads else 0.0
        return CacheStatistics(
            self.hits, self.misses, self.refreshes, self._evictions, len(self._entries), self._bytes, mean_us
        )


def size_of(value: Any) -> int:
    """Roughly the memory that plain data takes."""
    size = 0
    stack = [value]
    while stack:
        value = stack.pop()
        if type(value) is dict:
            size += 64
            stack.extend(value.values())
        elif type(value) is list:
            size += 56 + 8 * len(value)
            stack.extend(value)
        else:
            size += 49 + len(value) if type(value) is str else 28
    return size
