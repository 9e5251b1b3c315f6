"""The server: finds the position of each request in a script, and sends the step or its fault."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from types import ModuleType, TracebackType
from typing import Any, NamedTuple, Self

import msgspec

from maos_testing.model_stub import generate, http, messages, responses
from maos_testing.model_stub.conversation import ScriptPosition, UnknownScript, next_step, place
from maos_testing.model_stub.reply import Turn
from maos_testing.model_stub.script import ScriptFault, Scripts, ScriptStep, TokenCount, as_scripts

REQUESTS_MAX = 256
COUNTS_MAX = 10_000
REQUESTS_PATH = "/stub/requests"
ENDS = ("message_delta", "response.completed")
"""The events of both APIs that say how long the reply was."""


class Asked(NamedTuple):
    """A request that the stub received."""

    path: str
    headers: Mapping[str, str]
    body: Mapping[str, Any]
    script: str = ""
    """Empty for a request outside the conversation."""
    step: int = -1
    fault: str = ""


class Charge(NamedTuple):
    """What a provider charges for one reply: the input from its first event on, the output when its end was sent."""

    model: str
    tokens: TokenCount


class ModelStub:
    """A model on loopback that follows scripts; `url` is what agent programs take as their base URL.

    `scripts` is a list of steps, or several such lists by name; a prompt chooses one with `SCRIPT=name`.
    """

    def __init__(self, scripts: Scripts | Sequence[ScriptStep], *, port: int = 0) -> None:
        self.scripts = as_scripts(scripts)
        self.requests: deque[Asked] = deque(maxlen=REQUESTS_MAX)
        self.charges: list[Charge] = []
        """What the replies cost that were sent, also those that were cut off."""
        self.arrived = asyncio.Event()
        """Set whenever a request has been recorded; for tests that wait for one."""
        self._port = port
        self._server: asyncio.Server | None = None
        self._clients: set[asyncio.Task[None]] = set()
        self._tries: Counter[tuple[str, ScriptPosition]] = Counter()
        self._bodies: Counter[bytes] = Counter()

    @property
    def port(self) -> int:
        """The port it listens on."""
        assert self._server is not None, "the stub has not been started"
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    @property
    def url(self) -> str:
        """The base URL, without a path."""
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        """Start listening."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port, limit=http.HEADER_BYTES_MAX)

    async def close(self) -> None:
        """Stop listening and abort every connection, including those that hang on purpose."""
        if self._server is None:
            return
        self._server.close()
        for client in list(self._clients):
            client.cancel()
        await asyncio.gather(*self._clients, return_exceptions=True)
        await self._server.wait_closed()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def script(self, name: str, *steps: ScriptStep) -> None:
        """Set the script of a name; a prompt chooses it with `SCRIPT=name`."""
        self.scripts = as_scripts({**self.scripts, name: list(steps)})

    def asked(self, script: str) -> list[Asked]:
        """Return the requests that followed one script."""
        return [each for each in self.requests if each.script == script]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._clients.add(task)
        try:
            try:
                while (request := await http.read_request(reader)) is not None:
                    if not await self._answer(request, reader, writer):
                        break
            except http.BadRequest as error:
                await http.send_json(writer, 400, {"error": {"message": str(error)}})
        except (ConnectionError, asyncio.CancelledError):
            writer.transport.abort()  # the client has disconnected, or the stub is closing
        finally:
            self._clients.discard(task)
            writer.close()

    async def _answer(
        self, request: http.HttpRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        """Answer one request; return whether the connection stays open."""
        api = _api(request.path)
        if request.method != "POST" or api is None:
            await self._answer_beside(request, writer)
            return True
        if request.path.endswith("/count_tokens"):
            await http.send_json(writer, 200, {"input_tokens": len(request.body) // 4})
            return True
        body: dict[str, Any] = {}
        try:
            body = msgspec.json.decode(request.body, type=dict[str, Any])
            if api is generate:  # whose requests say this with their paths
                body = {**body, "model": request.path.rpartition("/")[2].partition(":")[0]}
                body["stream"] = request.path.endswith(generate.STREAMED)
            said = api.parse_conversation(body)
            side = api.side_reply(body)
            where = place(said)
            step = side or next_step(self.scripts, where, said)
        except (msgspec.MsgspecError, AttributeError, TypeError, UnknownScript) as error:
            self._record(Asked(request.path, request.headers, body))
            await http.send_json(writer, 400, api.error_body(ScriptFault(status=400, message=f"model stub: {error}")))
            return True
        turn = Turn(self._turn_id(request.body), str(body.get("model") or "stub"), step)
        if side is not None:
            self._record(Asked(request.path, request.headers, body))
            return await self._reply(api, turn, None, body, writer)
        who = api.conversation(body, request.headers) or next((each.text for each in said if each.who == "user"), "")
        if len(self._tries) > COUNTS_MAX:
            self._tries.clear()
        fault = step.fault(self._tries[who, where])
        self._tries[who, where] += 1
        kind = fault.kind if fault else ""
        self._record(Asked(request.path, request.headers, body, where.script, where.step, kind))
        whole = await self._reply(api, turn, fault, body, writer)
        while fault is not None and fault.kind == "hang" and await reader.read(http.HEADER_BYTES_MAX):
            pass  # silent until the client disconnects
        return whole

    async def _reply(
        self,
        api: ModuleType,
        turn: Turn,
        fault: ScriptFault | None,
        body: Mapping[str, Any],
        writer: asyncio.StreamWriter,
    ) -> bool:
        """Send a step or its fault; return whether the reply was complete."""
        if turn.step.wait_s:
            await asyncio.sleep(turn.step.wait_s)
        about = {"request-id": f"req_{turn.id}", "x-request-id": f"req_{turn.id}"}
        if fault is not None and (fault.kind == "status" or (fault.kind == "error" and not body.get("stream"))):
            headers = {**about, **fault.headers}
            if fault.retry_after_s is not None:
                headers["retry-after"] = f"{fault.retry_after_s:g}"
            await http.send_json(writer, fault.status, api.error_body(fault), headers)
            return True
        if body.get("stream"):
            return await self._stream(api, turn, fault, about, writer)
        if fault is None:
            self.charges.append(Charge(turn.model, turn.step.tokens))
            await http.send_json(writer, 200, api.whole(turn), about)
        return fault is None

    async def _stream(
        self,
        api: ModuleType,
        turn: Turn,
        fault: ScriptFault | None,
        about: Mapping[str, str],
        writer: asyncio.StreamWriter,
    ) -> bool:
        events = list(api.events(turn))
        chars_max = sum(event.chars for event in events)
        if fault is not None:
            chars_max = chars_max // 2 if fault.after_chars is None else fault.after_chars
        await http.begin_stream(writer, about)
        chars, place = 0, len(self.charges)
        self.charges.append(Charge(turn.model, msgspec.structs.replace(turn.step.tokens, output=1)))
        for event in events:
            chars += event.chars
            if fault is not None and (chars > chars_max or (event is events[-1])):
                if fault.kind != "error":
                    return False
                wrong = api.error_event(fault, turn)
                await http.send_event(writer, wrong.name, wrong.data)
                break
            if event.chars and turn.step.delay_s:
                await asyncio.sleep(turn.step.delay_s)
            await http.send_event(writer, event.name, event.data)
            if event.name in ENDS:
                self.charges[place] = Charge(turn.model, turn.step.tokens)
        await http.end_stream(writer)
        return True

    async def _answer_beside(self, request: http.HttpRequest, writer: asyncio.StreamWriter) -> None:
        if request.method == "HEAD":
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
            await writer.drain()
        elif request.method == "GET" and request.path == REQUESTS_PATH:
            await http.send_json(writer, 200, [each._asdict() for each in self.requests])
        elif request.method == "GET" and request.path.endswith("/models"):
            await http.send_json(writer, 200, {"object": "list", "data": [], "models": [], "has_more": False})
        elif _api(request.path) is not None:
            await http.send_json(writer, 405, {"error": {"message": "POST only"}})
        else:
            self._record(Asked(request.path, request.headers, {}))
            await http.send_json(writer, 404, {"error": {"message": f"the stub has no {request.path}"}})

    def _record(self, asked: Asked) -> None:
        self.requests.append(asked)
        self.arrived.set()

    def _turn_id(self, body: bytes) -> str:
        """Return an id of the turn: a repeated request is another turn, as with a real model."""
        digest = hashlib.sha256(body).digest()[:8]
        if len(self._bodies) > COUNTS_MAX:
            self._bodies.clear()
        self._bodies[digest] += 1
        return f"{digest.hex()}{self._bodies[digest]:04d}"


def _api(path: str) -> ModuleType | None:
    if path.endswith(("/messages", "/messages/count_tokens")):
        return messages
    if path.endswith(generate.PATHS):
        return generate
    return responses if path.endswith("/responses") else None
