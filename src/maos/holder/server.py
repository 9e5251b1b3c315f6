"""The holder: its start, and one loop around the agent's pipes, the spool and the socket.

The engine starts it with one end of a socket pair as standard input, sends the spec through it, and stays attached
through it. If the engine dies before the spec is complete, the holder exits and has started nothing; if the engine
dies later, the agent runs and the next engine finds the holder by its folder.
"""

from __future__ import annotations

import _socket
import os
import select
from struct import Struct
from time import monotonic, sleep

from maos.faults import crash_point
from maos.holder import process_tree, wire
from maos.holder.guard import rename, wake_on
from maos.holder.held_agent import HeldAgent, Intake
from maos.holder.spool import SpoolSegments, SpoolWriter, now_us

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Callable
    from typing import Any

    Wanted = tuple[int, int, Callable[..., None], tuple[Any, ...]]
else:
    import _signal as signal

SLEEP_S = 0.1
"""While lines trickle in, the holder sleeps this long between reads: a wake-up costs as much as twenty lines."""
SLEEP_S_MAX = 0.4
TRICKLE_S = 0.2
"""Lines trickle when reads are this close to one another..."""
TRICKLE_BYTES = 4 << 10
"""...and each gives less than this: the pipe must not fill up while the holder sleeps."""
CHUNK_BYTES = 64 << 10
"""How much of the spool is kept in memory for an engine that reads slowly."""
WAITING_BYTES_MAX = 64 << 10
"""How many bytes of unread replies a connection may have; above this its requests are not read."""
BODY_BYTES_MAX = wire.INPUT_BYTES_MAX + (1 << 20)
VISITORS_MAX = 8
_CREDENTIALS = Struct("iII")
_MALFORMED = (ValueError, TypeError, IndexError)
"""Raised by frames that no engine sends. The connection is closed; the agent is not affected."""


class HolderConnection:
    """One connection: frames in, frames and the spool out."""

    def __init__(self, sock: _socket.socket) -> None:
        sock.setblocking(False)
        self._sock = sock
        self.fd = sock.fileno()
        self.open = True
        self.sent = 0
        """Up to where the spool has been sent."""
        self.can_send = True
        """Whether the peer still reads. When it has closed its end, the requests it sent before that are read."""
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
            return wire.take_frames(self._in, BODY_BYTES_MAX)
        except ValueError:
            self.close()
            return []

    def reply(self, frame: bytes) -> None:
        """Queue a frame to be sent before more of the spool."""
        if self.can_send:
            self._replies += frame

    def push(self, spool: SpoolSegments | None) -> None:
        """Send as much as the socket accepts now, at most one chunk of the spool."""
        fresh = True
        while self.open and self.can_send:
            if not self._out:
                if self._replies:
                    self._out = memoryview(bytes(self._replies))
                    self._replies.clear()
                elif spool is not None and self.sent < spool.end and fresh:
                    data = spool.read(self.sent, CHUNK_BYTES)
                    self._out = memoryview(wire.FRAME.pack(len(data), wire.DATA) + data)
                    self.sent += len(data)
                    fresh = False
                else:
                    return
            try:
                self._out = self._out[self._sock.send(self._out) :]
            except BlockingIOError:
                return
            except OSError:
                self.can_send = False
                self._drop_unsent()

    def close(self) -> None:
        """Close the connection and drop unsent data."""
        if self.open:
            self.open = False
            self._sock.close()
            self._drop_unsent()

    def _drop_unsent(self) -> None:
        self._out = memoryview(b"")
        self._replies.clear()


