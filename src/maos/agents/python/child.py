"""The process of a Python function that runs as an agent: `python -P -m maos.agents.python.child`.

It reads its order from the standard input, then moves both ends of the protocol to descriptors of its own: whatever
the function and its children print goes elsewhere, so no printed text can be taken for a line of the protocol.
"""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import importlib
import inspect
import io
import json
import os
import platform
import signal
import sys
import traceback
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any

from maos.agents.python.context import Channel, Context, FunctionInbox

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

ENDED_BY_TERM = 128 + signal.SIGTERM
TRACEBACK_CHARS_MAX = 20_000

_OURS = (__file__, os.path.dirname(asyncio.__file__), os.path.dirname(importlib.__file__), "<frozen importlib")


class PrintedLines(io.BufferedIOBase):
    """What the function prints, sent to the engine as soon as a line is whole."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._rest = b""

    def writable(self) -> bool:
        """Yes."""
        return True

    def fileno(self) -> int:
        """The standard output of its child processes, which is its standard error."""
        return 1

    def write(self, data: ReadableBuffer) -> int:
        """Send the lines that are whole now."""
        new = bytes(data)
        *lines, self._rest = (self._rest + new).split(b"\n")
        for line in lines:
            self._send(line)
        return len(new)

    def finish(self) -> None:
        """Send what was printed without a newline."""
        if self._rest:
            self._send(self._rest)
            self._rest = b""

    def _send(self, line: bytes) -> None:
        try:
            self._channel.send("line", text=line.decode())
        except UnicodeDecodeError:
            self._channel.send("line", base64=base64.b64encode(line).decode("ascii"))


def main() -> int:
    """Run the function that the order names; the exit code says whether it returned."""
    channel, inbox = Channel(os.dup(1)), os.fdopen(os.dup(0), "rb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    printed = PrintedLines(channel)
    sys.stdout = io.TextIOWrapper(printed, encoding="utf-8", errors="backslashreplace", write_through=True)
    line = inbox.readline()
    if not line.endswith(b"\n"):
        sys.exit("no order came")
    order = json.loads(line)
    mailbox = FunctionInbox(inbox)
    mailbox.open()
    channel.send("started", python=platform.python_version())
    try:
        function = _load(order["function"])
    except Exception as error:  # noqa: BLE001  # whatever a module does while it is imported
        channel.send("failed", failure="start_failed", text=_message(error), traceback=_told(error))
        return 1
    try:
        result = _call(function, Context(order, channel, mailbox))
    except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001  # it is reported in full
        printed.finish()
        channel.send("failed", failure="failed", text=_message(error), traceback=_told(error))
        return 1
    printed.finish()
    text, form = _as_text(result)
    channel.send("result", text=text, form=form)
    return 0


def _load(name: str) -> Callable[[Context], Any]:
    """The function `module:name`, looked for in the folder the agent works in first."""
    sys.path.insert(0, os.getcwd())
    module, _, path = name.partition(":")
    found: Any = importlib.import_module(module)
    for part in path.split("."):
        found = getattr(found, part)
    if not callable(found):
        raise TypeError(f"{name} is not a function")
    function: Callable[[Context], Any] = found
    return function


def _call(function: Callable[[Context], Any], context: Context) -> Any:
    if inspect.iscoroutinefunction(function):
        return asyncio.run(_until_terminated(function(context)))
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(ENDED_BY_TERM))
    result = function(context)
    return asyncio.run(_until_terminated(result)) if inspect.iscoroutine(result) else result


async def _until_terminated(work: Any) -> Any:
    """The result; a TERM cancels the function, so that it can put things in order, and then ends the process."""
    task = asyncio.ensure_future(work)
    terminated = asyncio.Event()

    def terminate() -> None:
        terminated.set()
        task.cancel()

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, terminate)
    try:
        return await task
    except asyncio.CancelledError:
        if terminated.is_set():
            sys.exit(ENDED_BY_TERM)
        raise


def _message(error: BaseException) -> str:
    return "".join(traceback.format_exception_only(error)).strip()[-TRACEBACK_CHARS_MAX:]


def _told(error: BaseException) -> str:
    """The traceback from the first frame that is not ours or Python's own; its end, if it is long."""
    at: TracebackType | None = error.__traceback__
    while at is not None and at.tb_frame.f_code.co_filename.startswith(_OURS):
        at = at.tb_next
    return "".join(traceback.format_exception(type(error), error, at))[-TRACEBACK_CHARS_MAX:].strip()


def _as_text(result: Any) -> tuple[str, str]:
    """What the function returned as text, and its form: text as it is, "none" for nothing, else "json"."""
    if isinstance(result, str):
        return result, ""
    return ("", "none") if result is None else (json.dumps(result, ensure_ascii=False, default=_plain), "json")


def _plain(value: Any) -> Any:
    """A value that JSON does not know: a dataclass, a struct or a model as its fields, anything else as its repr."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
    if callable(dump := getattr(type(value), "model_dump", None)):
        return dump(value, mode="json")
    if isinstance(names := getattr(value, "__struct_fields__", None), tuple):
        return {name: getattr(value, name) for name in names}
    return sorted(value) if isinstance(value, (set, frozenset)) else repr(value)


if __name__ == "__main__":
    sys.exit(main())
