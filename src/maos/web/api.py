"""One request of the API: the endpoint that it meets, its parameters and body as typed data, and the response.

`Endpoint` says everything about a request: method, path, the verb that it needs on what, and the classes of what goes
in and out. The routes, the checks of the guard and the OpenAPI document are all made from the table of endpoints.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from maos.backup.checks import BackupChecks
from maos.clock import MICROSECONDS, Clock
from maos.errors import Conflict, InvalidInput, NotFound
from maos.model.access import STORE, AccessObject, Credential, Verb
from maos.model.changes import MISSING, plain
from maos.ops.access import Sight
from maos.settings.schema import ServeSettings
from maos.tuples import NamedTuple
from maos.web.guard import SAFE_METHODS, Admission, Site, Touches
from maos.web.problems import RequestRefused
from maos.web.requests import Body, Query
from maos.web.visibility import without_output

if TYPE_CHECKING:
    from maos.app import Maos
    from maos.ops.statistics import JournalStatistics

T = TypeVar("T")

API = "/api/v1"
KEY_CHARS_MAX = 200
PRINCIPALS_MAX = 64
"""How many callers have services of their own in memory; of more, the one that called longest ago is forgotten."""
WAIT_S = 5.0
"""How long a request waits for what it has requested of an engine."""
KEPT_S = 0.5
"""How long a reply is given again while nothing is recorded: so old can be what it says of processes and times."""
KEPT_BYTES_MAX = 16 << 20
STATISTICS_S = 15.0
"""How old figures of the journal may be."""
STATISTICS_MAX = 4
"""Of how many spans of time figures are kept."""
KEPT_URL_CHARS_MAX = 500
GZIP = {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"}
GZIP_BYTES_MIN = 4_000
GZIP_LEVEL = 1
GZIP_MARK = "gzip:"
"""Before the URL of a kept reply that is compressed."""


class Endpoint(NamedTuple):
    """One request that the API accepts."""

    method: str
    path: str
    name: str
    verb: Verb
    """What the caller must be allowed to do, and with what."""
    on: Touches
    handle: Callable[[Call], Awaitable[Any]]
    result: type[msgspec.Struct] | None
    """What it returns; None: a page or a stream, which is a `Response`."""
    body: type[Body] | None = None
    query: type[Query] | None = None
    status: int = 200
    tag: str = ""
    is_kept: bool = False
    """Whether its reply is the same for all callers with the same view until something is recorded (`KeptReplies`)."""

    @property
    def summary(self) -> str:
        """What it does, in one line."""
        return (self.handle.__doc__ or "").strip().partition("\n")[0]


class ServerContext:
    """What all requests to a server share."""

    def __init__(self, m: Maos, values: ServeSettings, *, folder: Path, is_executing: bool) -> None:
        self.m = m
        self.values = values
        self.folder = folder
        self.is_executing = is_executing
        """Whether it executes what is handed over."""
        self.started_us = m.clock.now_us()
        self.site = Site.of(values.host, values.port, values.url, tls=bool(values.tls_certificate))
        self.closing = asyncio.Event()
        """Set when the server is being stopped: streams end."""
        self.streams: dict[str, int] = {}
        """How many streams each credential has open."""
        self.replies = KeptReplies(m.clock)
        self.statistics = SharedStatistics(m)
        self.backup_checks = BackupChecks(m.clock)
        self._services: OrderedDict[str, Maos] = OrderedDict()

    async def services(self, credential: Credential) -> Maos:
        """The services for one caller, whose principal its events record."""
        found = self._services.get(credential.id)
        if found is None:
            found = self._services[credential.id] = self.m.acting_for(credential.principal)
        self._services.move_to_end(credential.id)
        if len(self._services) > PRINCIPALS_MAX:
            await self._services.popitem(last=False)[1].close()
        return found

    async def close(self) -> None:
        """Close the services of all callers, and cancel checks of the backup."""
        await self.backup_checks.close()
        while self._services:
            await self._services.popitem()[1].close()


class SharedStatistics:
    """Figures of the journal: one reader at a time, whose result counts for all who ask within some seconds."""

    def __init__(self, m: Maos) -> None:
        self._m = m
        self._turn = asyncio.Lock()
        self._found: OrderedDict[int, tuple[int, JournalStatistics]] = OrderedDict()

    async def read(self, since_us: int) -> JournalStatistics:
        """The figures from a time on, as they were some seconds ago at most."""
        async with self._turn:
            kept = self._found.get(since_us)
            if kept is None or self._m.clock.steady_us() - kept[0] > STATISTICS_S * MICROSECONDS:
                found = await self._m.statistics(since_us=since_us)
                kept = self._found[since_us] = (self._m.clock.steady_us(), found)
                if len(self._found) > STATISTICS_MAX:
                    self._found.popitem(last=False)
            return kept[1]


class KeptReplies:
    """Replies to reads, each as of a position of the journal.

    Many pages read the same documents again after the same event. A reply that was computed at the position at which
    the journal still ends is what would be computed now.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._replies: OrderedDict[tuple[str, bytes], tuple[int, int, Response]] = OrderedDict()
        self._bytes = 0

    def get(self, url: tuple[str, bytes], position: int) -> Response | None:
        """The reply to a URL while the journal ends at a position; None when it must be computed."""
        found = self._replies.get(url)
        if found is None:
            return None
        at, kept_us, reply = found
        if at == position and self._clock.steady_us() - kept_us < KEPT_S * MICROSECONDS:
            return reply
        self._forget(url)
        return None

    def keep(self, url: tuple[str, bytes], position: int, reply: Response) -> None:
        """Keep a reply that was computed while the journal ended at a position, or after it."""
        if len(url[0]) + len(url[1]) > KEPT_URL_CHARS_MAX:
            return
        self._forget(url)
        self._replies[url] = (position, self._clock.steady_us(), reply)
        self._bytes += len(reply.body)
        while self._bytes > KEPT_BYTES_MAX:
            self._forget(next(iter(self._replies)))

    def _forget(self, url: tuple[str, bytes]) -> None:
        found = self._replies.pop(url, None)
        if found is not None:
            self._bytes -= len(found[2].body)