class Holder:
    """Connects the agent, its spool and the attached engine."""

    def __init__(self, spec: wire.HolderSpec, engine: HolderConnection, waking: int) -> None:
        self._spec = spec
        self._waking = waking
        self._writer = SpoolWriter(spec.spool_bytes_max, self._report_trouble)
        self._spool = self._writer.spool
        self._agent = HeldAgent(spec, self._writer)
        self._listener = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM | _socket.SOCK_CLOEXEC)
        self._visitors: list[HolderConnection] = []
        self._engine: HolderConnection | None = engine
        self._starter = engine
        self._token = spec.token
        self._accepted: set[bytes] = set()
        self._unconfirmed: list[bytes] = []
        self._over = False
        """Whether the exit is recorded."""
        self._ended = False
        self._read_at = 0.0
        self._trickles = False
        self._sleep_s = SLEEP_S
        self._polled: list[Wanted] = []
        self._poll = select.poll()
        self._handlers: dict[int, tuple[Callable[..., None], tuple[Any, ...]]] = {}
        self._unattended_since: float | None = None

    def start(self) -> None:
        """Listen, then start the agent: whenever there is an agent, its holder can be reached."""
        before = os.umask(0o177)  # the socket is for the holder's own user only
        try:
            self._listener.bind(wire.SOCKET)
        finally:
            os.umask(before)
        self._listener.listen(VISITORS_MAX)
        self._listener.setblocking(False)
        crash_point("holder listens")
        self._agent.start()
        crash_point("holder has started the guard")

    def run(self) -> None:
        """Serve until the agent has ended and no engine needs the holder any more."""
        while True:
            self._run_due(monotonic())
            if self._ended:
                break
            self._push()
            if self._trickles:
                self._sleep()
            for fd, _mask in self._poller().poll(self._timeout_ms()):
                handler, subject = self._handlers[fd]
                handler(*subject)
        self._listener.close()  # no engine can attach any more
        try:
            os.unlink(wire.SOCKET)
        except FileNotFoundError:
            pass  # the engine has removed the folder already

    def _sleep(self) -> None:
        """Sleep while lines collect; longer when the machine wakes it late, because then it is overloaded."""
        self._trickles = False
        before = monotonic()
        sleep(self._sleep_s)
        late_s = monotonic() - before - self._sleep_s
        self._sleep_s = min(SLEEP_S_MAX, self._sleep_s * 2) if late_s > SLEEP_S / 2 else max(SLEEP_S, self._sleep_s / 2)

    def _poller(self) -> select.poll:
        """Return the poll object; rebuilt only when the set of descriptors or events has changed."""
        wanted = self._wanted()
        if wanted != self._polled:
            self._polled = wanted
            self._poll = select.poll()
            self._handlers = {}
            for fd, mask, handler, subject in wanted:
                self._poll.register(fd, mask)
                self._handlers[fd] = (handler, subject)
        return self._poll

    def _wanted(self) -> list[Wanted]:
        """Return what to wait for: file descriptor, events, handler and its arguments."""
        agent, engine = self._agent, self._engine
        wanted: list[Wanted] = [
            (self._waking, select.POLLIN, self._on_signal, ()),
            (self._listener.fileno(), select.POLLIN, self._on_connection, ()),
        ]
        if agent.guard is not None:
            wanted.append((agent.guard.fileno(), select.POLLIN, self._on_guard, ()))
        if agent.waits_for_input:
            wanted.append((agent.stdin, select.POLLOUT, agent.feed, ()))
        if engine is not None:
            mask = (select.POLLIN if engine.reads else 0) | (select.POLLOUT if self._has_data_for(engine) else 0)
            wanted.append((engine.fd, mask, self._on_engine, (engine,)))
        if self._writer.has_room and agent.start_reported:  # "started" comes first
            for intake in agent.intakes:
                if intake.open:
                    wanted.append((intake.fd, select.POLLIN, self._on_output, (intake,)))
        for visitor in self._visitors:
            mask = select.POLLIN | (select.POLLOUT if visitor.has_more else 0)
            wanted.append((visitor.fd, mask, self._on_visitor, (visitor,)))
        return wanted

    def _timeout_ms(self) -> int | None:
        times = (self._unattended_until(), *self._writer.times(), *self._agent.times())
        due = [time for time in times if time is not None]
        return min(86_400_000, max(0, int((min(due) - monotonic()) * 1000) + 1)) if due else None

    def _run_due(self, now: float) -> None:
        self._agent.run_due(now)
        unattended_until = self._unattended_until()
        if unattended_until is not None and now >= unattended_until:
            self._unattended_since = now
            if self._over:
                self._ended = self._writer.safe
            else:
                self._agent.stop(b"unattended", self._spec.stop_grace_s)
        if not self._over and self._agent.tree_dead and self._agent.exit is not None and self._agent.drain():
            self._over = True
            self._writer.record(wire.EXIT, 0, wire.pack_map(self._agent.exit))
            self._writer.sync()
            if self._unattended_since is not None:
                self._unattended_since = now
        self._writer.run_due(now)
        if self._unconfirmed:
            self._reply_to_inputs()

    def _unattended_until(self) -> float | None:
        if self._unattended_since is None:
            return None
        return self._unattended_since + (self._spec.linger_s if self._over else self._spec.unattended_limit_s)

    # The agent

    def _on_output(self, intake: Intake) -> None:
        count = self._agent.read(intake)
        now = monotonic()
        self._trickles = 0 < count < TRICKLE_BYTES and now - self._read_at < TRICKLE_S
        self._read_at = now

    def _on_guard(self) -> None:
        agent, engine = self._agent, self._engine
        was_reported = agent.start_reported
        agent.receive()
        if was_reported or not agent.start_reported or engine is None:
            return
        if agent.failed and engine is self._starter:
            engine.reply(wire.frame(wire.REFUSED, wire.START_FAILED, *agent.failed))
        else:
            engine.reply(self._attached(engine.sent))

    def _on_signal(self) -> None:
        os.read(self._waking, 512)
        self._agent.stop(b"asked", self._spec.stop_grace_s)

    # Engines

    def _on_connection(self) -> None:
        """Accept the next connection, if it comes from the same user."""
        try:
            # `accept` would import a module and create an object only to take it apart.
            fd, _address = self._listener._accept()  # type: ignore[attr-defined]
        except OSError:
            return  # closed again, or no file descriptor left
        sock = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM, 0, fd)
        credentials = sock.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, _CREDENTIALS.size)
        if _CREDENTIALS.unpack(credentials)[1] != os.getuid():
            sock.close()
            return
        self._visitors.append(HolderConnection(sock))
        if len(self._visitors) > VISITORS_MAX:
            self._visitors.pop(0).close()

    def _push(self) -> None:
        engine = self._engine
        if engine is None:
            return
        if self._has_data_for(engine):
            engine.push(self._spool if self._may_send() else None)
        if not engine.open:
            self._detached()

    def _has_data_for(self, engine: HolderConnection) -> bool:
        return engine.can_send and (engine.has_more or (engine.sent < self._spool.end and self._may_send()))

    def _may_send(self) -> bool:
        """Return whether the spool may be sent: not before the start is recorded, nor the exit before it is synced."""
        return self._agent.start_reported and (not self._over or self._writer.safe)

    def _detached(self) -> None:
        self._engine = None
        self._unattended_since = monotonic()

    def _send_to_engine(self, message: bytes) -> None:
        if self._engine is not None:
            self._engine.reply(message)

    def _report_trouble(self, trouble: str) -> None:
        self._send_to_engine(wire.frame(wire.TROUBLE, trouble.encode()))

    def _on_engine(self, engine: HolderConnection) -> None:
        if engine is not self._engine:
            return  # another engine has replaced it
        try:
            for kind, body in engine.receive():
                self._handle(engine, kind, body)
        except _MALFORMED:
            engine.close()
        if not engine.open and self._engine is engine:
            self._detached()

    def _on_visitor(self, visitor: HolderConnection) -> None:
        try:
            for kind, body in visitor.receive():
                if self._engine is visitor:
                    self._handle(visitor, kind, body)
                elif kind == wire.HELLO:
                    self._attach(visitor, body)
                elif kind == wire.STATUS:
                    visitor.reply(wire.frame(wire.STATE, self._state()))
                else:
                    visitor.close()
        except _MALFORMED:
            visitor.close()
        visitor.push(None)
        if not visitor.open and visitor in self._visitors:
            self._visitors.remove(visitor)

    def _attach(self, visitor: HolderConnection, body: bytes) -> None:
        """Attach an engine, unless the holder has seen a newer token."""
        token, after = map(int, wire.unpack(body))
        if token < self._token:
            visitor.reply(wire.frame(wire.REFUSED, wire.OLD_TOKEN, str(self._token).encode()))
            return
        if not self._spool.start <= after <= self._spool.end:
            readable = (str(self._spool.start).encode(), str(self._spool.end).encode())
            visitor.reply(wire.frame(wire.REFUSED, wire.BAD_OFFSET, *readable))
            return
        self._token = token
        before = self._engine
        if before is not None:
            before.reply(wire.frame(wire.REPLACED, str(token).encode()))
            before.push(None)
            before.close()
        self._visitors.remove(visitor)
        self._engine = visitor
        self._unattended_since = None
        visitor.sent = self._spool.record_at(after)
        if self._agent.start_reported:
            visitor.reply(self._attached(visitor.sent))
        if self._writer.trouble:
            self._report_trouble(self._writer.trouble)

    def _attached(self, begin: int) -> bytes:
        return wire.frame(wire.ATTACHED, str(begin).encode(), self._state())

    def _state(self) -> bytes:
        state = {
            "agent_pid": self._agent.pid,
            "holder_pid": os.getpid(),
            "guard_pid": self._agent.guard_pid,
            "attached": int(self._engine is not None),
            "over": int(self._over),
            "spool_end": self._spool.end,
        }
        return wire.pack_map({name: str(value) for name, value in state.items()})

    def _handle(self, engine: HolderConnection, kind: int, body: bytes) -> None:
        parts = wire.unpack(body)
        if kind == wire.CONFIRM:
            self._spool.confirm(int(parts[0]))
        elif kind == wire.WRITE:
            self._accept_input(engine, *parts)
        elif kind == wire.STOP:
            self._agent.stop(b"asked", float(parts[0]))
        elif kind == wire.KILL:
            self._agent.stop(b"asked", 0.0)
        elif kind == wire.LIMIT:
            if parts[0] in (wire.SUSPENDED, wire.COUNTS):
                self._agent.suspend_limit(suspended=parts[0] == wire.SUSPENDED)
            else:
                self._agent.set_limit(float(parts[0]))
        elif kind == wire.STATUS:
            engine.reply(wire.frame(wire.STATE, self._state()))
        elif kind == wire.FINISH:
            if self._over and self._writer.safe:
                engine.reply(wire.frame(wire.FINISHED))
                engine.push(None)
                self._ended = True
            else:
                engine.reply(wire.frame(wire.REFUSED, wire.NOT_OVER))
        else:
            engine.close()

    def _accept_input(self, engine: HolderConnection, name: bytes, data: bytes, close: bytes) -> None:
        if name in self._accepted:
            self._unconfirmed.append(name)  # perhaps not on disk yet
        elif not self._agent.takes_input:
            engine.reply(wire.frame(wire.WRITTEN, name, wire.CLOSED))
        elif self._writer.trouble or not self._agent.has_room_for(data):
            engine.reply(wire.frame(wire.WRITTEN, name, wire.FULL))
        else:
            self._agent.give(data, close=close == b"1")
            self._accepted.add(name)
            self._writer.record(wire.INPUT, 0, name)
            self._unconfirmed.append(name)

    def _reply_to_inputs(self) -> None:
        """Reply that inputs were accepted, once that is on disk."""
        self._writer.sync()
        if self._writer.safe:
            for name in self._unconfirmed:
                self._send_to_engine(wire.frame(wire.WRITTEN, name, wire.ACCEPTED))
            self._unconfirmed.clear()


