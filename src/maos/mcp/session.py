"""Executes the tool calls of one client: several at a time, each of which may wait, and be cancelled while it waits."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Mapping
from itertools import chain
from typing import Any

import msgspec

from maos.app import Maos, Outage
from maos.app import open as open_maos
from maos.errors import InvalidInput, MaosError
from maos.mcp.protocol import BAD_PARAMETERS, BROKEN, INVALID, Id, Refused, RpcChannel, RpcMessage
from maos.mcp.tools import BY_NAME, NEEDS, WAITING, check_arguments
from maos.model import tool_calls as names
from maos.redact import Redactor, clean, is_secret_name, is_secret_value
from maos.runs.agent_tools import AgentTools, ToolReply

CALLS_MAX = 16
CALLS_PER_MINUTE_MAX = 600
WAITING_MESSAGES_MAX = 64
PROGRESS_S = 10.0
FINISH_S_MAX = 10.0


def _report_outage(outage: Outage) -> None:
    """Agents' programs keep what their MCP servers print on standard error."""
    said = "the database is back" if outage.until_us else f"waiting for the database: {outage.why}"
    sys.stderr.write(f"maos mcp: {said}\n")


class RunningCall:
    """A tool call that is being executed."""

    def __init__(self, channel: RpcChannel, message: RpcMessage) -> None:
        assert message.id is not None
        self.id: Id = message.id
        self.params = message.params
        self.waits = False
        """Whether it only waits for another agent or a person."""
        self._channel = channel
        meta = self.params.get("_meta")
        token = meta.get("progressToken") if isinstance(meta, dict) else None
        self._token = token if isinstance(token, str | int) and not isinstance(token, bool) else None
        self._begun_s = self._last_s = asyncio.get_running_loop().time()

    def on_wait(self, what: str) -> None:
        """Report progress every PROGRESS_S, if the client wants to know, so that it does not give up."""
        self.waits = True
        now_s = asyncio.get_running_loop().time()
        if self._token is not None and now_s - self._last_s >= PROGRESS_S:
            self._last_s = now_s
            progress = {"progressToken": self._token, "progress": round(now_s - self._begun_s, 3), "message": what}
            self._channel.notify("notifications/progress", progress)


