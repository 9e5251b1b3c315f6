"""maos for programs without asyncio: the same services, called from any thread.

    with maos.connect("maos.db") as m:
        run = m.runs.start(plan, folder=".")
        for record in m.journal.read("run/" + run.id):
            print(record.type)

One background thread runs the event loop. What returns a coroutine there returns its result here, an async iterator is
an iterator, an async context manager a context manager. Callbacks, such as listeners and observers, are called in the
background thread.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Self, TypeVar

from maos import app

T = TypeVar("T")

END_S = 10.0
"""How long Ctrl+C waits for what it has cancelled to end."""


class LoopThread:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="maos", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine and return its result. Interrupted, with Ctrl+C, cancel it and wait until it has ended."""
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError("a callback cannot wait for maos: it runs in the thread that would have to do the work")
        ended = threading.Event()

        async def watched() -> T:
            try:
                return await work
            finally:
                ended.set()

        future = asyncio.run_coroutine_threadsafe(watched(), self._loop)
        try:
            return future.result()
        except BaseException:
            if not ended.is_set():
                future.cancel()
                ended.wait(END_S)
            raise

    def close(self) -> None:
        """End the thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class Proxy:
    """An object of maos whose methods wait for their results."""

    def __init__(self, thread: LoopThread, target: Any) -> None:
        self._thread = thread
        self._target = target

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        value = self._thread.run(_await(getattr, self._target, name))  # a service is made when it is first used
        if callable(value) and not isinstance(value, type):
            return self._method(value)
        return self._wrap(value)

    def __enter__(self) -> Any:
        return self._wrap(self._thread.run(_await(self._target.__aenter__)))

    def __exit__(self, *error: Any) -> bool | None:
        is_handled: bool | None = self._thread.run(_await(self._target.__aexit__, *error))
        return is_handled

    def __iter__(self) -> Iterator[Any]:
        iterator = self._target.__aiter__()
        try:
            while True:
                try:
                    yield self._wrap(self._thread.run(_await(iterator.__anext__)))
                except StopAsyncIteration:
                    return
        finally:
            if hasattr(iterator, "aclose"):
                self._thread.run(_await(iterator.aclose))

    def __dir__(self) -> list[str]:
        return dir(self._target)

    def __repr__(self) -> str:
        return f"<{type(self._target).__name__} of maos>"

    def _method(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            plain, named = map(_unwrap, args), {name: _unwrap(each) for name, each in options.items()}
            return self._wrap(self._thread.run(_await(method, *plain, **named)))

        call.__name__, call.__doc__ = getattr(method, "__name__", ""), method.__doc__
        return call

    def _wrap(self, value: Any) -> Any:
        if inspect.isasyncgen(value) or _is_async(type(value)):
            return Proxy(self._thread, value)
        return [self._wrap(each) for each in value] if type(value) is list else value


class ProxyContext(Proxy):
    """A proxy with a thread of its own. Use it with `with`, or close it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()

    def close(self) -> None:
        """Close what it stands for, and end its thread; agents that run keep running."""
        try:
            self._thread.run(_await(self._target.close))
        finally:
            self._thread.close()


class SyncMaos(ProxyContext):
    """An open journal, and the services of `Maos`, for programs without asyncio. Use it with `with`, or close it."""


def connect(target: Any, **options: Any) -> SyncMaos:
    """Open a journal for a program without asyncio; the arguments are those of `maos.open`.

    Example::

        with maos.connect("maos.db") as m:
            m.state.create("auditor", {"status": "idle"})
            print(m.state.get("auditor").data)
    """
    thread = LoopThread()
    try:
        return SyncMaos(thread, thread.run(_await(lambda: app.open(target, **options))))
    except BaseException:
        thread.close()
        raise


async def _await(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Call a function in the loop's thread, and wait for its result if it has to be waited for."""
    found = function(*args, **options)
    return await found if inspect.isawaitable(found) else found


def _unwrap(value: Any) -> Any:
    return value._target if isinstance(value, Proxy) else value


def _is_async(kind: type) -> bool:
    """Whether objects of a class of maos have to be waited for."""
    if not kind.__module__.startswith("maos."):
        return False
    if hasattr(kind, "__aiter__") or hasattr(kind, "__aenter__"):
        return True
    members = [inspect.getattr_static(kind, name) for name in dir(kind) if not name.startswith("_")]
    return any(inspect.iscoroutinefunction(each) or inspect.isasyncgenfunction(each) for each in members)