def main(folder: str) -> None:
    """Run the holder of a folder until it is no longer needed."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2:
            os.closerange(int(name), int(name) + 1)  # descriptors that the engine left inheritable
    os.chdir(folder)
    os.umask(0o077)
    os.setsid()
    rename("maos-holder")
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    waking = wake_on(signal.SIGTERM)

    engine = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM, 0, _take_standard_input())
    engine.settimeout(wire.SPEC_S_MAX)
    try:
        kind, body = wire.receive_frame(engine)
    except (OSError, EOFError, ValueError):
        return  # the engine died or stopped before the spec was complete: nothing has been started
    if kind != wire.START:
        return
    spec = wire.HolderSpec.from_body(body)
    crash_point("holder has the spec")
    if not claim(spec.attempt):
        engine.send(wire.frame(wire.REFUSED, wire.TAKEN))
        return
    crash_point("holder has claimed the folder")
    holder = Holder(spec, HolderConnection(engine), waking)
    holder.start()
    holder.run()


def claim(attempt: str) -> bool:
    """Write this process into the identity file; return False if the folder has a holder: each gets at most one."""
    myself = process_tree.look(os.getpid())
    assert myself is not None
    text = f"{myself.pid}\n{myself.start_ticks}\n{process_tree.boot_id()}\n{now_us()}\n{attempt}\n"
    draft = f"{wire.IDENTITY}.{myself.pid}"
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.write(fd, text.encode())
        os.fsync(fd)
    finally:
        os.close(fd)
    try:
        os.link(draft, wire.IDENTITY)
    except FileExistsError:
        return False
    finally:
        os.unlink(draft)
    return True


def _take_standard_input() -> int:
    """Move the engine's connection away from descriptor 0, where the agent's input will be."""
    fd = os.dup(0)
    null = os.open("/dev/null", os.O_RDWR)
    os.dup2(null, 0)
    os.close(null)
    return fd
