"""Wakes other processes on this machine when the journal has grown.

SQLite has no notifications. Each waiting process keeps a named pipe in a folder beside the database; each process that
commits writes one byte into every pipe there. So waiters wake within a millisecond without polling. A lost byte does no
harm: waiters also check the journal once a second.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import secrets
from collections.abc import Callable
from pathlib import Path

from maos.clock import SystemClock

_JUST_CHANGED_NS = 100_000_000
"""A folder that changed this recently may change again without a new time stamp."""


class Bell:
    """Wakes the other processes, and is woken by them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = str(folder)
        self._own: str | None = None
        self._own_fd = -1
        self._loop: asyncio.AbstractEventLoop | None = None
        self._peers: dict[str, int] = {}
        self._seen_ns = -1

    def ring(self) -> None:
        """Line 6/8: wake every other process that listens. Never raises: the event is on disk already."""
        if not os.access(self._path, os.F_OK):
            return  # no process has ever listened: the usual case, so checked without an exception
        try:
            changed_ns = os.stat(self._path).st_mtime_ns
            if changed_ns != self._seen_ns:
                self._find_peers()
                self._seen_ns = -1 if SystemClock().now_us() * 1000 - changed_ns < _JUST_CHANGED_NS else changed_ns
        except OSError:
            return  # the folder cannot be read now; waiters check by themselves
        for name, fd in list(self._peers.items()):
            try:
                os.write(fd, b"!")
            except BlockingIOError:
                continue  # its pipe is full of wake-ups it has not read yet
            except OSError:
                self._drop(name)

    def listen(self, callback: Callable[[], None]) -> None:
        """Call `callback` on the running loop whenever another process has committed."""
        if self._own is not None:
            return
        name = f"{os.getpid()}-{secrets.token_hex(4)}"
        hidden = self._folder / f".{name}"
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            os.mkfifo(hidden, 0o600)
            # Open for reading and writing, so that there is no end of file when the last writer closes it. Visible to
            # others only once it is open, so that they never take it for the pipe of a dead process.
            self._own_fd = os.open(hidden, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
            hidden.rename(self._folder / name)
        except OSError:
            return  # a full or read-only disk: the waiter only polls
        self._own = name
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._own_fd, self._drain, callback)

    def close(self) -> None:
        """Stop listening and close the pipes of the others."""
        if self._own is not None:
            assert self._loop is not None
            self._loop.remove_reader(self._own_fd)
            os.close(self._own_fd)
            with contextlib.suppress(FileNotFoundError):
                (self._folder / self._own).unlink()
            self._own = None
        for name in list(self._peers):
            os.close(self._peers.pop(name))

    def _drain(self, callback: Callable[[], None]) -> None:
        with contextlib.suppress(BlockingIOError):
            while os.read(self._own_fd, 4096):
                pass
        callback()

    def _find_peers(self) -> None:
        present = {name for name in os.listdir(self._folder) if not name.startswith(".")}
        for name in set(self._peers) - present:
            os.close(self._peers.pop(name))
        for name in present - set(self._peers) - {self._own}:
            try:
                self._peers[name] = os.open(self._folder / name, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            except OSError as error:
                if error.errno == errno.ENXIO:
                    self._drop(name)  # its process died without removing it

    def _drop(self, name: str) -> None:
        fd = self._peers.pop(name, -1)
        if fd >= 0:
            os.close(fd)
        with contextlib.suppress(OSError):
            (self._folder / name).unlink()
