"""What an agent did through its door, each thing once: the record that makes a repeated call harmless.

A call is recorded together with what it does, in one append. A program that was killed, or whose door was, cannot know
whether its last call took effect, and makes it again. Such a repeat is recognised: it says the same as a call whose
answer perhaps never arrived. That an answer did arrive is proved by the next request of the same client, or by an
attempt that ended well; the same thing said after that is said again.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from maos.bus.mailbox import acknowledge
from maos.clock import Clock
from maos.engine.streams import ATTEMPT
from maos.errors import Conflict
from maos.faults import crash_point
from maos.ids import incarnation
from maos.journal.codec import Event
from maos.journal.journal import Append, Journal
from maos.mcp.server import Identity
from maos.model.status import AttemptStatus
from maos.model.tool_calls import stream
from maos.store.contract import Key

LOOK_BACK = 100
"""How many events back a call is looked for whose answer may not have arrived."""


class Effect(NamedTuple):
    """What a call answers, and what is written together with it."""

    answer: str
    appends: Sequence[Append] = ()
    holds: Sequence[str] = ()
    """Arguments of the call that the appends hold, so that they are not recorded a second time."""


async def _recorded() -> Effect:
    return Effect("recorded")


class RecordedCall(NamedTuple):
    """A call that was recorded."""

    digest: str
    number: int
    """Its version in the stream of the agent's calls."""
    attempt: str
    answer: str


class Calls:
    """The calls of one agent, through this door and those before it."""

    def __init__(self, journal: Journal, clock: Clock, identity: Identity) -> None:
        self._journal = journal
        self._clock = clock
        self._identity = identity
        self._stream = stream(identity.agent)
        self._door = incarnation()
        self._doubtful: dict[str, RecordedCall] = {}
        """Calls whose answers may not have arrived, by what they said."""
        self._writing: dict[str, asyncio.Task[RecordedCall]] = {}
        self._answered: list[tuple[int, Sequence[RecordedCall], Sequence[int]]] = []
        self._proved: list[int] = []
        self._acknowledged: list[int] = []
        self._turn = asyncio.Lock()

    async def look_back(self) -> None:
        """Find the calls of the door before this one whose answers may not have arrived."""
        end = await self._journal.version(self._stream)
        door = ""
        proved: set[int] = set()
        for record in await self._journal.page_back(self._stream, before=end + 1, limit=LOOK_BACK):
            if record.type != "tool_called":
                continue
            door = door or record.data["server"]
            if record.data["server"] != door:
                break
            proved.update(record.data["proved"])
            if record.version not in proved and record.data["digest"]:
                call = RecordedCall(
                    record.data["digest"], record.version, record.data["attempt"], record.data.get("answer", "")
                )
                self._doubtful.setdefault(call.digest, call)
        attempts = {call.attempt for call in self._doubtful.values()} - {self._identity.attempt}
        for attempt in attempts:  # one that ended well had all its answers
            found = await ATTEMPT.load(self._journal, attempt)
            if found is not None and found.status == AttemptStatus.DONE:
                self._doubtful = {key: call for key, call in self._doubtful.items() if call.attempt != attempt}

    async def once(
        self,
        tool: str,
        arguments: Mapping[str, Any],
        effect: Callable[[], Awaitable[Effect]] = _recorded,
        *,
        key: Key | None = None,
    ) -> RecordedCall:
        """Record a call and what it does, unless it is the repeat of one. A `key` makes it the same for ever."""
        digest = fingerprint(tool, arguments).hex()
        known = self._doubtful.get(digest)
        if known is not None:
            return known
        writing = self._writing.get(digest)
        if writing is None:
            writing = asyncio.create_task(self._write_once(tool, arguments, digest, effect, key))
            self._writing[digest] = writing
            writing.add_done_callback(lambda _done: self._writing.pop(digest))
        return await asyncio.shield(writing)  # a client that changes its mind leaves a call that is known

    async def _write_once(
        self,
        tool: str,
        arguments: Mapping[str, Any],
        digest: str,
        effect: Callable[[], Awaitable[Effect]],
        key: Key | None,
    ) -> RecordedCall:
        call = await self.write(tool, arguments, effect, digest=digest, key=key)
        assert call is not None, "a call that may be repeated always has an effect"
        self._doubtful[digest] = call
        return call

    async def write(
        self,
        tool: str,
        arguments: Mapping[str, Any],
        effect: Callable[[], Awaitable[Effect | None]],
        *,
        digest: str = "",
        key: Key | None = None,
    ) -> RecordedCall | None:
        """Write a call and its effect in one append; nothing when there is no effect.

        The effect is composed again when a stream that it was composed from has moved meanwhile.
        """
        while True:
            composed = await effect()
            if composed is None:
                return None
            try:
                return await self._append(tool, arguments, composed, digest, key)
            except Conflict:
                continue

    async def _append(
        self, tool: str, arguments: Mapping[str, Any], effect: Effect, digest: str, key: Key | None
    ) -> RecordedCall:
        proved, self._proved = self._proved, []
        data = {
            "tool": tool,
            "arguments": {name: value for name, value in arguments.items() if name not in effect.holds},
            "digest": digest,
            "attempt": self._identity.attempt,
            "server": self._door,
            "proved": proved,
            "at_us": self._clock.now_us(),
        }
        data |= {"answer": effect.answer} if effect.answer else {}
        crash_point(f"door:before {tool}")
        try:
            called = Append(self._stream, [Event("tool_called", data)])
            reply = await self._journal.append_all([called, *effect.appends], key=key)
        except BaseException:
            self._proved += proved
            raise
        crash_point(f"door:after {tool}")
        if reply.repeated:
            self._proved += proved
        return RecordedCall(digest, reply.versions[0], self._identity.attempt, effect.answer)

    def answered(self, calls: Sequence[RecordedCall], read: Sequence[int], sent: int) -> None:
        """An answer, the `sent`-th message of ours, is on its way: to recorded calls, or with messages of the inbox."""
        self._answered.append((sent, calls, read))

    def prove(self, seen: int) -> None:
        """The client asked for something else when it had got so many messages of ours: those have arrived."""
        arrived = [each for each in self._answered if each[0] <= seen]
        self._answered = [each for each in self._answered if each[0] > seen]
        for _sent, calls, read in arrived:
            self._acknowledged += read
            for call in calls:
                if self._doubtful.get(call.digest) is call:
                    del self._doubtful[call.digest]
                    self._proved.append(call.number)

    async def acknowledge(self) -> None:
        """Record that messages were read, once that is proved: until then they are told again (R-303)."""
        async with self._turn:
            versions, self._acknowledged = self._acknowledged, []
            if not versions:
                return
            crash_point("door:before acknowledgement")
            try:
                await self._journal.append_all(acknowledge(self._identity.agent, versions))
            except BaseException:
                self._acknowledged += versions
                raise


def fingerprint(*said: Any) -> bytes:
    """The same for the same, whatever the order of its keys."""
    return hashlib.sha256(msgspec.json.encode(said, order="deterministic")).digest()
