"""The engine's end of the socket to a holder."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

from maos.errors import Corrupt, InvalidInput, MaosError
from maos.holder import wire
from maos.holder.errors import Fenced, HolderGone, InputFull, StartFailed
from maos.holder.records import Parser, SpoolRecord

BUFFERED_BYTES_MAX = 1 << 20
"""How much may wait to be taken by `records`; then nothing more is read from the holder."""
REST_S = 0.2
STREAK = 5
STREAK_MOMENTS = 2
STREAK_BYTES_MAX = 16 << 10
"""A holder that has had a little news so often in a row, each so soon after the last, is read five times a second. All
such are read at the same moments: one wake-up and one commit serve them all. Others are read as they have something."""


class Link(asyncio.Protocol):
    """A connection to a holder: records out of it, commands into it."""

    def __init__(self, *, name: str, token: int, after: int) -> None:
        self.state: dict[str, str] = {}
        """What the holder said of itself when it let us in."""
        self._name = name
        self._token = token
        self._after = after
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._parser: Parser | None = None
        self._records: list[SpoolRecord] = []
        self._waiting_bytes = 0
        self._resting = False
        self._streak = self._moment = 0
        self._news = asyncio.Event()
        self._closed = asyncio.Event()
        self._writes: dict[bytes, asyncio.Future[bytes]] = {}
        self._failure: MaosError | None = None
        self._attached = False
        self._exit_given = False
        self._finished = False
        self._refusal: MaosError | None = None

    @staticmethod
    async def open(sock: socket.socket, *, name: str, token: int, after: int) -> Link:
        """A link over a connected socket."""
        loop = asyncio.get_running_loop()
        try:
            _transport, link = await loop.create_unix_connection(
                lambda: Link(name=name, token=token, after=after), sock=sock
            )
        except BaseException:
            sock.close()
            raise
        return link

    # What the engine wants

    def send(self, frame: bytes) -> None:
        """Send a frame; raises when nobody is there to read it."""
        self._check()
        assert self._transport is not None
        self._transport.write(frame)

    async def attached(self, within_s: float) -> None:
        """Return when the holder has let us in; raises when it has not."""
        try:
            async with asyncio.timeout(within_s):
                await self._until(lambda: self._attached)
        except TimeoutError:
            raise HolderGone(f"the holder of {self._name} has not answered for {within_s:g} s") from None

    async def records(self) -> list[SpoolRecord]:
        """The next records, at least one; none after the last."""
        if not self._exit_given:
            await self._until(lambda: bool(self._records))
        records, self._records = self._records, []
        self._waiting_bytes = 0
        if records and records[-1].kind == "exit":
            self._exit_given = True
        self._read_or_wait()
        return records

    async def write(self, name: str, data: bytes, *, close: bool) -> bool:
        """Whether the holder has accepted an input."""
        key = name.encode()
        reply = self._writes.get(key)
        if reply is None:
            self.send(wire.frame(wire.WRITE, key, data, b"1" if close else b"0"))
            reply = self._writes[key] = asyncio.get_running_loop().create_future()
            self._read_or_wait()
        outcome = await asyncio.shield(reply)
        if outcome == wire.FULL:
            raise InputFull(f"input {name} for {self._name} was not taken: too much is waiting already")
        return outcome == wire.ACCEPTED

    async def finish(self) -> None:
        """Return when the holder says goodbye."""
        self.send(wire.frame(wire.FINISH))
        try:
            await self._until(lambda: self._finished)
        finally:
            if self._finished:
                await self.close()

    async def close(self) -> None:
        """Hang up."""
        self._fail(InvalidInput(f"detached from {self._name}", hint="attach again"))
        self._records.clear()  # whoever attaches next gets them
        if self._transport is not None:
            self._transport.abort()
            await self._closed.wait()

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            if self._refusal is not None:  # of this one request: the connection goes on
                refusal, self._refusal = self._refusal, None
                raise refusal
            self._check()
            self._news.clear()
            await self._news.wait()

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure.with_traceback(None)

    def _fail(self, failure: MaosError) -> None:
        if self._failure is None:
            self._failure = failure
        for reply in self._writes.values():
            if not reply.done():
                reply.set_exception(self._failure)
                reply.exception()  # whoever waits has it; if nobody does, nobody need be told
        self._writes.clear()
        self._news.set()

    # What the holder says

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(HolderGone(f"the holder of {self._name} hung up"))
        self._closed.set()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        at = 0
        while len(self._buffer) - at >= wire.FRAME_BYTES:
            length, kind = wire.FRAME.unpack_from(self._buffer, at)
            end = at + wire.FRAME_BYTES + length
            if end > len(self._buffer):
                break
            self._hear(kind, bytes(self._buffer[at + wire.FRAME_BYTES : end]))
            at = end
        del self._buffer[:at]
        self._news.set()
        self._rest_after(len(data))

    def _hear(self, kind: int, body: bytes) -> None:
        if kind == wire.DATA:
            self._take(body)
            return
        parts = wire.unpack(body)
        if kind == wire.ATTACHED:
            self.state = wire.unpack_map(parts[1])
            self._parser = Parser(int(parts[0]), after=self._after)
            self._attached = True
        elif kind == wire.WRITTEN:
            reply = self._writes.pop(parts[0], None)
            if reply is not None and not reply.done():
                reply.set_result(parts[1])
        elif kind == wire.REFUSED:
            self._refused(parts)
        elif kind == wire.REPLACED:
            self._fail(Fenced(self._name, token=self._token, why=f"an engine with token {parts[0].decode()} took over"))
        elif kind == wire.TROUBLE:
            self._records.append(SpoolRecord(self._at, 0, "trouble", parts[0]))
        elif kind == wire.FINISHED:
            self._finished = True

    def _take(self, body: bytes) -> None:
        if self._parser is None:  # nothing was started, and this is the record that says so
            self._parser = Parser(0, after=self._after)
        records = self._parser.feed(body)
        if self._parser.damage:
            self._fail(Corrupt(f"{self._name}: {self._parser.damage}", hint="read what is there with left_behind()"))
        self._records.extend(records)
        self._waiting_bytes += len(body)

    def _rest_after(self, read_bytes: int) -> None:
        """Read no more until the next moment, if there is a little news all the time."""
        loop = asyncio.get_running_loop()
        moment = int(loop.time() / REST_S)
        goes_on = moment - self._moment <= STREAK_MOMENTS and read_bytes <= STREAK_BYTES_MAX
        self._streak = self._streak + 1 if goes_on else 0
        self._moment = moment
        if self._streak >= STREAK and not self._resting:
            self._resting = True
            loop.call_at((moment + 1) * REST_S, self._rested)
        self._read_or_wait()

    def _rested(self) -> None:
        self._resting = False
        self._read_or_wait()

    def _read_or_wait(self) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        # Not while an answer is waited for, which comes behind what is on its way already.
        if (self._resting or self._waiting_bytes > BUFFERED_BYTES_MAX) and not self._writes:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    @property
    def _at(self) -> int:
        return self._after if self._parser is None else max(self._after, self._parser.at)

    def _refused(self, parts: list[bytes]) -> None:
        why = parts[0]
        if why == wire.OLD_TOKEN:
            self._fail(Fenced(self._name, token=self._token, why=f"the holder has seen {parts[1].decode()}"))
        elif why == wire.START_FAILED:
            where, number = parts[1].decode(), int(parts[2])
            self._refusal = StartFailed("the agent could not be started", where=where, errno=number, hint="")
        elif why == wire.TAKEN:
            self._fail(
                InvalidInput(f"{self._name} was started before", hint="attach to it; an attempt is started once")
            )
        elif why == wire.BAD_OFFSET:
            begin, end = parts[1].decode(), parts[2].decode()
            self._fail(
                InvalidInput(
                    f"offset {self._after} of {self._name} cannot be read: the spool has {begin} to {end}",
                    hint="what lies before was confirmed; read on from the offset your journal has",
                )
            )
        else:
            self._refusal = InvalidInput(f"{self._name} has not ended", hint="stop it first, and read its exit record")
