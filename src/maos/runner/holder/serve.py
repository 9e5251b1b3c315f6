"""The holder: one loop around the agent's pipes, the spool and the socket.

Started by the engine in the attempt's folder, with one end of a socket pair as standard input. The engine sends the
spec through it, and is attached through it from then on. If the engine dies before the spec is complete, nothing has
happened and the holder ends; if it dies later, the agent runs and the holder can be found.
"""

from __future__ import annotations

import os
import select
from time import monotonic

import _socket

from maos.redact import Redactor
from maos.runner.holder import tree
from maos.runner.holder.engines import Connection, Gate
from maos.runner.holder.guard import guard
from maos.runner.holder.intake import Intake
from maos.runner.holder.machine import crash_point, now_us, oom_kills
from maos.runner.holder.spool import Spool
from maos.runner.holder.wire import (
    ACCEPTED,
    ATTACHED,
    BAD_OFFSET,
    CLOSED,
    CONFIRM,
    EXIT,
    FINISH,
    FINISHED,
    FULL,
    HELLO,
    INPUT,
    KILL,
    NOT_OVER,
    OLD_TOKEN,
    REFUSED,
    REPLACED,
    START_FAILED,
    STARTED,
    STATE,
    STATUS,
    STDERR,
    STDOUT,
    STOP,
    STOPPING,
    TROUBLE,
    WRITE,
    WRITTEN,
    Order,
    frame,
    pack_map,
    unpack,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

SOCKET = "s"
SYNC_AFTER_S = 0.05
"""Output that no engine has confirmed for so long is synced."""
SYNC_SHARE = 10
"""And syncing takes at most this part of the time: 1/10."""
REST_S = 0.02
"""While lines trickle, they are collected for so long: a wake-up costs as much as twenty lines."""
TRICKLE_S = 0.1
"""Reads this close to one another are a trickle."""
TRICKLE_BYTES = 4 << 10
"""And more than this at once is none: the pipe must not fill up while we rest."""
RETRY_S = 0.25
"""How often a disk that does not take our records is tried again."""
DRAIN_S = 0.5
"""How long a process that the agent left behind may keep the output open."""
INPUT_BYTES_MAX = 1 << 20
"""How much input may wait for an agent that does not read."""


class Holder:
    """Everything a holder knows."""

    def __init__(self, order: Order, engine: Connection, waking: int) -> None:
        self._order = order
        self._spool = Spool()
        self._gate = Gate(engine)
        self._token = order.token
        self._waking = waking
        self._ended = False
        # The agent.
        self._agent_pid = 0
        self._guard_pid = 0
        self._stopping = False
        self._exit: dict[str, str] | None = None
        self._tree_dead = False
        self._over = False
        # Input on its way to the agent, and what became of it.
        self._stdin = -1
        self._input = [order.first_input] if order.first_input else []
        self._close_input = not order.keep_stdin_open
        self._accepted: set[bytes] = set()
        self._unanswered: list[bytes] = []
        # Records the disk did not take.
        self._unwritten: list[tuple[int, int, int, bytes]] = []
        self._trouble = ""
        # When what is due, in steady seconds; None: never.
        self._rest_until: float | None = None
        self._read_at = 0.0
        self._sync_at: float | None = None
        self._sync_mark = 0
        self._retry_at: float | None = None
        self._limit_at = None if order.time_limit_s is None else monotonic() + order.time_limit_s
        self._kill_at: float | None = None
        self._drained_at: float | None = None
        self._alone_since: float | None = None

    def start(self) -> None:
        """Start the guard, which starts the agent."""
        self._gate.listen(SOCKET)
        crash_point("holder listens")
        inputs, outputs, errors = os.pipe(), os.pipe(), os.pipe()
        ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
        tree.adopt_orphans()
        self._oom_kills = oom_kills()
        self._guard_pid = os.fork()
        if self._guard_pid == 0:
            kept = {1, 2, theirs.fileno(), inputs[0], outputs[1], errors[1]}
            for name in os.listdir("/proc/self/fd"):
                if int(name) not in kept:
                    os.closerange(int(name), int(name) + 1)
            guard(self._order, theirs, (inputs[0], outputs[1], errors[1]))
        for fd in (inputs[0], outputs[1], errors[1]):
            os.close(fd)
        theirs.close()
        self._guard: _socket.socket | None = ours
        self._stdin = inputs[1]
        for fd in (inputs[1], outputs[0], errors[0]):
            os.set_blocking(fd, False)
        self._intakes = [
            Intake(fd, kind, Redactor(self._order.secrets), self._order.line_bytes_max)
            for fd, kind in ((outputs[0], STDOUT), (errors[0], STDERR))
        ]

    def run(self) -> None:
        """Serve until it is over and nobody needs us any more."""
        while True:
            now = monotonic()
            self._do_what_is_due(now)
            if self._ended:
                break
            self._push()
            poll, handlers = self._what_to_wait_for()
            timeout_ms = self._timeout_ms(monotonic())
            for fd, _mask in poll.poll(timeout_ms):
                handlers[fd]()
        self._gate.close(SOCKET)

    def _what_to_wait_for(self) -> tuple[select.poll, dict[int, Callable[[], None]]]:
        poll = select.poll()
        handlers: dict[int, Callable[[], None]] = {self._waking: self._on_signal}
        poll.register(self._waking, select.POLLIN)
        if self._guard is not None:
            handlers[self._guard.fileno()] = self._on_guard
            poll.register(self._guard.fileno(), select.POLLIN)
        resting = self._rest_until is not None
        if not resting and self._has_room():
            for intake in self._intakes:
                if intake.open:
                    handlers[intake.fd] = lambda intake=intake: self._on_output(intake)  # type: ignore[misc]
                    poll.register(intake.fd, select.POLLIN)
        engine = self._gate.engine
        if engine is not None:
            mask = select.POLLIN if engine.reads and not resting else 0
            if engine.has_more or engine.sent < self._spool.end:
                mask |= select.POLLOUT
            handlers[engine.fd] = self._on_engine
            if mask:
                poll.register(engine.fd, mask)
        if not resting:
            handlers[self._gate.fd] = self._gate.let_in
            poll.register(self._gate.fd, select.POLLIN)
            for visitor in self._gate.visitors:
                handlers[visitor.fd] = lambda visitor=visitor: self._on_visitor(visitor)  # type: ignore[misc]
                poll.register(visitor.fd, select.POLLIN | (select.POLLOUT if visitor.has_more else 0))
        if self._stdin >= 0 and (self._input or self._close_input):
            handlers[self._stdin] = self._feed
            poll.register(self._stdin, select.POLLOUT)
        return poll, handlers

    def _has_room(self) -> bool:
        return not self._unwritten and self._spool.kept_bytes < self._order.spool_bytes_max

    # What is due

    def _timeout_ms(self, now: float) -> int | None:
        times = [
            time
            for time in (
                self._rest_until,
                self._sync_at,
                self._retry_at,
                self._limit_at,
                self._kill_at,
                self._drained_at,
                self._alone_until(),
            )
            if time is not None
        ]
        if not times:
            return None
        return min(86_400_000, max(0, int((min(times) - now) * 1000) + 1))

    def _alone_until(self) -> float | None:
        if self._alone_since is None:
            return None
        return self._alone_since + (self._order.linger_s if self._over else self._order.unattended_limit_s)

    def _do_what_is_due(self, now: float) -> None:
        if self._rest_until is not None and now >= self._rest_until:
            self._rest_until = None
        if self._retry_at is not None and now >= self._retry_at:
            self._retry_at = None
            self._write_unwritten()
        if self._limit_at is not None and now >= self._limit_at:
            self._limit_at = None
            self._stop(b"time_limit", self._order.stop_grace_s)
        if self._kill_at is not None and now >= self._kill_at:
            self._kill_at = None
            self._tell_guard(b"k")
        if self._drained_at is not None and now >= self._drained_at:
            self._drained_at = None
            self._tell_guard(b"e")
        alone_until = self._alone_until()
        if alone_until is not None and now >= alone_until:
            if self._over:
                self._ended = True
            elif not self._stopping:
                self._stop(b"unattended", self._order.stop_grace_s)
            self._alone_since = now
        self._see_whether_it_is_over()
        if self._unanswered and not self._unwritten:
            self._answer_inputs()
        if self._sync_at is not None and now >= self._sync_at:
            self._sync_unless_confirmed(now)

    def _see_whether_it_is_over(self) -> None:
        if self._over or self._exit is None or self._unwritten:
            return
        drained = not any(intake.open for intake in self._intakes)
        if not self._tree_dead:
            if drained and self._drained_at is not None:
                self._drained_at = None
                self._tell_guard(b"e")
            return
        for intake in self._intakes:
            while intake.open and self._has_room():
                self._on_output(intake)
        if not self._has_room():
            return
        self._over = True
        if self._alone_since is not None:
            self._alone_since = monotonic()
        self._record(EXIT, 0, pack_map(self._exit))
        self._sync()

    # Records

    def _record(self, kind: int, flags: int, data: bytes) -> None:
        entry = (kind, flags, now_us(), data)
        if self._unwritten:
            self._unwritten.append(entry)
            return
        try:
            self._spool.append(*entry)
        except OSError as error:
            self._unwritten.append(entry)
            self._in_trouble(error)
            return
        if self._sync_at is None:
            self._sync_at = monotonic() + SYNC_AFTER_S
            self._sync_mark = self._spool.end

    def _write_unwritten(self) -> None:
        try:
            while self._unwritten:
                self._spool.append(*self._unwritten[0])
                del self._unwritten[0]
            self._spool.sync()
        except OSError as error:
            self._in_trouble(error)
            return
        self._out_of_trouble()

    def _sync(self) -> None:
        try:
            self._spool.sync()
        except OSError as error:
            self._in_trouble(error)

    def _sync_unless_confirmed(self, now: float) -> None:
        self._sync_at = None
        if self._spool.confirmed < self._sync_mark:
            self._sync()
            took_s = monotonic() - now
            if self._spool.synced < self._spool.end:
                self._sync_at = now + SYNC_AFTER_S + took_s * SYNC_SHARE
                self._sync_mark = self._spool.end
        elif self._spool.confirmed < self._spool.end:
            self._sync_at = now + SYNC_AFTER_S
            self._sync_mark = self._spool.end

    def _in_trouble(self, error: OSError) -> None:
        self._retry_at = monotonic() + RETRY_S
        trouble = f"the spool cannot be written: {os.strerror(error.errno or 0)}"
        if trouble != self._trouble:
            self._trouble = trouble
            self._tell_engine(frame(TROUBLE, trouble.encode()))

    def _out_of_trouble(self) -> None:
        if self._trouble:
            self._trouble = ""
            self._tell_engine(frame(TROUBLE, b""))

    # The agent

    def _on_output(self, intake: Intake) -> None:
        try:
            count, records = intake.read()
        except BlockingIOError:
            if self._tree_dead:
                intake.give_up()  # somebody outside the tree was given the pipe
            return
        for flags, data in records:
            self._record(intake.kind, flags, data)
        now = monotonic()
        if 0 < count < TRICKLE_BYTES and now - self._read_at < TRICKLE_S:
            self._rest_until = now + REST_S
        self._read_at = now

    def _feed(self) -> None:
        """Give the agent input, as much as it takes."""
        try:
            while self._input:
                written = os.write(self._stdin, self._input[0])
                if written == len(self._input[0]):
                    del self._input[0]
                else:
                    self._input[0] = self._input[0][written:]
        except BlockingIOError:
            return
        except OSError:
            self._input.clear()
            self._close_input = True  # it has closed its standard input
        if self._close_input:
            os.close(self._stdin)
            self._stdin = -1

    def _on_guard(self) -> None:
        assert self._guard is not None
        try:
            said = unpack(self._guard.recv(4096))
        except OSError:
            said = []
        if not said:
            self._guard.close()
            self._guard = None
            if not self._tree_dead:
                self._do_without_guard()
        elif said[0] == b"started":
            self._agent_pid = int(said[1])
            self._record(STARTED, 0, said[1])
            self._tell_engine(self._attached(0))
        elif said[0] == b"failed":
            self._exit = {"where": said[1].decode(), "errno": said[2].decode()}
            self._tree_dead = True
            self._tell_engine(frame(REFUSED, START_FAILED, said[1], said[2]))
        elif said[0] == b"exit":
            self._on_exit(*map(int, said[1:]))
        elif said[0] == b"dead":
            self._tree_dead = True

    def _on_exit(self, status: int, utime_us: int, stime_us: int, rss_max_bytes: int, duration_us: int) -> None:
        code = os.waitstatus_to_exitcode(status)
        self._exit = {
            "code" if code >= 0 else "signal": str(abs(code)),
            "core": str(int(os.WCOREDUMP(status))),
            "oom": str(int(code == -9 and not self._stopping and oom_kills() > self._oom_kills)),
            "utime_us": str(utime_us),
            "stime_us": str(stime_us),
            "rss_max_bytes": str(rss_max_bytes),
            "duration_us": str(duration_us),
        }
        self._limit_at = self._kill_at = None
        self._drained_at = monotonic() + DRAIN_S

    def _do_without_guard(self) -> None:
        """The guard was killed: its children are ours now, and without it the agent cannot go on."""
        self._record(STOPPING, 0, b"holder_error")
        self._stopping = True
        tree.kill(os.getpid())
        until = monotonic() + tree.KILLED_S_MAX
        while monotonic() < until:
            try:
                pid, status, used = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                select.select([], [], [], 0.005)
            elif pid == self._agent_pid and self._exit is None:
                self._on_exit(status, int(used.ru_utime * 1e6), int(used.ru_stime * 1e6), used.ru_maxrss * 1024, 0)
        if self._exit is None:
            self._exit = {}
        self._drained_at = self._kill_at = self._limit_at = None
        self._tree_dead = True

    def _stop(self, why: bytes, grace_s: float) -> None:
        if self._exit is not None:
            return
        if not self._stopping:
            self._stopping = True
            self._record(STOPPING, 0, why)
            self._tell_guard(b"t")
        kill_at = monotonic() + grace_s
        self._kill_at = kill_at if self._kill_at is None else min(kill_at, self._kill_at)

    def _tell_guard(self, word: bytes) -> None:
        if self._guard is not None:
            try:
                self._guard.send(word)
            except OSError:
                pass  # it is dead, which its end of the pair tells us next

    def _on_signal(self) -> None:
        os.read(self._waking, 512)
        self._stop(b"asked", self._order.stop_grace_s)

    # Engines

    def _push(self) -> None:
        engine = self._gate.engine
        if engine is None:
            return
        if engine.has_more or engine.sent < self._spool.end:
            engine.push(self._spool)
        if not engine.open:
            self._detached()

    def _detached(self) -> None:
        self._gate.engine = None
        self._alone_since = monotonic()

    def _tell_engine(self, message: bytes) -> None:
        if self._gate.engine is not None:
            self._gate.engine.answer(message)

    def _on_engine(self) -> None:
        engine = self._gate.engine
        if engine is None:
            return
        for kind, body in engine.receive():
            self._obey(engine, kind, body)
        if not engine.open and self._gate.engine is engine:
            self._detached()

    def _on_visitor(self, visitor: Connection) -> None:
        for kind, body in visitor.receive():
            if kind == HELLO and self._gate.engine is not visitor:
                self._greet(visitor, body)
            elif self._gate.engine is visitor:
                self._obey(visitor, kind, body)
            elif kind == STATUS:
                visitor.answer(frame(STATE, self._state()))
            else:
                visitor.close()
        visitor.push(None)
        if not visitor.open and visitor in self._gate.visitors:
            self._gate.visitors.remove(visitor)

    def _greet(self, visitor: Connection, body: bytes) -> None:
        """Attach an engine, unless another has been given the right since."""
        token, after = (int(part) for part in unpack(body))
        if token < self._token:
            visitor.answer(frame(REFUSED, OLD_TOKEN, str(self._token).encode()))
            return
        if not self._spool.start <= after <= self._spool.end:
            visitor.answer(frame(REFUSED, BAD_OFFSET, str(self._spool.start).encode(), str(self._spool.end).encode()))
            return
        self._token = token
        before = self._gate.engine
        if before is not None:
            before.answer(frame(REPLACED, str(token).encode()))
            before.push(None)
            before.close()
        self._gate.visitors.remove(visitor)
        self._gate.engine = visitor
        self._alone_since = None
        visitor.sent = self._spool.record_at(after)
        visitor.answer(self._attached(visitor.sent))
        if self._trouble:
            visitor.answer(frame(TROUBLE, self._trouble.encode()))

    def _attached(self, begin: int) -> bytes:
        return frame(ATTACHED, str(begin).encode(), self._state())

    def _state(self) -> bytes:
        state = {
            "agent_pid": str(self._agent_pid),
            "holder_pid": str(os.getpid()),
            "guard_pid": str(self._guard_pid),
            "attached": str(int(self._gate.engine is not None)),
            "over": str(int(self._over)),
            "token": str(self._token),
            "start": str(self._spool.start),
            "confirmed": str(self._spool.confirmed),
            "end": str(self._spool.end),
            "trouble": self._trouble,
        }
        return pack_map(state)

    def _obey(self, engine: Connection, kind: int, body: bytes) -> None:
        parts = unpack(body)
        if kind == CONFIRM:
            self._spool.confirm(int(parts[0]))
        elif kind == WRITE:
            self._take_input(engine, *parts)
        elif kind == STOP:
            self._stop(b"asked", float(parts[0]))
        elif kind == KILL:
            self._stop(b"asked", 0.0)
        elif kind == STATUS:
            engine.answer(frame(STATE, self._state()))
        elif kind == FINISH:
            if self._over and not self._unwritten:
                engine.answer(frame(FINISHED))
                engine.push(None)
                self._ended = True
            else:
                engine.answer(frame(REFUSED, NOT_OVER))
        else:
            engine.close()

    def _take_input(self, engine: Connection, name: bytes, data: bytes, close: bytes) -> None:
        if name in self._accepted:
            self._unanswered.append(name)  # perhaps not on disk yet
        elif self._stdin < 0 or self._close_input or self._exit is not None:
            engine.answer(frame(WRITTEN, name, CLOSED))
        elif self._unwritten or sum(map(len, self._input)) + len(data) > INPUT_BYTES_MAX:
            engine.answer(frame(WRITTEN, name, FULL))
        else:
            if data:
                self._input.append(data)
            self._close_input = close == b"1"
            self._feed()
            self._accepted.add(name)
            self._record(INPUT, 0, name)
            self._unanswered.append(name)

    def _answer_inputs(self) -> None:
        """Say that inputs were accepted, now that the spool says so too."""
        self._sync()
        if self._spool.synced < self._spool.end:
            return
        for name in self._unanswered:
            self._tell_engine(frame(WRITTEN, name, ACCEPTED))
        self._unanswered.clear()
