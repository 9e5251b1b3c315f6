"""What must be true of a store after anything whatever happened to it."""

import json
from collections.abc import Awaitable, Iterable, Sequence
from typing import Any, NamedTuple

from maos.errors import MaosError
from maos.store.chain import hash_of, seal
from maos.store.contract import (
    GENESIS,
    Appended,
    Document,
    Key,
    Lease,
    RawEvent,
    Recorded,
    Replacement,
    Store,
    Write,
)

PAGE = 1_000


class Step(NamedTuple):
    """One append of a scenario, the same in the program that makes it and in the test that checks it."""

    writes: tuple[Write, ...]
    key: Key | None = None
    documents: tuple[Document, ...] = ()
    replacing: tuple[Replacement, ...] = ()

    @property
    def size(self) -> int:
        """How many events it has."""
        return sum(len(write.events) for write in self.writes)

    async def take(self, store: Store, under: Lease | None = None) -> Appended:
        """Make the append."""
        return await store.append(
            *self.writes, key=self.key, under=under, documents=self.documents, replacing=self.replacing
        )


def events(name: str, count: int = 1, size: int = 40) -> list[RawEvent]:
    """Events that no other append has: their bodies name the append and their place in it."""
    return [RawEvent("noted", 1, f"{name}/{n} ".encode().ljust(size, b".")) for n in range(count)]


def key(name: str) -> Key:
    """A key and the fingerprint of what it stands for."""
    return Key(name, name.encode().ljust(32, b"\0"))


def compaction(stream: str, first: int, last: int, name: str) -> Step:
    """An append that replaces versions of a stream, and vouches for what it put there."""
    stand_in = RawEvent("merged", 1, f"{name}: {first}..{last} of {stream}".encode())
    vouch = RawEvent("compacted", 1, json.dumps({"by": name, "seal": seal(*stand_in).hex()}).encode())
    return Step((Write(stream, [vouch]),), key(name), replacing=(Replacement(stream, first, last, stand_in),))


async def error_of(work: Awaitable[object]) -> MaosError | None:
    """The error of ours that something ends with, if it does."""
    try:
        await work
    except MaosError as error:
        return error
    return None


async def everything(store: Store) -> list[Recorded]:
    """All events, in order."""
    found: list[Recorded] = []
    while page := await store.read_log(after=found[-1].position if found else 0, limit=PAGE):
        found += page
    return found


async def damage(store: Store) -> list[str]:
    """What is wrong with the journal: its chain, its versions, its counts, and the database under it (I4, I7)."""
    log = await everything(store)
    found = list(chain_damage(log))
    head = await store.head()
    health = await store.check()
    found += health.problems
    last = log[-1].position if log else 0
    if not sum(event.spans for event in log) == health.versions == head == last:
        found.append(f"the journal ends at {head}, {health.versions} versions are counted, {len(log)} rows read")
    by_stream: dict[str, list[Recorded]] = {}
    for event in log:
        by_stream.setdefault(event.stream, []).append(event)
    if await store.streams(limit=len(by_stream) + 1) != sorted(by_stream):
        found.append("the list of streams is another one than the journal's")
    for stream, expected in by_stream.items():
        if await store.read(stream, limit=len(expected) + 1) != expected:
            found.append(f"{stream} reads differently by itself")
    return found


def chain_damage(log: Iterable[Recorded]) -> Iterable[str]:
    """Where versions or hashes do not follow one another (I4, I7)."""
    heads: dict[str, tuple[int, bytes]] = {}
    to_vouch: dict[str, set[str]] = {}
    position = 0
    for event in log:
        version, hash_ = heads.get(event.stream, (0, GENESIS))
        if event.position <= position:
            yield f"position {event.position} comes after {position}"
        if event.version != version + event.spans or event.spans < 1:
            yield f"{event.stream}: version {event.version} spans {event.spans} after {version}"
        if event.type == "merged":
            to_vouch.setdefault(event.stream, set()).add(seal(event.type, event.format, event.body).hex())
        elif event.spans != 1 or event.hash != hash_of(event, hash_):
            yield f"{event.stream}: version {event.version} does not follow the event before it"
        elif event.type == "compacted":
            to_vouch.get(event.stream, set()).discard(json.loads(event.body)["seal"])
        position = event.position
        heads[event.stream] = (event.version, event.hash)
    for stream, seals in to_vouch.items():
        if seals:
            yield f"{stream}: nobody vouches for a merged event"


class Found:
    """The events of a journal, by place and by content."""

    def __init__(self, log: Sequence[Recorded]) -> None:
        self.log = log
        self._by_place = {(event.stream, event.version): event for event in log}
        self._merged = [event for event in log if event.type == "merged"]
        self._by_content: dict[tuple[Any, ...], list[int]] = {}
        for event in log:
            content = (event.stream, event.type, event.format, event.body)
            self._by_content.setdefault(content, []).append(event.position)

    def has(self, step: Step) -> bool:
        """Whether the events of a step are there: all of them or none (I3), none of them twice."""
        found = [self._by_content.get((write.stream, *event), []) for write in step.writes for event in write.events]
        assert all(len(places) <= 1 for places in found), f"of {step.writes!r} something is there twice"
        if not self._merged:  # else some of them may have been merged since
            assert len({len(places) for places in found}) <= 1, f"of {step.writes!r} only a part is there"
        return any(found)

    def keeps(self, step: Step, position: int, versions: Sequence[int]) -> None:
        """The events of a step stand exactly where its reply said (I1)."""
        newest = 0
        for write, last in zip(step.writes, versions, strict=True):
            for version, event in enumerate(write.events, last - len(write.events) + 1):
                found = self._by_place.get((write.stream, version))
                if found is None or found.type == "merged":
                    assert self._is_merged(write.stream, version), f"lost {write.stream}@{version}, {event.body!r}"
                else:
                    assert (found.type, found.format, found.body) == tuple(event)
                    newest = found.position
        assert newest in (0, position)

    def _is_merged(self, stream: str, version: int) -> bool:
        return any(
            event.stream == stream and event.version - event.spans < version <= event.version for event in self._merged
        )


async def kept(store: Store, steps: Sequence[Step], acks: Sequence[Sequence[Any]]) -> Found:
    """What was acknowledged is there, what was not is there wholly or not at all, and all of it verifies.

    An ack is the number of a step, the position and the versions of its reply.
    """
    assert await damage(store) == []
    found = Found(await everything(store))
    for number, position, versions in acks:
        found.keeps(steps[number], position, versions)
    for step in steps:
        found.has(step)
    return found


async def repeated(store: Store, steps: Sequence[Step], acks: Sequence[Sequence[Any]]) -> None:
    """Making all appends once more under their keys finishes the work and adds nothing to what was there (I3)."""
    replies = {number: (position, tuple(versions)) for number, position, versions in acks}
    for number, step in enumerate(steps):
        assert step.key is not None
        was_there = number in replies or Found(await everything(store)).has(step)
        head = await store.head()
        reply = await step.take(store)
        again = await step.take(store)
        assert reply[:2] == again[:2] == replies.get(number, reply[:2])
        assert again.repeated
        assert reply.repeated == was_there
        assert await store.head() == head + (0 if was_there else step.size)
    assert await damage(store) == []
