"""Who talks to a holder: one engine that is attached, and visitors that have not said who they are yet."""

from __future__ import annotations

import _socket
import os
from struct import Struct

from maos.holder.spool import Spool
from maos.holder.wire import DATA, FRAME, FRAME_BYTES

CHUNK_BYTES = 64 << 10
"""How much of the spool is in memory for an engine that reads slowly."""
WAITING_BYTES_MAX = 64 << 10
"""How much may wait in answers; then nothing more is read from a connection that does not read."""
BODY_BYTES_MAX = 2 << 20
VISITORS_MAX = 8
_CREDENTIALS = Struct("iII")


class Connection:
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
        self._answers = bytearray()

    @property
    def has_more(self) -> bool:
        """Whether something waits that the socket did not take."""
        return len(self._out) > 0 or len(self._answers) > 0

    @property
    def reads(self) -> bool:
        """Whether it may send more commands: not while it leaves our answers unread."""
        return self.open and len(self._answers) < WAITING_BYTES_MAX

    def receive(self) -> list[tuple[int, bytes]]:
        """The frames that have arrived whole; closes itself at the end, and on what is not ours."""
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
        frames = []
        at = 0
        while len(self._in) - at >= FRAME_BYTES:
            length, kind = FRAME.unpack_from(self._in, at)
            if length > BODY_BYTES_MAX:
                self.close()
                return []
            end = at + FRAME_BYTES + length
            if end > len(self._in):
                break
            frames.append((kind, bytes(self._in[at + FRAME_BYTES : end])))
            at = end
        del self._in[:at]
        return frames

    def answer(self, frame: bytes) -> None:
        """Send a frame before more of the spool."""
        self._answers += frame

    def push(self, spool: Spool | None) -> None:
        """Send what the socket takes now, at most a chunk of the spool."""
        fresh = True
        while self.open:
            if not self._out:
                if self._answers:
                    self._out = memoryview(bytes(self._answers))
                    self._answers.clear()
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
        """Hang up."""
        if self.open:
            self.open = False
            self._sock.close()
            self._out = memoryview(b"")
            self._answers.clear()


class Admission:
    """The socket others find us at."""

    def __init__(self, engine: Connection) -> None:
        self.engine: Connection | None = engine
        self.visitors: list[Connection] = []
        self.fd = -1

    def listen(self, path: str) -> None:
        """Open the socket, for our own user only."""
        self._sock = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM | _socket.SOCK_CLOEXEC)
        before = os.umask(0o177)
        try:
            self._sock.bind(path)
        finally:
            os.umask(before)
        self._sock.listen(VISITORS_MAX)
        self._sock.setblocking(False)
        self.fd = self._sock.fileno()

    def let_in(self) -> None:
        """Take the next connection, if it is our user's."""
        try:
            # `accept` would import a module and make an object that we take apart at once.
            fd, _address = self._sock._accept()  # type: ignore[attr-defined]
        except OSError:
            return  # gone again, or no file descriptor left just now
        sock = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM, 0, fd)
        sock.setblocking(False)
        credentials = sock.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, _CREDENTIALS.size)
        if _CREDENTIALS.unpack(credentials)[1] != os.getuid():
            sock.close()
            return
        self.visitors.append(Connection(sock))
        if len(self.visitors) > VISITORS_MAX:
            self.visitors.pop(0).close()

    def close(self, path: str) -> None:
        """Nobody can attach any more."""
        self._sock.close()
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass  # the engine has removed the folder already
