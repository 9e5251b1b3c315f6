"""Connections to a holder: the engine that is attached, and visitors that have not identified themselves yet."""

from __future__ import annotations

import _socket
import os
from struct import Struct

from maos.holder.spool import SpoolSegments
from maos.holder.wire import DATA, FRAME, take_frames

CHUNK_BYTES = 64 << 10
"""How much of the spool is kept in memory for an engine that reads slowly."""
WAITING_BYTES_MAX = 64 << 10
"""How many bytes of unread replies a connection may have; above this its requests are not read."""
BODY_BYTES_MAX = 2 << 20
VISITORS_MAX = 8
_CREDENTIALS = Struct("iII")


class HolderConnection:
    """One connection: frames in, frames and the spool out."""

    def __init__(self, sock: _socket.socket) -> None:
        sock.setblocking(False)
        self._sock = sock
        self.fd = sock.fileno()
        self.open = True
        self.sent = 0
        """Up to where the spool has been sent."""
        self._in = bytearray()
        self._out = memoryview(b"")
        self._replies = bytearray()

    @property
    def has_more(self) -> bool:
        """Whether there is data that the socket has not accepted yet."""
        return len(self._out) > 0 or len(self._replies) > 0

    @property
    def reads(self) -> bool:
        """Whether more requests are read from it: not while it leaves replies unread."""
        return self.open and len(self._replies) < WAITING_BYTES_MAX

    def receive(self) -> list[tuple[int, bytes]]:
        """Return the frames that are complete; close the connection at its end and on malformed data."""
        try:
            data = self._sock.recv(CHUNK_BYTES)
        except BlockingIOError:
            return []
        except OSError:
            data = b""
        if not data:
            self.close()
            return []
        self._in += data
        try:
            return take_frames(self._in, BODY_BYTES_MAX)
        except ValueError:
            self.close()
            return []

    def reply(self, frame: bytes) -> None:
        """Queue a frame to be sent before more of the spool."""
        self._replies += frame

    def push(self, spool: SpoolSegments | None) -> None:
        """Send as much as the socket accepts now, at most one chunk of the spool."""
        fresh = True
        while self.open:
            if not self._out:
                if self._replies:
                    self._out = memoryview(bytes(self._replies))
                    self._replies.clear()
                elif spool is not None and self.sent < spool.end and fresh:
                    data = spool.read(self.sent, CHUNK_BYTES)
                    self._out = memoryview(FRAME.pack(len(data), DATA) + data)
                    self.sent += len(data)
                    fresh = False
                else:
                    return
            try:
                self._out = self._out[self._sock.send(self._out) :]
            except BlockingIOError:
                return
            except OSError:
                self.close()

    def close(self) -> None:
        """Close the connection and drop unsent data."""
        if self.open:
            self.open = False
            self._sock.close()
            self._out = memoryview(b"")
            self._replies.clear()


class Admission:
    """The socket at which the holder listens, and its connections."""

    def __init__(self, engine: HolderConnection) -> None:
        self.engine: HolderConnection | None = engine
        self.visitors: list[HolderConnection] = []
        self.fd = -1

    def listen(self, path: str) -> None:
        """Create the socket, for the holder's own user only."""
        self._sock = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM | _socket.SOCK_CLOEXEC)
        before = os.umask(0o177)
        try:
            self._sock.bind(path)
        finally:
            os.umask(before)
        self._sock.listen(VISITORS_MAX)
        self._sock.setblocking(False)
        self.fd = self._sock.fileno()

    def accept(self) -> None:
        """Accept the next connection, if it comes from the same user."""
        try:
            # `accept` would import a module and create an object only to take it apart.
            fd, _address = self._sock._accept()  # type: ignore[attr-defined]
        except OSError:
            return  # closed again, or no file descriptor left
        sock = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM, 0, fd)
        sock.setblocking(False)
        credentials = sock.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, _CREDENTIALS.size)
        if _CREDENTIALS.unpack(credentials)[1] != os.getuid():
            sock.close()
            return
        self.visitors.append(HolderConnection(sock))
        if len(self.visitors) > VISITORS_MAX:
            self.visitors.pop(0).close()

    def close(self, path: str) -> None:
        """Stop listening: no engine can attach any more."""
        self._sock.close()
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass  # the engine has removed the folder already
