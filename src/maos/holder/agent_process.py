"""An agent's process as the engine sees it, through a socket to its holder, and the errors of that exchange.

MaosError
├── LeaseLost
│   └── Fenced           another engine has the right to this agent now
├── HolderGone           no holder is alive for this attempt; what it left can be read
├── StartFailed          the agent's program could not be started
└── InputFull            the agent does not read its input
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path

from maos.errors import Corrupt, InvalidInput, LeaseLost, MaosError
from maos.faults import crash_point
from maos.holder import identity, process_tree, wire
from maos.holder.records import Parser, SpoolRecord

BUFFERED_BYTES_MAX = 1 << 20
"""How many bytes may wait to be returned by `records`; above this, reading from the holder pauses."""
ATTACH_S_MAX = 30.0
FINISH_S_MAX = 10.0
TICK_S = 0.2
STREAK = 5
STREAK_TICKS = 2
STREAK_BYTES_MAX = 16 << 10
"""A holder that has sent a little data this many times in a row, with at most this many ticks in between, is read once
per tick. All such holders are read at the same time, so one wake-up and one commit serve them all. Others are read as
soon as they send something."""

children: set[int] = set()
"""Holders that this process has started and not reaped yet."""


class Fenced(LeaseLost):
    """Another engine with a newer token is, or was, attached; this one must stop acting for the agent."""

    hint = "stop acting for this attempt; another engine has it"


class HolderGone(MaosError):
    """No holder is alive for this attempt, and none will be: its agent is not running."""

    hint = "read what it left with left_behind(), then release the attempt"


class StartFailed(MaosError):
    """The agent's program could not be started; `errno` says why, `where` at what: program, cwd or prepare."""

    def __init__(self, what: str, *, where: str, errno: int, hint: str) -> None:
        super().__init__(what, hint=hint)
        self.where = where
        self.errno = errno


class InputFull(MaosError):
    """The agent does not read its input, or the disk refuses the record of it; the agent was given nothing."""

    hint = "try again later under the same id"


