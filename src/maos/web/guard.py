"""The one place where a request over HTTP is admitted: host, origin, credential, access, and limits, in this order.

Every request passes here before any route: a route that is not in the table of endpoints is refused, and an endpoint
says which verb it needs on what (`maos.model.access`). There is no way to switch any of it off.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from itertools import chain
from typing import Any
from urllib.parse import urlsplit

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import Message, Receive, Scope, Send

from maos.clock import MICROSECONDS, Clock
from maos.errors import MaosError
from maos.model.access import STORE, AccessObject, Credential, CredentialKind, ScopeKind, Unauthenticated, Verb
from maos.model.events.audit import AuditEntry
from maos.ops import server_log
from maos.ops.access import Access, Sight
from maos.ops.audit import CLIENT_CHARS_MAX, Audit
from maos.tuples import NamedTuple
from maos.web import problems
from maos.web.problems import RequestRefused

COOKIE = "maos_session"
SAFE_METHODS = ("GET", "HEAD")
HEADER_BYTES_MAX = 16 << 10
BODY_BYTES_MAX = 1 << 20
BODY_S_MAX = 10.0
REQUESTS_PER_S = 50.0
REQUESTS_BURST = 200.0
FAILURES_PER_S = 1.0
FAILURES_BURST = 20.0
CALLERS_MAX = 1_000
"""How many callers are counted at once; of more, the one that was counted longest ago is forgotten."""
ON_CHARS_MAX = 512
ANYWHERE = ("", 0)
JSON, FORM = "application/json", "application/x-www-form-urlencoded"

HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
        "connect-src 'self'; manifest-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types maos"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
    "Referrer-Policy": "same-origin",  # with "no-referrer" browsers send forms with `Origin: null`
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cache-Control": "no-store",
}
"""Of every response. The page may replace Cache-Control for files whose names change with their content."""
_RAW_HEADERS = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
PART = "maos.part"
"""In the scope of a request whose response is no document: a style sheet, a script or a font, which has no policy of
its own. A page loads dozens of them, and these headers would be a tenth of all that it loads."""
_PART_HEADERS = [
    each for each in _RAW_HEADERS if each[0] in (b"x-content-type-options", b"cross-origin-resource-policy")
]


class Site(NamedTuple):
    """The addresses under which a server is reached."""

    hosts: frozenset[str]
    """Values of the header Host, in lower case: with the port, and without it if it is the default one."""
    origins: frozenset[str]

    @classmethod
    def of(cls, host: str, port: int, url: str, *, tls: bool) -> Site:
        """The addresses of a server that listens on a host and a port, and is known under a URL."""
        scheme, default = ("https", 443) if tls else ("http", 80)
        names = {host.lower(), *(("127.0.0.1", "localhost", "::1") if is_loopback(host) else ())}
        bare = {f"[{each}]" if ":" in each else each for each in names}
        hosts = {f"{each}:{port}" for each in bare} | (bare if port == default else set())
        origins = {f"{scheme}://{each}" for each in hosts}
        if url:
            known = urlsplit(url)
            hosts.add(known.netloc.lower())
            origins.add(f"{known.scheme}://{known.netloc.lower()}")
        return cls(frozenset(hosts), frozenset(origins))

    @property
    def is_secure(self) -> bool:
        """Whether browsers reach it by TLS alone."""
        return any(each.startswith("https://") for each in self.origins)


def is_loopback(host: str) -> bool:
    """Whether an address belongs to this machine alone."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


class Touches(StrEnum):
    """What an endpoint touches, on which its caller needs the verb of the endpoint."""

    NOTHING = "nothing"
    """It needs no credential."""
    CALLER = "caller"
    """Only the caller itself: every credential will do."""
    STORE = "store"
    """Everything."""
    PARTS = "parts"
    """Whatever of many things the caller has the verb on: the handler takes these, and leaves out the others."""
    RUN = "run"
    """The run, or the workflow run, whose id is in its path."""
    AGENT = "agent"
    """The agent whose name is in its path."""


class Need(NamedTuple):
    """What a caller needs for an endpoint."""

    verb: Verb
    on: Touches


