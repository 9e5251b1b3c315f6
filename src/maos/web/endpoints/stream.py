"""Events over HTTP: pages of them, and one stream of server-sent events whose ids are positions of the journal."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import msgspec
from starlette.requests import ClientDisconnect
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from maos.errors import InvalidInput
from maos.model.access import Credential, Verb
from maos.ops.access import Sight
from maos.views.activity import ActivityEvent, ActivityFilter
from maos.web import requests as r
from maos.web import system_documents as sd
from maos.web.api import Call, ServerContext
from maos.web.problems import RequestRefused

CHECK_S = 5.0
"""How often at most it is checked, while events are sent, that the credential of a stream was not revoked."""
STREAMS_OF_ONE_MAX = 16
STREAMS_MAX = 512
RETRY_MS = 1_000


async def list_activity(call: Call) -> sd.EventPage:
    """List everything that was recorded after a position, in the order of the journal."""
    query: r.EventsQuery = call.query
    wanted = _filter(query.run, query.agent, query.types)
    found, position = await call.m.activity.page(after=query.after, limit=query.limit, wanted=wanted)
    if call.seen is not None:
        found = [each for each in found if await _is_seen(each, call.seen)]
    return sd.EventPage(events=[msgspec.Raw(each.json) for each in found], position=position)


async def follow(call: Call) -> Response:
    """Follow everything that is recorded, as server-sent events whose ids are positions of the journal.

    A client that reconnects with Last-Event-ID gets every event after it, each once. The event `position` says that
    everything up to its id was sent; `snapshot`, only with `lag_max`, that events up to its id were left out.
    """
    query: r.StreamQuery = call.query
    last = call.request.headers.get("last-event-id", "")
    if last and not (last.isascii() and last.isdigit() and len(last) < 19):
        raise InvalidInput("Last-Event-ID is not a position", hint="send the id of the last event that arrived")
    head = await call.m.activity.head()
    after = int(last) if last else head if query.after is None else query.after
    if after > head:
        raise InvalidInput(f"the journal ends at position {head}", hint="read the state again, and follow from there")
    assert call.credential is not None
    opened = call.server.streams
    mine = opened.get(call.credential.id, 0)
    if mine >= STREAMS_OF_ONE_MAX or sum(opened.values()) >= STREAMS_MAX:
        raise RequestRefused(
            429, "too many streams are open", "close one; one stream has everything", {"Retry-After": "5"}
        )
    wanted = _filter(query.run, query.agent, query.types, query.output)
    return EventStream(call.server, call.credential, after, wanted, query.lag_max)


def _filter(run: str, agent: str, types: str, output: str = "") -> ActivityFilter:
    chosen = tuple(each.strip() for each in types.split(",") if each.strip())
    return ActivityFilter(run=run, agent=agent, types=chosen, output=output)


class EventStream(StreamingResponse):
    """A stream of server-sent events; it is counted while it is open."""

    def __init__(
        self, server: ServerContext, credential: Credential, after: int, wanted: ActivityFilter, lag_max: int
    ) -> None:
        self._server = server
        self._credential = credential
        headers = {"X-Accel-Buffering": "no"}
        super().__init__(self._events(after, wanted, lag_max), headers=headers, media_type="text/event-stream")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events until the client disconnects, the server stops, or the credential does not count any more."""
        streams, caller = self._server.streams, self._credential.id
        streams[caller] = streams.get(caller, 0) + 1
        try:
            await super().__call__(scope, receive, send)
        except ClientDisconnect:
            pass
        finally:
            streams[caller] -= 1
            if not streams[caller]:
                del streams[caller]

    async def _events(self, after: int, wanted: ActivityFilter, lag_max: int) -> AsyncIterator[bytes]:
        yield f"retry: {RETRY_MS}\n\n".encode()
        following = self._server.m.activity.batches(after=after, wanted=wanted, lag_max=lag_max)
        sent = told = after
        time_s = asyncio.get_running_loop().time
        checked_s = time_s()
        access = self._server.m.access
        sight = await access.sight(self._credential.principal, Verb.READ_OUTPUT)
        try:
            async for batch in following:
                if self._server.closing.is_set():
                    return
                is_idle = not batch.events and not batch.is_skipped and batch.position == sent
                if is_idle or time_s() - checked_s >= CHECK_S:
                    if not await access.counts(self._credential):
                        return
                    checked_s = time_s()
                    sight = await access.sight(self._credential.principal, Verb.READ_OUTPUT)
                events = batch.events
                if not sight.is_whole:
                    events = [each for each in events if await _is_seen(each, sight)]
                before, sent = sent, batch.position
                if events:
                    told = events[-1].position
                    yield b"".join([_recorded(each) for each in events])
                elif batch.is_skipped:
                    told = sent
                    yield b'id: %d\nevent: snapshot\ndata: {"after":%d,"position":%d}\n\n' % (sent, before, sent)
                elif is_idle:
                    yield _position(sent) if sent != told else b": heartbeat\n\n"
                    told = sent
        finally:
            await following.aclose()


async def _is_seen(event: ActivityEvent, seen: Sight) -> bool:
    """Whether a caller with limited access gets an event: of its runs and agents, and none of everything together."""
    kind = event.stream.partition("/")[0]
    if kind in ("run", "workflow", "permanent", "messages"):
        return await seen.has_run(event.subject)
    if kind == "attempt":
        return await seen.has_agent(event.agent)
    return kind in ("agent", "tools", "inbox") and await seen.has_agent(event.subject)


def _recorded(event: ActivityEvent) -> bytes:
    return b"id: %d\nevent: recorded\ndata: %b\n\n" % (event.position, event.json)


def _position(position: int) -> bytes:
    return b'id: %d\nevent: position\ndata: {"position":%d}\n\n' % (position, position)