class Call(NamedTuple):
    """A request that was admitted and decoded."""

    request: Request
    server: ServerContext
    m: Maos
    """The services, acting for the caller."""
    credential: Credential | None
    params: Mapping[str, str]
    query: Any
    body: Any
    sight: Sight | None = None
    """What of many things the caller has the verb of the endpoint on; None when it touches one thing."""

    @property
    def seen(self) -> Sight | None:
        """What the caller gets of a list; None for everything, as for the process itself."""
        assert self.sight is not None or self.credential is None
        return None if self.sight is None or self.sight.is_whole else self.sight

    async def sees(self, *, run: str = "", agent: str = "") -> bool:
        """Whether the caller gets an item of a list."""
        seen = self.seen
        return seen is None or await (seen.has_run(run) if run else seen.has_agent(agent))

    async def require(self, verb: Verb, on: AccessObject = STORE) -> None:
        """NotPermitted unless the caller may use a verb on something that the request names beside its path."""
        assert self.credential is not None
        await self.m.access.require(self.credential.principal, verb, on)

    @property
    def id(self) -> str:
        """The id in its path."""
        return self.params["id"]

    @property
    def key(self) -> str:
        """Its idempotency key, of the caller alone; empty when it has none."""
        given = self.request.headers.get("idempotency-key", "")
        if not given:
            return ""
        if len(given) > KEY_CHARS_MAX or not given.isprintable():
            raise InvalidInput(
                f"an Idempotency-Key has at most {KEY_CHARS_MAX} printable characters", hint="use a UUID"
            )
        caller = self.credential.principal.name if self.credential is not None else ""
        return hashlib.sha256(f"{caller}\0{self.request.url.path}\0{given}".encode()).hexdigest()[:32]

    @property
    def expected(self) -> int | None:
        """The version that the caller expects, from If-Match; None when any will do. Services check it in the
        transaction of the change."""
        given = self.request.headers.get("if-match", "").strip()
        if given in ("", "*"):
            return None
        version = given.removeprefix("W/").strip('"')
        if not version.isascii() or not version.isdigit() or len(version) > 18:
            raise InvalidInput(f"{given!r:.60} is no ETag of this API", hint='an ETag is a version, such as "12"')
        return int(version)

    def check_executes(self) -> None:
        """Refuse to start or resume anything on a server that executes nothing."""
        if not self.server.is_executing:
            raise RequestRefused(409, "this server executes nothing", "start it without --no-resume")


