"""The log of an agent's tool calls, which makes repeating a call harmless.

A call is recorded together with its effect, in one append. An agent's program that was killed, or whose tool server was
killed, cannot know whether its last call took effect, and repeats it. The log recognizes a repeat: it is equal to an
earlier call whose reply may not have arrived. The next request of the same client proves that a reply has arrived, and
so does an attempt that ended well; an equal call after that is a new call.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec

from maos.clock import Clock
from maos.engine.streams import ATTEMPT
from maos.errors import Conflict
from maos.faults import crash_point
from maos.ids import incarnation
from maos.journal.journal import Append, Journal
from maos.model.events.records import ToolCalled
from maos.model.status import AttemptStatus
from maos.model.tool_calls import stream
from maos.store.contract import Key
from maos.tuples import NamedTuple

LOOK_BACK = 100
"""How many events back to look for calls whose replies may not have arrived."""


class ToolEffect(NamedTuple):
    """The reply to a call, and what is written together with the call."""

    reply: str
    appends: Sequence[Append] = ()
    stored: Sequence[str] = ()
    """Arguments of the call that the appends have, so that they are not recorded twice."""


Compose = Callable[[], Awaitable[ToolEffect | None]]
"""Returns the effect of a call, as it is to be written now; None for a call that changes nothing."""


class RecordedCall(NamedTuple):
    """A call that was recorded."""

    digest: str
    version: int
    """Its version in the stream of the agent's calls."""
    attempt: str
    reply: str


class ToolLog:
    """The tool calls of one agent, through this tool server and earlier ones."""

    def __init__(self, journal: Journal, clock: Clock, agent: str, attempt: str) -> None:
        self._journal = journal
        self._clock = clock
        self._attempt = attempt
        self._stream = stream(agent)
        self._server = incarnation()
        self._unproved: dict[str, RecordedCall] = {}
        """Calls whose replies may not have arrived, by their digests."""
        self._writing: dict[str, asyncio.Task[RecordedCall | None]] = {}
        self._proved: list[int] = []

    async def look_back(self) -> None:
        """Find the calls through the previous tool server whose replies may not have arrived."""
        server = ""
        proved: set[int] = set()
        for record in await self._journal.page_back(self._stream, limit=LOOK_BACK):
            call: ToolCalled = record.event
            server = server or call.server
            if call.server != server:
                break
            proved.update(call.proved)
            if record.version not in proved and call.digest:
                found = RecordedCall(call.digest, record.version, call.attempt, call.answer)
                self._unproved.setdefault(call.digest, found)
        for attempt in {call.attempt for call in self._unproved.values()} - {self._attempt}:
            ended = await ATTEMPT.load(self._journal, attempt)
            if ended is not None and ended.status == AttemptStatus.DONE:  # its agent got every reply
                self._unproved = {key: call for key, call in self._unproved.items() if call.attempt != attempt}

    async def once(
        self, tool: str, arguments: Mapping[str, Any], effect: ToolEffect | Compose, *, key: Key | None = None
    ) -> RecordedCall:
        """Record a call and its effect, unless it repeats one; with a `key`, an equal call is a repeat for ever."""
        digest = fingerprint(tool, arguments).hex()
        known = self._unproved.get(digest)
        if known is not None:
            return known
        writing = self._writing.get(digest)
        if writing is None:
            writing = asyncio.create_task(self.write(tool, arguments, effect, digest=digest, key=key))
            self._writing[digest] = writing
            writing.add_done_callback(lambda _done: self._writing.pop(digest))
        call = await asyncio.shield(writing)  # a call that its client cancels is recorded all the same
        assert call is not None, "a call that may be repeated always has an effect"
        return call

    async def write(
        self,
        tool: str,
        arguments: Mapping[str, Any],
        effect: ToolEffect | Compose,
        *,
        digest: str = "",
        key: Key | None = None,
    ) -> RecordedCall | None:
        """Write a call and its effect in one append; nothing if there is no effect.

        An effect is composed again when a stream that it was composed from has changed before the append.
        """
        while True:
            composed = effect if isinstance(effect, ToolEffect) else await effect()
            if composed is None:
                return None
            proved, self._proved = self._proved, []
            called = ToolCalled(
                tool=tool,
                arguments={name: value for name, value in arguments.items() if name not in composed.stored},
                digest=digest,
                attempt=self._attempt,
                server=self._server,
                proved=proved,
                answer=composed.reply,
                at_us=self._clock.now_us(),
            )
            crash_point(f"tool:before {tool}")
            try:
                written = await self._journal.append_all([Append(self._stream, [called]), *composed.appends], key=key)
            except BaseException as error:
                self._proved += proved
                if isinstance(error, Conflict):
                    continue
                raise
            crash_point(f"tool:after {tool}")
            if written.repeated:
                self._proved += proved
            call = RecordedCall(digest, written.versions[0], self._attempt, composed.reply)
            if digest:
                self._unproved[digest] = call
            return call

    def prove(self, calls: Sequence[RecordedCall]) -> None:
        """Note that the replies to calls have arrived; recorded with the next call."""
        for call in calls:
            if self._unproved.get(call.digest) is call:
                del self._unproved[call.digest]
                self._proved.append(call.version)


def fingerprint(*values: Any) -> bytes:
    """A digest of values that does not depend on the order of their keys."""
    return hashlib.sha256(msgspec.json.encode(values, order="deterministic")).digest()
