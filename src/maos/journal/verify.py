"""Reads the whole journal and names everything that is not as it was written.

For each stream: versions without gaps, hashes that follow from content and predecessor, times and positions that grow,
fencing tokens that never fall (I22), bodies that decode, compacted events that match the seal their compaction left.
Hashes are of sealed bodies, so an encrypted journal is verified without its keys, apart from what is inside.
For the journal as a whole: as many versions as positions, and whatever the database itself reports.
"""

from __future__ import annotations

from collections.abc import Callable

from maos.errors import Erased, Locked, MaosError
from maos.journal.journal import PAGE_EVENTS, Journal
from maos.model.events.state import Compacted
from maos.store import chain
from maos.store.contract import GENESIS, Recorded
from maos.tuples import NamedTuple


class Damage(NamedTuple):
    """Something that is not as it was written, and what can be recovered."""

    stream: str
    version: int
    what: str
    recoverable: str


class Report(NamedTuple):
    """What a verification found."""

    head: int
    streams: int
    events: int
    damage: list[Damage]
    notes: list[str]

    @property
    def ok(self) -> bool:
        """Whether everything is as it was written."""
        return not self.damage


async def verify(
    journal: Journal, *, stream: str | None = None, progress: Callable[[int, int], None] | None = None
) -> Report:
    """Check every event of every stream, or of one."""
    before = await journal.head()
    health = await journal.store.check()
    head = await journal.head()
    damage = [
        Damage("", 0, f"the database reports: {problem}", "what verifies below is intact")
        for problem in health.problems
    ]
    if not before <= health.versions <= head:  # others may write meanwhile
        damage.append(
            Damage(
                "", 0, f"{head} versions were written, {health.versions} are there", "see the streams below, or a copy"
            )
        )
    streams = events = erased = locked = 0
    async for name in journal.streams(stream or "", erased=True):
        if stream is not None and name != stream:
            continue
        check = await _checked(journal, name)
        damage.extend(check.damage)
        streams += 1
        events += check.events
        erased += check.erased
        locked += check.locked
        if progress is not None:
            progress(events, head)
    notes = [*health.notes, *journal.notes]
    if erased:
        notes.append(f"erased events: {erased}; their hashes were checked, and their content is gone")
    if locked:
        notes.append(f"sealed events: {locked}; no key was given, so their hashes were checked, not their content")
    return Report(head, streams, events, damage, notes)


async def _checked(journal: Journal, stream: str) -> _StreamCheck:
    """The check of one stream; one that finds something is repeated, for a compaction meanwhile looks like damage."""
    before: list[Damage] = []
    while True:
        check = _StreamCheck(journal, stream)
        await check.run()
        if check.damage == before or not check.damage:
            return check
        before = check.damage


class _StreamCheck:
    """One stream, read from its start to its end."""

    def __init__(self, journal: Journal, stream: str) -> None:
        self._journal = journal
        self._stream = stream
        self._found: list[tuple[int, str]] = []
        self._missing: set[int] = set()
        self._previous = GENESIS
        self._last: Recorded | None = None
        self._proven: Recorded | None = None
        self._token = 0
        self._replaced: dict[int, Recorded] = {}
        self._seals: dict[int, tuple[str, int, int, int]] = {}
        self.events = self.erased = self.locked = 0

    @property
    def damage(self) -> list[Damage]:
        """What was found, with the versions that are intact around it."""
        bad = self._missing.union(version for version, _what in self._found)
        last = self._last.version if self._last is not None else 0
        intact = _ranges([version for version in range(1, last + 1) if version not in bad]) if bad else ""
        recoverable = f"versions {intact} verify" if intact else "nothing in this stream"
        return [Damage(self._stream, version, what, recoverable) for version, what in self._found]

    async def run(self) -> None:
        """Read it all."""
        after = 0
        pending: Recorded | None = None
        while True:
            try:
                page = await self._journal.store.read(self._stream, after=after, limit=PAGE_EVENTS)
            except MaosError as error:
                self._found.append((after + 1, f"cannot be read: {error.what}"))
                break
            for event in page:
                if pending is not None:
                    await self._check(pending, event)
                pending = event
            if len(page) < PAGE_EVENTS:
                break
            after = page[-1].version
        if pending is not None:
            await self._check(pending, None)
        for version, event in self._replaced.items():
            try:
                body = await self._journal.opened(event)
            except MaosError:
                continue  # counted or named already
            seal = chain.seal(event.type, event.format, body).hex()
            if self._seals.get(version) != (seal, event.spans, event.time_us, event.token):
                self._found.append((version, "is not what the compaction put there"))

    async def _check(self, event: Recorded, following: Recorded | None) -> None:
        self.events += 1
        first = event.version - event.spans + 1
        expected = self._last.version + 1 if self._last is not None else 1
        if first > expected:
            self._found.append((expected, f"versions {expected} to {first - 1} are missing"))
            self._missing.update(range(expected, first))
            self._previous = b""  # what it followed is missing; the next ones are checked against it
        elif first < expected:
            self._found.append((event.version, f"covers versions from {first} on, which other events cover too"))
        proven = True
        if event.spans > 1:
            self._replaced[event.version] = event
            self._previous = event.hash
        elif self._previous:
            proven = self._check_link(event, following)
        else:
            self._previous = event.hash
        if proven:  # what a damaged event says of its time and place says nothing about the next
            self._check_order(event)
            self._proven = event
        await self._check_content(event)
        self._last = event

    def _check_link(self, event: Recorded, following: Recorded | None) -> bool:
        """Whether the event is what was written, its hash aside."""
        computed = chain.hash_of(event, self._previous)
        if event.hash == computed:
            self._previous = computed
            return True
        if following is not None and following.spans == 1 and following.hash == chain.hash_of(following, computed):
            self._found.append((event.version, "its stored hash is damaged; the next event proves its content"))
            self._previous = computed
            return True
        self._found.append((event.version, "does not match its hash"))
        self._previous = event.hash
        return False

    def _check_order(self, event: Recorded) -> None:
        if self._proven is not None:
            if event.position <= self._proven.position:
                self._found.append((event.version, "has a lower position than its predecessor"))
            if event.time_us < self._proven.time_us:
                self._found.append((event.version, "is older than its predecessor"))
        if event.token:
            if event.token < self._token:
                self._found.append((event.version, f"was written under token {event.token} after {self._token}"))
            self._token = max(self._token, event.token)

    async def _check_content(self, event: Recorded) -> None:
        try:
            record = await self._journal.decode(event)
        except Erased:
            self.erased += 1
            return
        except Locked:
            self.locked += 1
            return
        except MaosError as error:
            if not any(version == event.version for version, _what in self._found):
                self._found.append((event.version, error.what))
            return
        if isinstance(record.event, Compacted):
            for entry in record.event.replaced:
                spans = entry["last"] - entry["first"] + 1
                self._seals[entry["last"]] = (entry["seal"], spans, entry["time_us"], entry["token"])


def _ranges(versions: list[int]) -> str:
    """1-3, 5, 7-9"""
    parts: list[str] = []
    start = previous = 0
    for version in [*versions, 0]:
        if start and version == previous + 1:
            previous = version
            continue
        if start:
            parts.append(str(start) if start == previous else f"{start}-{previous}")
        start = previous = version
    return ", ".join(parts)