class Admission(NamedTuple):
    """What the guard knows of a request: the endpoint, who calls, and what the caller may use it on."""

    route: Route
    credential: Credential | None
    """None for the few endpoints that need none."""
    touched: AccessObject = STORE
    sight: Sight | None = None
    """Of an endpoint that touches parts: those."""
    has_output: bool = True
    """Whether the caller may read what agents printed of what is touched."""
    version: int = 0
    """How many changes of access were recorded then."""

    @property
    def view(self) -> str:
        """The same for all callers that get the same reply: empty for those that see everything."""
        if self.has_output and (self.sight is None or self.sight.is_whole):
            return ""
        return f"{self.credential.id if self.credential is not None else ''}:{self.version}"


class RequestBucket:
    """Admits so many requests a second on average, and a burst at once."""

    __slots__ = ("level", "seen_us")

    def __init__(self, burst: float, now_us: int) -> None:
        self.level = burst
        self.seen_us = now_us

    def take(self, per_s: float, burst: float, now_us: int) -> bool:
        """Whether one more request is admitted now."""
        self.level = min(burst, self.level + (now_us - self.seen_us) / MICROSECONDS * per_s)
        self.seen_us = now_us
        if self.level < 1:
            return False
        self.level -= 1
        return True


class RateLimit:
    """Counts the requests of each caller."""

    def __init__(self, clock: Clock, per_s: float, burst: float) -> None:
        self._clock, self._per_s, self._burst = clock, per_s, burst
        self._buckets: OrderedDict[str, RequestBucket] = OrderedDict()

    def check(self, caller: str) -> None:
        """Count a request; RequestRefused when there were too many."""
        now_us = self._clock.steady_us()
        bucket = self._buckets.setdefault(caller, RequestBucket(self._burst, now_us))
        self._buckets.move_to_end(caller)
        if len(self._buckets) > CALLERS_MAX:
            self._buckets.popitem(last=False)
        if not bucket.take(self._per_s, self._burst, now_us):
            raise RequestRefused(429, "too many requests", "wait a second, and send fewer", {"Retry-After": "1"})


