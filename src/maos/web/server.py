"""The server of `maos serve`: the supervisor, the API and the page in one process, until it is stopped.

It listens on this machine alone unless it has TLS. A server that is killed loses nothing: the next one resumes what it
executed, and clients continue from the position that they have.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import uvicorn
from starlette.routing import Route
from uvicorn.protocols.http.h11_impl import H11Protocol

from maos.errors import InvalidInput
from maos.settings.schema import ServeSettings
from maos.web.api import Endpoint, EndpointApp, ServerContext
from maos.web.endpoints.table import ENDPOINTS, PAGES
from maos.web.guard import HEADER_BYTES_MAX, Need, RequestGuard, Site, is_loopback

if TYPE_CHECKING:
    from maos.app import Maos

CONNECTIONS_MAX = 1_024
HEADER_S_MAX = 10.0
KEEP_ALIVE_S = 30
STOP_S_MAX = 3
BACKLOG = 128


class SlowClientProtocol(H11Protocol):
    """HTTP/1.1 for clients that may send their headers as slowly as they like: they have a time limit (A20)."""

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Start waiting for a request."""
        super().connection_made(transport)
        self._expect_request()

    def data_received(self, data: bytes) -> None:
        """Receive more; the time limit of a request begins with its first byte, and ends with its headers."""
        if self._deadline is None and not self._is_answering():
            self._expect_request()
        super().data_received(data)
        if self._is_answering():
            self._forget_deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._forget_deadline()
        super().connection_lost(exc)

    def _expect_request(self) -> None:
        self._deadline = self.loop.call_later(HEADER_S_MAX, self._give_up)

    def _forget_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _give_up(self) -> None:
        self._deadline = None
        if not self.transport.is_closing() and not self._is_answering():
            self.transport.close()

    def _is_answering(self) -> bool:
        cycle: Any = self.cycle  # None until the first request
        return cycle is not None and not cycle.response_complete


class _Uvicorn(uvicorn.Server):
    """uvicorn without its own signal handlers: `MaosServer` is told when to stop."""

    def __init__(self, config: uvicorn.Config, accepting: asyncio.Event) -> None:
        super().__init__(config)
        self._accepting = accepting

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start accepting requests, and say so."""
        await super().startup(sockets)
        self._accepting.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class MaosServer:
    """Engine, API and page in one process."""

    def __init__(self, m: Maos, values: ServeSettings, *, folder: Path, is_executing: bool = True) -> None:
        check_address(values)
        self.m = m
        self._values = values
        self.context = ServerContext(m, values, folder=folder, is_executing=is_executing)
        endpoints = (*ENDPOINTS, *PAGES)
        routes = [_route(each, self.context) for each in endpoints]
        needs = {each.name: Need(each.verb, each.on) for each in endpoints}
        self.routes = routes
        self.app = RequestGuard(routes, needs, m.access, m.audit, m.clock, lambda: self.context.site)
        self._executing = contextlib.AsyncExitStack()
        self._accepting = asyncio.Event()

    @property
    def url(self) -> str:
        """Where it is reached."""
        if self._values.url:
            return self._values.url.rstrip("/")
        scheme = "https" if self._values.tls_certificate else "http"
        host = f"[{self._values.host}]" if ":" in self._values.host else self._values.host
        return f"{scheme}://{host}:{self._values.port}"

    async def serve(
        self, stop: asyncio.Event, ready: Callable[[str], None], tell: Callable[[str], None] | None = None
    ) -> None:
        """Serve until `stop` is set; `ready` gets the address once requests are accepted, `tell` what people see."""
        self.m.principal.check_may_decide("run a server")
        listener = _listen(self._values.host, self._values.port)
        try:
            self._values = msgspec.structs.replace(self._values, port=listener.getsockname()[1])
            tls = bool(self._values.tls_certificate)
            self.context.site = Site.of(self._values.host, self._values.port, self._values.url, tls=tls)
            server = _Uvicorn(self._config(), self._accepting)
            serving = asyncio.create_task(server.serve(sockets=[listener]))
            try:
                await self._serve_until(stop, partial(ready, self.url), tell, serving)
            finally:
                self.context.closing.set()
                self.m.activity.wake()  # streams that wait end too
                server.should_exit = True
                await asyncio.gather(serving, return_exceptions=True)
                await self._executing.aclose()
                await self.m.audit.flush()
                await self.context.close()
        finally:
            listener.close()

    async def _serve_until(
        self,
        stop: asyncio.Event,
        ready: Callable[[], None],
        tell: Callable[[str], None] | None,
        serving: asyncio.Task[None],
    ) -> None:
        accepting = asyncio.create_task(self._accepting.wait())
        await asyncio.wait([serving, accepting], return_when=asyncio.FIRST_COMPLETED)
        accepting.cancel()
        if serving.done():
            serving.result()  # it failed, and says why
            return
        auditing = asyncio.create_task(self.m.audit.flush_always())
        works = [serving, auditing]
        self._executing.push_async_callback(_end, auditing)
        if self.context.is_executing:
            executing = self.m.supervisor.announced(self.url, on_stop=self._values.on_stop, tell=tell)
            works.append(await self._executing.enter_async_context(executing))
        ready()
        stopped = asyncio.create_task(stop.wait())
        await asyncio.wait([*works, stopped], return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        for task in works:
            if task.done():
                task.result()  # it failed, and says why

    def _config(self) -> uvicorn.Config:
        return uvicorn.Config(
            self.app,
            http=SlowClientProtocol,
            ws="none",
            lifespan="off",
            access_log=False,
            log_config=None,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=CONNECTIONS_MAX,
            backlog=BACKLOG,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=STOP_S_MAX,
            h11_max_incomplete_event_size=HEADER_BYTES_MAX,
            ssl_certfile=self._values.tls_certificate or None,
            ssl_keyfile=self._values.tls_key or None,
        )


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def check_address(values: ServeSettings) -> None:
    """InvalidInput for an address that others can reach and that has no TLS (A1), and for TLS that cannot be used."""
    if bool(values.tls_certificate) != bool(values.tls_key):
        raise InvalidInput("TLS needs a certificate and its key", hint="set serve.tls_certificate and serve.tls_key")
    if not is_loopback(values.host) and not values.tls_certificate:
        raise InvalidInput(
            f"{values.host} can be reached from other machines, and there is no TLS",
            hint="use 127.0.0.1 behind a reverse proxy (serve.url), or set serve.tls_certificate and serve.tls_key",
        )
    if values.tls_certificate:
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(values.tls_certificate, values.tls_key)
        except (OSError, ValueError) as error:
            what = f"{values.tls_certificate} and {values.tls_key} are no certificate and its key: {error}"
            raise InvalidInput(what, hint="they are files in the form PEM") from error


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With the protocol: only then asyncio switches off Nagle's algorithm, with which each reply waits 40 ms for an ACK.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host.strip("[]"), port))
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        what = f"{host}:{port} cannot be listened on: {error.strerror}"
        raise InvalidInput(what, hint="choose another --port, or 0 for a free one") from error
    return listener


def _route(endpoint: Endpoint, context: ServerContext) -> Route:
    return Route(endpoint.path, EndpointApp(endpoint, context), methods=[endpoint.method], name=endpoint.name)