class EndpointApp:
    """One endpoint as an application of ASGI."""

    def __init__(self, endpoint: Endpoint, server: ServerContext) -> None:
        self._endpoint = endpoint
        self._server = server

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Reply to an admitted request."""
        if not self._endpoint.is_kept:
            reply = await answer(self._endpoint, self._server, Request(scope, receive, send))
            return await reply(scope, receive, send)
        replies, admission = self._server.replies, scope["maos"]
        request = Request(scope, receive, send)
        packs = accepts_gzip(request)
        url = (f"{GZIP_MARK if packs else ''}{admission.view}{scope['path']}", scope["query_string"])
        position = await self._server.m.activity.head()
        kept = replies.get(url, position)
        if kept is None:
            kept = await answer(self._endpoint, self._server, request)
            kept = packed(kept) if packs and len(kept.body) > GZIP_BYTES_MIN else kept
            replies.keep(url, position, kept)
        return await kept(scope, receive, send)


def accepts_gzip(request: Request) -> bool:
    """Whether a client can read what is compressed by gzip."""
    return "gzip" in request.headers.get("accept-encoding", "")


def packed(reply: Response) -> Response:
    """A reply with its body compressed. No reply holds a credential, whose bytes its length could tell of."""
    headers = {name: value for name, value in reply.headers.items() if name != "content-length"}
    return Response(gzip.compress(reply.body, GZIP_LEVEL), reply.status_code, {**headers, **GZIP})


async def answer(endpoint: Endpoint, server: ServerContext, request: Request) -> Response:
    """Decode an admitted request, have it handled, and encode the result."""
    admission: Admission = request.scope["maos"]
    m = server.m if admission.credential is None else await server.services(admission.credential)
    query = _query(endpoint, request)
    body = await _body(endpoint, request)
    call = Call(request, server, m, admission.credential, request.path_params, query, body, admission.sight)
    try:
        found = await endpoint.handle(call)
    except Conflict as error:
        if call.expected is None or error.expected != call.expected:
            raise
        what = f"it is at version {error.actual}, expected {error.expected}"
        raise RequestRefused(412, what, "read it again") from error
    if isinstance(found, Response):
        return found
    headers = {}
    if isinstance(found, Tagged):
        headers["ETag"] = f'"{found.version}"'
        found = found.document
    if not admission.has_output:
        assert endpoint.result is not None
        found = without_output(msgspec.to_builtins(found, enc_hook=_encodable), endpoint.result)
    return Response(encode(found), endpoint.status, headers, "application/json")


class Tagged(NamedTuple):
    """A document of something that has a version."""

    document: msgspec.Struct
    version: int


def encode(document: Any) -> bytes:
    """A document as JSON. Views of states are data; anything else that JSON lacks is an error."""
    return msgspec.json.encode(document, enc_hook=_encodable)


def _encodable(value: Any) -> Any:
    found = None if value is MISSING else plain(value)
    if found is value:
        raise NotImplementedError(f"{type(value).__name__} has no form in JSON")
    return found


def _query(endpoint: Endpoint, request: Request) -> Any:
    given = request.query_params
    names = list(given.keys())
    if len(names) != len(set(names)) or len(given.multi_items()) != len(names):
        raise InvalidInput("a parameter is given twice", hint="give each parameter once")
    return _converted(dict(given), endpoint.query or Query, "parameter", strict=False)


async def _body(endpoint: Endpoint, request: Request) -> Any:
    if endpoint.body is None or request.method in SAFE_METHODS:
        return None
    raw = await request.body()
    try:
        data = msgspec.json.decode(raw) if raw else {}
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise InvalidInput(f"the body is not JSON: {str(error)[:200]}", hint="send one JSON object") from None
    return _converted(data, endpoint.body, "body")


def _converted(data: Any, kind: type[T], what: str, *, strict: bool = True) -> T:
    try:
        return msgspec.convert(data, kind, strict=strict)
    except (msgspec.ValidationError, RecursionError) as error:
        raise InvalidInput(f"the {what} is not valid: {str(error)[:300]}", hint=f"see {API}/openapi.json") from None


async def within(work: Awaitable[T], *, seconds: float = WAIT_S) -> T | None:
    """Wait for what an engine was requested to do; None when it takes longer, and is done all the same."""
    task = asyncio.ensure_future(work)
    done, _ = await asyncio.wait([task], timeout=seconds)
    if not done:
        task.add_done_callback(_observe)
        return None
    return task.result()


def _observe(task: asyncio.Future[Any]) -> None:
    """Take note of an error of work that no request waits for: the journal has what came of it."""
    if not task.cancelled():
        task.exception()


def page_of(items: list[T], name: Callable[[T], str], cursor: str, limit: int) -> tuple[list[T], str | None]:
    """The items after the one that a cursor names, and the next cursor; NotFound when it names none."""
    first = 0
    if cursor:
        names = [name(each) for each in items]
        if cursor not in names:
            raise NotFound("the cursor does not exist any more", hint="read the list again from its beginning")
        first = names.index(cursor) + 1
    chosen = items[first : first + limit]
    return chosen, name(chosen[-1]) if len(items) > first + limit else None