class RequestGuard:
    """Admits requests to the routes of an application, and refuses the others."""

    def __init__(self, routes: Sequence[Route], needs: Mapping[str, Need], access: Access, audit: Audit, clock: Clock,
                 site: Callable[[], Site]) -> None:  # fmt: skip
        self._routes: dict[tuple[str, int], list[Route]] = {}
        for each in routes:
            place, names = _place(each.path)
            key = ANYWHERE if "{" in place else (place, 0 if ":path}" in each.path else names)
            self._routes.setdefault(key, []).append(each)
        self._needs = needs
        self._access = access
        self._audit = audit
        self._clock = clock
        self._site = site
        self._requests = RateLimit(clock, REQUESTS_PER_S, REQUESTS_BURST)
        self._failures = RateLimit(clock, FAILURES_PER_S, FAILURES_BURST)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Admit one request."""
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008})
            return

        async def send_safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = message["headers"]
                names = {name for name, _value in given}
                added = _PART_HEADERS if PART in scope else _RAW_HEADERS
                message["headers"] = [*given, *(each for each in added if each[0] not in names)]
            await send(message)

        await self._answer(scope, receive, send_safely)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal: Response
        has_begun = False

        async def begin(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        try:
            scope["maos"] = admission = await self._admitted(scope)
            return await admission.route.handle(scope, _limited(receive), begin)
        except RequestRefused as refused:
            refusal = problems.of_refusal(refused)
        except MaosError as error:
            refusal = problems.of_error(error)
        except ClientDisconnect:
            return None
        except Exception as error:  # noqa: BLE001 - it is logged with its traceback
            self._log_failure(scope, error)
            refusal = problems.response(500, "the server failed", "its log says why; `maos admin doctor` may find it")
        if has_begun:  # the client notices that the response ends too early
            raise RuntimeError("a response failed after it had begun")
        return await refusal(scope, receive, send)

    def _log_failure(self, scope: Scope, error: Exception) -> None:
        admission = scope.get("maos")
        caller = admission.credential if admission is not None else None
        by = str(caller.principal) if caller is not None else ""
        about = {"method": scope["method"], "path": scope["path"]}
        server_log.write(server_log.REQUEST_FAILED, error, **about, by=by, reason=repr(error))

    async def _admitted(self, scope: Scope) -> Admission:
        raw: list[tuple[bytes, bytes]] = scope["headers"]
        if sum(len(name) + len(value) for name, value in raw) > HEADER_BYTES_MAX:
            raise RequestRefused(431, f"headers have at most {HEADER_BYTES_MAX} bytes")
        # Of a header that is given twice the first counts.
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in reversed(raw)}
        site = self._site()
        _check_host([value.decode("latin-1") for name, value in raw if name == b"host"], site)
        route, is_known_path = self._route(scope)
        # A path that does not exist needs a credential too: without one, nothing tells which paths there are.
        need = self._needs[route.name] if route is not None else Need(Verb.READ, Touches.CALLER)
        _check_origin(scope["method"], headers, site)
        credential = None
        if need.on is not Touches.NOTHING:
            try:
                credential = await self._authenticated(scope, headers, site, needs_origin=_is_stream(route))
            except Unauthenticated:
                entry = self._entry(scope, headers, route, need, "", "unauthenticated")
                await self._audit.count(entry)
                raise
            self._requests.check(credential.id)
        else:
            self._requests.check(_address(scope))
        if route is None:
            if is_known_path:
                raise RequestRefused(405, f"{scope['path']} does not take {scope['method']}")
            raise RequestRefused(
                404, f"there is nothing at {scope['path']!r:.200}", "/api/v1/openapi.json lists the paths"
            )
        if credential is None or need.on is Touches.CALLER:
            admission = Admission(route, credential)
        else:
            who = str(credential.principal)
            try:
                admission = await self._permitted(route, credential, need, scope["path_params"])
            except RequestRefused:
                await self._audit.count(self._entry(scope, headers, route, need, who, "denied"))
                raise
            _check_body(scope["method"], headers)
            await self._audit_allowed(self._entry(scope, headers, route, need, who, "allowed"), need)
            return admission
        _check_body(scope["method"], headers)
        return admission

    async def _audit_allowed(self, entry: AuditEntry, need: Need) -> None:
        """Record an act, and the first read of output, before it is executed; count other reads."""
        if need.verb is Verb.READ or (need.on is Touches.PARTS and need.verb is Verb.READ_OUTPUT):
            await self._audit.count(entry)
        elif need.verb is Verb.READ_OUTPUT:
            await self._audit.record_first(entry)
        else:
            await self._audit.record(entry)

    def _entry(
        self, scope: Scope, headers: Mapping[str, str], route: Route | None, need: Need, who: str, outcome: str
    ) -> AuditEntry:
        id, now_us = scope.get("path_params", {}).get("id", ""), self._clock.now_us()
        on = f"{need.on}/{id}" if need.on in (Touches.RUN, Touches.AGENT) else f"store/{id}" if id else "store"
        return AuditEntry(
            principal=who, verb=need.verb, on=on[:ON_CHARS_MAX], what=route.name if route is not None else "nothing",
            outcome=outcome, address=_address(scope), client=headers.get("user-agent", "")[:CLIENT_CHARS_MAX],
            first_us=now_us, last_us=now_us,
        )  # fmt: skip

    async def _permitted(
        self, route: Route, credential: Credential, need: Need, params: Mapping[str, Any]
    ) -> Admission:
        """Refuse what the caller has no grant for. The list of grants was read when the caller was authenticated."""
        who, access = credential.principal, self._access
        if need.on is Touches.PARTS:
            sight = await access.sight(who, need.verb, reload=False)
            if sight.is_empty:
                why = (await access.check(who, need.verb, reload=False)).why
                raise RequestRefused(403, why, "an admin can give access: `maos access grant`")
            return Admission(route, credential, STORE, sight, sight.has_output, access.version)
        touched = STORE if need.on is Touches.STORE else AccessObject(ScopeKind(need.on), params["id"])
        found = await access.check(who, need.verb, touched, reload=False)
        if not found.allowed:
            raise RequestRefused(403, found.why, "an admin can give access: `maos access grant`")
        output = await access.check(who, Verb.READ_OUTPUT, touched, reload=False)
        return Admission(route, credential, touched, None, output.allowed, access.version)

    def _route(self, scope: Scope) -> tuple[Route | None, bool]:
        """The route of a request, whose parameters are then in its scope, and whether another method has one."""
        partial = False
        place, names = _place(scope["path"])
        for route in chain.from_iterable(self._routes.get(key, ()) for key in ((place, names), (place, 0), ANYWHERE)):
            match, found = route.matches(scope)
            if match is Match.FULL:
                scope.update(found)
                return route, True
            partial = partial or match is Match.PARTIAL
        return None, partial

    async def _authenticated(
        self, scope: Scope, headers: Mapping[str, str], site: Site, *, needs_origin: bool
    ) -> Credential:
        """The credential of a request: a bearer token, or the cookie of a session, which must come from the page."""
        try:
            scheme, _, token = headers.get("authorization", "").partition(" ")
            if token:
                if scheme.lower() != "bearer":
                    raise Unauthenticated(f"there is no authorization by {scheme!r:.40}", hint="send a bearer token")
                return await self._access.authenticate(token.strip(), CredentialKind.TOKEN)
            cookie = Request(scope).cookies.get(COOKIE, "")
            if not cookie:
                raise Unauthenticated("no credential was sent", hint="sign in, or send a bearer token")
            found = await self._access.authenticate(cookie, CredentialKind.SESSION)
        except Unauthenticated:
            self._failures.check(_address(scope))
            raise
        is_unsafe = scope["method"] not in SAFE_METHODS
        if (is_unsafe or needs_origin) and not _comes_from(headers, site):
            raise RequestRefused(
                403, "a request with a cookie must come from the page itself", "programs send a bearer token"
            )
        return found


def _place(path: str) -> tuple[str, int]:
    """What a path begins with, such as `/api/v1/runs`, and how many names it has: a request is compared only with the
    routes of its place that have as many, or any number."""
    names = path.split("/")
    return "/".join(names[:4]), len(names)


def _is_stream(route: Route | None) -> bool:
    return route is not None and route.name == "stream"


def _address(scope: Scope) -> str:
    client = scope.get("client")
    return str(client[0]) if client else ""


def _check_host(hosts: Sequence[str], site: Site) -> None:
    """Refuse a request for another host: a page elsewhere can have its name resolved to this machine (A3)."""
    if len(hosts) != 1 or hosts[0].lower() not in site.hosts:
        given = ", ".join(hosts)
        raise RequestRefused(403, f"this server does not answer for the host {given!r:.100}",
                      "set serve.url to the address under which it is reached")  # fmt: skip


def _check_origin(method: str, headers: Mapping[str, str], site: Site) -> None:
    """Refuse what a page of another origin sends, whichever credential comes with it (A3, A4)."""
    origin = headers.get("origin")
    if origin is not None and origin.lower() not in site.origins:
        raise RequestRefused(403, f"pages of the origin {origin!r:.100} cannot use this server")
    is_navigation = method in SAFE_METHODS and headers.get("sec-fetch-mode") == "navigate"
    if headers.get("sec-fetch-site") in ("cross-site", "same-site") and not is_navigation:
        raise RequestRefused(403, "pages of another site cannot use this server")


def _comes_from(headers: Mapping[str, str], site: Site) -> bool:
    """Whether a browser says that a page of this server sent a request. A same-origin GET has no Origin."""
    origin = headers.get("origin")
    return origin.lower() in site.origins if origin is not None else headers.get("sec-fetch-site") == "same-origin"


def _check_body(method: str, headers: Mapping[str, str]) -> None:
    length = headers.get("content-length", "0")
    if not length.isascii() or not length.isdigit() or int(length[:18]) > BODY_BYTES_MAX:
        raise RequestRefused(413, f"a body has at most {BODY_BYTES_MAX} bytes")
    has_body = length != "0" or "transfer-encoding" in headers
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if method not in SAFE_METHODS and has_body and kind not in (JSON, FORM):
        raise RequestRefused(
            415, f"the body is {kind or 'of no type'!r:.60}", "send JSON, with Content-Type: application/json"
        )


def _limited(receive: Receive) -> Receive:
    """Receive a body, up to a size and for so long."""
    until_s = asyncio.get_running_loop().time() + BODY_S_MAX
    size, is_done = 0, False

    async def read() -> Message:
        nonlocal size, is_done
        if is_done:  # the connection is only watched for its end
            return await receive()
        try:
            async with asyncio.timeout_at(until_s):
                message = await receive()
        except TimeoutError:
            what = f"the body did not arrive within {BODY_S_MAX:g} s"
            raise RequestRefused(408, what, headers={"Connection": "close"}) from None
        if message["type"] == "http.request":
            size += len(message.get("body", b""))
            is_done = not message.get("more_body", False)
            if size > BODY_BYTES_MAX:
                raise RequestRefused(413, f"a body has at most {BODY_BYTES_MAX} bytes", headers={"Connection": "close"})
        return message

    return read
