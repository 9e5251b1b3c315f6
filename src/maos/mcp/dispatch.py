"""Executes calls of tools: any number at a time, each of which may wait, and be cancelled while it waits."""

from __future__ import annotations

import asyncio
import sys
import threading
import traceback
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any

from maos.errors import InvalidInput, MaosError
from maos.mcp import server
from maos.mcp.handlers import HANDLERS
from maos.mcp.server import Id, Message, Refused
from maos.mcp.session import Errand, Session
from maos.mcp.tools import BY_NAME, checked

if TYPE_CHECKING:
    from maos.mcp.server import Connection

CALLS_MAX = 16
CALLS_PER_MINUTE_MAX = 600
WAITING_MESSAGES_MAX = 64
PROGRESS_S = 10.0
FINISH_S_MAX = 10.0


class Dispatcher:
    """Executes the tool calls of one connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._session: Session | None = None
        self._opening = asyncio.Lock()
        self._calls: dict[Id, tuple[asyncio.Task[None], Errand]] = {}
        self._times: deque[float] = deque(maxlen=CALLS_PER_MINUTE_MAX)

    def serve(self, first: Message) -> int:
        """Until the end of the input."""
        asyncio.run(self._serve(first))
        return 0

    async def _serve(self, first: Message) -> None:
        messages: asyncio.Queue[Message | None] = asyncio.Queue(WAITING_MESSAGES_MAX)
        reader = threading.Thread(target=self._read, args=(asyncio.get_running_loop(), messages), daemon=True)
        reader.start()
        message: Message | None = first
        try:
            while message is not None:
                self._take(message)
                message = await messages.get()
            await self._finish()
        finally:
            calls = [call for call, _errand in self._calls.values()]
            for call in calls:
                call.cancel()
            await asyncio.gather(*calls, return_exceptions=True)
            if self._session is not None:
                await self._session.maos.close()

    async def _finish(self) -> None:
        """The client asks for nothing more: do what it asked for, without waiting for anybody else."""
        until_s = asyncio.get_running_loop().time() + FINISH_S_MAX
        while self._calls and asyncio.get_running_loop().time() < until_s:
            for call, errand in self._calls.values():
                if errand.waits:
                    call.cancel()
            await asyncio.wait([call for call, _errand in self._calls.values()], timeout=0.05)

    def _read(self, loop: asyncio.AbstractEventLoop, messages: asyncio.Queue[Message | None]) -> None:
        """A thread, because any kind of file may be our input; a client that asks too fast waits."""
        is_over = False
        while not is_over:
            message, is_over = self._connection.next()
            if message is not None or is_over:
                try:
                    asyncio.run_coroutine_threadsafe(messages.put(message), loop).result()
                except RuntimeError:  # the loop has ended before us
                    return

    def _take(self, message: Message) -> None:
        if message.method == "notifications/cancelled":
            asked = message.params.get("requestId")
            if isinstance(asked, str | int) and asked in self._calls:
                self._calls[asked][0].cancel()
        elif message.method == "tools/call" and message.id is not None:
            if self._session is not None:
                self._session.calls.prove(message.seen)
            if message.id in self._calls:
                self._send(server.error(Refused(server.INVALID, "that id is in use", id=message.id)))
                return
            errand = Errand(self._progress_of(message.params))
            call = asyncio.create_task(self._call(message.id, message.params, errand))
            self._calls[message.id] = (call, errand)
            call.add_done_callback(partial(self._forget, message.id))
        else:
            self._connection.respond(message)

    def _forget(self, id: Id, _done: asyncio.Task[None]) -> None:
        self._calls.pop(id, None)

    async def _call(self, id: Id, params: dict[str, Any], errand: Errand) -> None:
        try:
            said = server.text(await self._act(params, errand))
        except Refused as refused:
            refused.id = id
            self._send(server.error(refused))
            return
        except MaosError as error:
            said = server.text(str(error), failed=True)
        except Exception as error:  # noqa: BLE001 - a bug of ours: the agent is told, its program's log has the rest
            traceback.print_exc(file=sys.stderr)
            self._send(server.error(Refused(server.BROKEN, f"maos failed: {type(error).__name__}", id=id)))
            return
        number = self._send(server.result(id, said))
        if number and self._session is not None:
            self._session.calls.answered(errand.calls, errand.read, number)

    async def _act(self, params: dict[str, Any], errand: Errand) -> str:
        name = params.get("name")
        tool = BY_NAME.get(name) if isinstance(name, str) else None
        if tool is None:
            raise Refused(server.BAD_PARAMETERS, f"there is no tool {name!r:.100}")
        arguments = checked(tool, params.get("arguments") or {})
        self._check_pace()
        session = await self._opened()
        await session.calls.acknowledge()
        return await HANDLERS[tool.name](session, errand, **session.clean(arguments))

    def _check_pace(self) -> None:
        if len(self._calls) > CALLS_MAX:
            raise InvalidInput(f"more than {CALLS_MAX} calls at once", hint="wait for the answers to some of them")
        now_s = asyncio.get_running_loop().time()
        if len(self._times) == CALLS_PER_MINUTE_MAX and now_s - self._times[0] < 60:
            raise InvalidInput(f"more than {CALLS_PER_MINUTE_MAX} calls a minute", hint="go on in a minute")
        self._times.append(now_s)

    async def _opened(self) -> Session:
        async with self._opening:
            if self._session is None:
                self._session = await Session.open(self._connection.identity)
            return self._session

    def _progress_of(self, params: dict[str, Any]) -> Any:
        """What tells the client now and then that we are still there, so that it does not give up."""
        meta = params.get("_meta")
        token = meta.get("progressToken") if isinstance(meta, dict) else None
        if isinstance(token, bool) or not isinstance(token, str | int):
            return None
        beginning_s = asyncio.get_running_loop().time()
        last_s = beginning_s

        def tell(what: str) -> None:
            nonlocal last_s
            now_s = asyncio.get_running_loop().time()
            if now_s - last_s >= PROGRESS_S:
                last_s = now_s
                about = {"progressToken": token, "progress": round(now_s - beginning_s, 3), "message": what}
                self._send(server.notification("notifications/progress", about))

        return tell

    def _send(self, message: dict[str, Any]) -> int:
        return self._connection.output.send(message)