class ToolSession:
    """Executes the tool calls of one client, in the database that is opened with the first of them."""

    def __init__(
        self, channel: RpcChannel, environment: Mapping[str, str], respond: Callable[[RpcMessage], None]
    ) -> None:
        self._channel = channel
        self._environment = environment
        self._respond = respond
        # Agents' programs pass their own variables on, keys included: their values never get into the journal.
        self._redactor = Redactor(
            {name: value for name, value in environment.items() if is_secret_name(name) and is_secret_value(value)}
        )
        self._maos: Maos | None = None
        self._tools: AgentTools | None = None
        self._opening = asyncio.Lock()
        self._calls: dict[Id, tuple[asyncio.Task[None], RunningCall]] = {}
        self._times: deque[float] = deque(maxlen=CALLS_PER_MINUTE_MAX)

    async def serve(self, first: RpcMessage) -> None:
        """Execute calls until the input ends."""
        messages: asyncio.Queue[RpcMessage | None] = asyncio.Queue(WAITING_MESSAGES_MAX)
        reader = threading.Thread(target=self._read, args=(asyncio.get_running_loop(), messages), daemon=True)
        reader.start()
        message: RpcMessage | None = first
        try:
            while message is not None:
                self._handle(message)
                message = await messages.get()
            await self._finish()
        finally:
            tasks = [task for task, _call in self._calls.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if self._maos is not None:
                await self._maos.close()

    def _read(self, loop: asyncio.AbstractEventLoop, messages: asyncio.Queue[RpcMessage | None]) -> None:
        """Read in a thread, because the input may be any kind of file; when the queue is full, the client waits."""
        try:
            for message in chain(self._channel.messages(), [None]):
                asyncio.run_coroutine_threadsafe(messages.put(message), loop).result()
        except RuntimeError:  # the loop has ended
            return

    async def _finish(self) -> None:
        """The input has ended: complete the calls that are being executed, except those that only wait."""
        until_s = asyncio.get_running_loop().time() + FINISH_S_MAX
        while self._calls and asyncio.get_running_loop().time() < until_s:
            for task, call in self._calls.values():
                if call.waits:
                    task.cancel()
            await asyncio.wait([task for task, _call in self._calls.values()], timeout=0.05)

    def _handle(self, message: RpcMessage) -> None:
        if message.method == "notifications/cancelled":
            id = message.params.get("requestId")
            if isinstance(id, str | int) and id in self._calls:
                self._calls[id][0].cancel()
        elif message.method == "tools/call" and message.id is not None:
            if self._tools is not None:
                self._tools.prove(message.seen)
            if message.id in self._calls:
                self._channel.send_error(Refused(INVALID, "that id is in use", id=message.id))
                return
            call = RunningCall(self._channel, message)
            task = asyncio.create_task(self._execute(call))
            self._calls[call.id] = (task, call)
            task.add_done_callback(lambda _done: self._calls.pop(call.id, None))
        else:
            self._respond(message)

    async def _execute(self, call: RunningCall) -> None:
        failed = False
        try:
            reply = await self._call_tool(call)
        except Refused as refused:
            refused.id = call.id
            self._channel.send_error(refused)
            return
        except MaosError as error:  # the model reads it, and can correct its call
            reply, failed = ToolReply(str(error)), True
        except Exception as error:  # noqa: BLE001 - a bug of maos: the log of the agent's program has the traceback
            traceback.print_exc(file=sys.stderr)
            self._channel.send_error(Refused(BROKEN, f"maos failed: {type(error).__name__}", id=call.id))
            return
        result = {"content": [{"type": "text", "text": reply.text}], "isError": failed}
        number = self._channel.send_result(call.id, result)
        if number and self._tools is not None:
            self._tools.sent(reply, number)

    async def _call_tool(self, call: RunningCall) -> ToolReply:
        name = call.params.get("name")
        tool = BY_NAME.get(name) if isinstance(name, str) else None
        if tool is None:
            raise Refused(BAD_PARAMETERS, f"there is no tool {name!r:.100}")
        arguments = check_arguments(tool, call.params.get("arguments") or {})
        self._check_pace()
        tools = await self._open()
        assert self._maos is not None
        verb, on = NEEDS[tool["name"]]
        await self._maos.access.require_own(verb, on)
        await tools.acknowledge()
        waits = {"on_wait": call.on_wait} if tool["name"] in WAITING else {}
        reply = await getattr(tools, tool["name"])(**clean(arguments, self._redactor.text), **waits)
        if isinstance(reply, ToolReply):
            return reply
        return ToolReply(json.dumps(msgspec.to_builtins(reply), ensure_ascii=False))

    def _check_pace(self) -> None:
        if len(self._calls) > CALLS_MAX:
            raise InvalidInput(f"more than {CALLS_MAX} calls at once", hint="wait for the replies to some of them")
        now_s = asyncio.get_running_loop().time()
        if len(self._times) == CALLS_PER_MINUTE_MAX and now_s - self._times[0] < 60:
            raise InvalidInput(f"more than {CALLS_PER_MINUTE_MAX} calls a minute", hint="wait a minute")
        self._times.append(now_s)

    async def _open(self) -> AgentTools:
        """Open the database, which must exist: an agent's reports belong into the one that the engine uses. Which agent
        that is, the attempt says that the variables name and prove."""
        async with self._opening:
            if self._tools is None:
                given = self._environment
                more: Any = {"schema": given[names.SCHEMA]} if given.get(names.SCHEMA) else {}
                if self._maos is None:
                    self._maos = await open_maos(
                        given[names.DATABASE],
                        create=False,
                        environment=given,
                        wait_s=None,
                        on_outage=_report_outage,
                        **more,
                    )
                self._tools = await self._maos.tools()
            return self._tools