def connect(folder: Path) -> socket.socket:
    """Connect to the holder's socket in a folder; its path may be longer than the 107 characters of a socket's."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        fd = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            sock.connect(f"/proc/self/fd/{fd}/{wire.SOCKET}")
        finally:
            os.close(fd)
    except BaseException:
        sock.close()
        raise
    return sock


def remove(folder: Path) -> None:
    """Remove the folder of an attempt whose holder has exited, if it is still there."""
    who = identity.read(folder)
    if who is not None and who.process() is not None:
        raise InvalidInput(f"the holder of {who.attempt} is alive", hint="attach and finish, or end it")
    if folder.exists():
        shutil.rmtree(folder, ignore_errors=False)


def reap() -> None:
    """Collect the exit status of holders that have ended, so that they do not stay zombies."""
    for pid in list(children):
        try:
            ended = os.waitpid(pid, os.WNOHANG)[0] == pid
        except ChildProcessError:
            ended = True  # it was collected elsewhere
        if ended:
            children.discard(pid)


class AgentProcess(asyncio.Protocol):
    """An agent's process, while this engine is attached to it: it receives records and sends requests."""

    def __init__(self, folder: Path, name: str, token: int, after: int) -> None:
        self.folder = folder
        self.pid = 0
        self.holder_pid = 0
        self.state: dict[str, str] = {}
        """The state that the holder reported when this engine was attached."""
        self._name = name
        self._token = token
        self._after = after
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._parser: Parser | None = None
        self._records: list[SpoolRecord] = []
        self._waiting_bytes = 0
        self._resting = False
        self._streak = self._tick = 0
        self._received = asyncio.Event()
        self._closed = asyncio.Event()
        self._writes: dict[bytes, asyncio.Future[bytes]] = {}
        self._failure: MaosError | None = None
        self._exit_given = False
        self._finished = False
        self._refusal: MaosError | None = None

    async def open(self, sock: socket.socket) -> None:
        """Talk to the holder through a connected socket."""
        try:
            await asyncio.get_running_loop().create_unix_connection(lambda: self, sock=sock)
        except BaseException:
            sock.close()
            raise

    # Requests of the engine

    def send(self, frame: bytes) -> None:
        """Send a frame; raise when the connection has failed."""
        self._check()
        assert self._transport is not None
        self._transport.write(frame)

    async def wait_until_attached(self) -> None:
        """Wait until the holder has attached this engine; raise when it refuses, dies or does not answer."""
        try:
            async with asyncio.timeout(ATTACH_S_MAX):
                await self._until(lambda: bool(self.state))
        except TimeoutError:
            raise HolderGone(f"the holder of {self._name} has not answered for {ATTACH_S_MAX:g} s") from None

    async def records(self) -> list[SpoolRecord]:
        """Line 2/8: wait for the next records and return them; an empty list after the exit record.

        Raises Fenced when another engine has taken over, HolderGone when the holder has died.
        """
        if not self._exit_given:
            await self._until(lambda: bool(self._records))
        records, self._records = self._records, []
        self._waiting_bytes = 0
        if records and records[-1].kind == "exit":
            self._exit_given = True
        self._pause_or_resume()
        return records

    async def confirm(self, offset: int) -> None:
        """Let the holder drop everything up to an offset, because it is in the journal."""
        self.send(wire.frame(wire.CONFIRM, str(offset).encode()))

    async def write(self, id: str, data: bytes, *, close: bool = False) -> bool:
        """Write input to the agent, once for an id; return True when it was accepted, now or before, and is on disk.

        Returns False when the agent accepts no more input. Raises InputFull when it has not read its earlier input.
        """
        if len(data) > wire.INPUT_BYTES_MAX:
            raise InvalidInput(
                f"input {id} has {len(data)} bytes", hint=f"send at most {wire.INPUT_BYTES_MAX} at a time"
            )
        key = id.encode()
        reply = self._writes.get(key)
        if reply is None:
            self.send(wire.frame(wire.WRITE, key, data, b"1" if close else b"0"))
            reply = self._writes[key] = asyncio.get_running_loop().create_future()
            self._pause_or_resume()
        outcome = await asyncio.shield(reply)
        if outcome == wire.FULL:
            raise InputFull(f"input {id} for {self._name} was not accepted: too much input is waiting already")
        return outcome == wire.ACCEPTED

    async def stop(self, *, grace_s: float) -> None:
        """Send TERM to the agent, and kill it with all its descendants if it has not ended in time."""
        self.send(wire.frame(wire.STOP, repr(float(grace_s)).encode()))

    async def suspend_time_limit(self, *, suspended: bool) -> None:
        """Let the agent's time limit rest, or continue; the holder keeps it so when this engine has detached."""
        self.send(wire.frame(wire.LIMIT, wire.SUSPENDED if suspended else wire.COUNTS))

    async def set_time_limit(self, limit_s: float) -> None:
        """Set how long the agent may work from its start; 0 for no limit."""
        self.send(wire.frame(wire.LIMIT, repr(float(limit_s)).encode()))

    async def kill(self) -> None:
        """Kill the agent and all its descendants."""
        self.send(wire.frame(wire.KILL))

    async def finish(self) -> None:
        """Have the holder of an agent that has ended exit, and remove its folder with the spool."""
        self.send(wire.frame(wire.FINISH))
        try:
            await self._until(lambda: self._finished)
        finally:
            if self._finished:
                await self.detach()
        crash_point("finish: holder said goodbye")
        async with asyncio.timeout(FINISH_S_MAX):
            reap()
            while process_tree.living(self.holder_pid) is not None:
                await asyncio.sleep(0.002)
                reap()
        await asyncio.to_thread(remove, self.folder)

    async def detach(self) -> None:
        """Detach. The agent keeps running, and records that were not returned yet go to the next engine."""
        self._fail(InvalidInput(f"detached from {self._name}", hint="attach again"))
        self._records.clear()
        if self._transport is not None:
            self._transport.abort()
            await self._closed.wait()

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            if self._refusal is not None:  # of this one request: the connection stays usable
                refusal, self._refusal = self._refusal, None
                raise refusal
            self._check()
            self._received.clear()
            await self._received.wait()

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure.with_traceback(None)

    def _fail(self, failure: MaosError) -> None:
        if self._failure is None:
            self._failure = failure
        for reply in self._writes.values():
            if not reply.done():
                reply.set_exception(self._failure)
                reply.exception()  # marks it as retrieved: there may be no waiter left
        self._writes.clear()
        self._received.set()

    # Messages of the holder

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(HolderGone(f"the holder of {self._name} hung up"))
        self._closed.set()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        for kind, body in wire.take_frames(self._buffer, wire.FRAME_BYTES_MAX):
            self._handle(kind, body)
        self._received.set()
        self._count_streak(len(data))

    def _handle(self, kind: int, body: bytes) -> None:
        if kind == wire.DATA:
            self._parse(body)
            return
        parts = wire.unpack(body)
        if kind == wire.ATTACHED:
            self.state = wire.unpack_map(parts[1])
            self.pid, self.holder_pid = int(self.state["agent_pid"]), int(self.state["holder_pid"])
            self._parser = Parser(int(parts[0]), after=self._after)
        elif kind == wire.WRITTEN:
            reply = self._writes.pop(parts[0], None)
            if reply is not None and not reply.done():
                reply.set_result(parts[1])
        elif kind == wire.REFUSED:
            self._handle_refusal(parts)
        elif kind == wire.REPLACED:
            self._fail(Fenced(self._name, token=self._token, why=f"an engine with token {parts[0].decode()} took over"))
        elif kind == wire.TROUBLE:
            self._records.append(SpoolRecord(self._at, 0, "trouble", parts[0]))
        elif kind == wire.FINISHED:
            self._finished = True

    def _parse(self, body: bytes) -> None:
        if self._parser is None:  # the start failed, and this is the record of it
            self._parser = Parser(0, after=self._after)
        records = self._parser.feed(body)
        if self._parser.damage:
            self._fail(Corrupt(f"{self._name}: {self._parser.damage}", hint="read what is there with left_behind()"))
        self._records.extend(records)
        self._waiting_bytes += len(body)

    def _count_streak(self, read_bytes: int) -> None:
        """Pause reading until the next tick if the holder keeps sending a little data."""
        loop = asyncio.get_running_loop()
        tick = int(loop.time() / TICK_S)
        continues = tick - self._tick <= STREAK_TICKS and read_bytes <= STREAK_BYTES_MAX
        self._streak = self._streak + 1 if continues else 0
        self._tick = tick
        if self._streak >= STREAK and not self._resting:
            self._resting = True
            loop.call_at((tick + 1) * TICK_S, self._end_rest)
        self._pause_or_resume()

    def _end_rest(self) -> None:
        self._resting = False
        self._pause_or_resume()

    def _pause_or_resume(self) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        # Never pause while a reply is awaited: it comes after the data that is already on its way.
        if (self._resting or self._waiting_bytes > BUFFERED_BYTES_MAX) and not self._writes:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    @property
    def _at(self) -> int:
        return self._after if self._parser is None else max(self._after, self._parser.at)

    def _handle_refusal(self, parts: list[bytes]) -> None:
        why = parts[0]
        if why == wire.OLD_TOKEN:
            self._fail(Fenced(self._name, token=self._token, why=f"the holder has seen token {parts[1].decode()}"))
        elif why == wire.START_FAILED:
            where, number = parts[1].decode(), int(parts[2])
            self._refusal = StartFailed("the agent could not be started", where=where, errno=number, hint="")
        elif why == wire.TAKEN:
            self._fail(
                InvalidInput(
                    f"{self._name} was started before", hint="attach to it; an attempt can be started only once"
                )
            )
        elif why == wire.BAD_OFFSET:
            begin, end = parts[1].decode(), parts[2].decode()
            self._fail(
                InvalidInput(
                    f"offset {self._after} of {self._name} cannot be read: the spool has {begin} to {end}",
                    hint="records before it were confirmed and deleted; continue from the offset in your journal",
                )
            )
        else:
            self._refusal = InvalidInput(f"{self._name} has not ended", hint="stop it first, and read its exit record")
