"""The holder: one loop around the agent's pipes, the spool and the socket."""

from __future__ import annotations

import os
import select
from time import monotonic, sleep

from maos.holder.connections import Admission, Connection
from maos.holder.held_agent import HeldAgent
from maos.holder.intake import Intake
from maos.holder.machine import crash_point
from maos.holder.spool_writer import SpoolWriter
from maos.holder.wire import (
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
    STATE,
    STATUS,
    STOP,
    TROUBLE,
    WRITE,
    WRITTEN,
    HolderSpec,
    frame,
    pack_map,
    unpack,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Wanted = tuple[int, int, Callable[..., None], tuple[Any, ...]]

SOCKET = "s"
REST_S = 0.02
"""While lines trickle they are collected for so long, and everything else waits too: a wake-up costs as much as twenty
lines."""
REST_S_MAX = 0.08
TRICKLE_S = 0.2
"""Reads this close to one another are a trickle."""
TRICKLE_BYTES = 4 << 10
"""And more than this at once is none: the pipe must not fill up while we rest."""
_NOT_OURS = (ValueError, TypeError, IndexError)
"""What comes of a frame that no engine sends. Whoever sent it is sent away; the agent must not suffer."""


class Holder:
    """The agent, its spool and whoever is attached."""

    def __init__(self, order: HolderSpec, engine: Connection, waking: int) -> None:
        self._order = order
        self._waking = waking
        self._recorder = SpoolWriter(order.spool_bytes_max, self._tell_trouble)
        self._spool = self._recorder.spool
        self._agent = HeldAgent(order, self._recorder)
        self._gate = Admission(engine)
        self._starter = engine
        self._token = order.token
        self._accepted: set[bytes] = set()
        self._unanswered: list[bytes] = []
        self._over = False
        """Whether the exit is recorded."""
        self._ended = False
        self._read_at = 0.0
        self._trickles = False
        self._rest_s = REST_S
        self._waited_for: list[Wanted] = []
        self._poll = select.poll()
        self._handlers: dict[int, tuple[Callable[..., None], tuple[Any, ...]]] = {}
        self._alone_since: float | None = None

    def start(self) -> None:
        """Listen, then start the agent: who finds the agent can find us."""
        self._gate.listen(SOCKET)
        crash_point("holder listens")
        self._agent.start()
        crash_point("holder has started the guard")

    def run(self) -> None:
        """Serve until it is over and nobody needs us any more."""
        while True:
            self._do_what_is_due(monotonic())
            if self._ended:
                break
            self._push()
            if self._trickles:
                self._rest()
            for fd, _mask in self._waiting().poll(self._timeout_ms()):
                handler, subject = self._handlers[fd]
                handler(*subject)
        self._gate.close(SOCKET)

    def _rest(self) -> None:
        """Let lines collect; longer when the machine is late in waking us, which means that it has too much to do."""
        self._trickles = False
        before = monotonic()
        sleep(self._rest_s)
        late_s = monotonic() - before - self._rest_s
        self._rest_s = min(REST_S_MAX, self._rest_s * 2) if late_s > REST_S / 2 else max(REST_S, self._rest_s / 2)

    def _waiting(self) -> select.poll:
        """What to poll; made anew only when something else is waited for than the last time."""
        wanted = self._wanted()
        if wanted != self._waited_for:
            self._waited_for = wanted
            self._poll = select.poll()
            self._handlers = {}
            for fd, mask, handler, subject in wanted:
                self._poll.register(fd, mask)
                self._handlers[fd] = (handler, subject)
        return self._poll

    def _wanted(self) -> list[Wanted]:
        """What can happen next: file descriptor, what is waited for, and who handles it."""
        agent, gate, engine = self._agent, self._gate, self._gate.engine
        wanted: list[Wanted] = [
            (self._waking, select.POLLIN, self._on_signal, ()),
            (gate.fd, select.POLLIN, gate.let_in, ()),
        ]
        if agent.guard is not None:
            wanted.append((agent.guard.fileno(), select.POLLIN, self._on_guard, ()))
        if agent.waits_for_input:
            wanted.append((agent.stdin, select.POLLOUT, agent.feed, ()))
        if engine is not None:
            mask = (select.POLLIN if engine.reads else 0) | (select.POLLOUT if self._has_news_for(engine) else 0)
            wanted.append((engine.fd, mask, self._on_engine, (engine,)))
        if self._recorder.has_room and agent.known:  # "started" comes first
            for intake in agent.intakes:
                if intake.open:
                    wanted.append((intake.fd, select.POLLIN, self._on_output, (intake,)))
        for visitor in gate.visitors:
            mask = select.POLLIN | (select.POLLOUT if visitor.has_more else 0)
            wanted.append((visitor.fd, mask, self._on_visitor, (visitor,)))
        return wanted

    def _timeout_ms(self) -> int | None:
        times = (self._alone_until(), *self._recorder.times(), *self._agent.times())
        due = [time for time in times if time is not None]
        return min(86_400_000, max(0, int((min(due) - monotonic()) * 1000) + 1)) if due else None

    def _do_what_is_due(self, now: float) -> None:
        self._agent.do_what_is_due(now)
        alone_until = self._alone_until()
        if alone_until is not None and now >= alone_until:
            self._alone_since = now
            if self._over:
                self._ended = self._recorder.safe
            else:
                self._agent.stop(b"unattended", self._order.stop_grace_s)
        if not self._over and self._agent.tree_dead and self._agent.exit is not None and self._agent.read_the_rest():
            self._over = True
            self._recorder.record(EXIT, 0, pack_map(self._agent.exit))
            self._recorder.sync()
            if self._alone_since is not None:
                self._alone_since = now
        self._recorder.do_what_is_due(now)
        if self._unanswered:
            self._answer_inputs()

    def _alone_until(self) -> float | None:
        if self._alone_since is None:
            return None
        return self._alone_since + (self._order.linger_s if self._over else self._order.unattended_limit_s)

    # The agent

    def _on_output(self, intake: Intake) -> None:
        count = self._agent.read(intake)
        now = monotonic()
        self._trickles = 0 < count < TRICKLE_BYTES and now - self._read_at < TRICKLE_S
        self._read_at = now

    def _on_guard(self) -> None:
        agent, engine = self._agent, self._gate.engine
        known = agent.known
        agent.hear()
        if known or not agent.known or engine is None:
            return
        if agent.failed and engine is self._starter:
            engine.answer(frame(REFUSED, START_FAILED, *agent.failed))
        else:
            engine.answer(self._attached(engine.sent))

    def _on_signal(self) -> None:
        os.read(self._waking, 512)
        self._agent.stop(b"asked", self._order.stop_grace_s)

    # Engines

    def _push(self) -> None:
        engine = self._gate.engine
        if engine is None:
            return
        if self._has_news_for(engine):
            engine.push(self._spool if self._may_tell() else None)
        if not engine.open:
            self._detached()

    def _has_news_for(self, engine: Connection) -> bool:
        return engine.has_more or (engine.sent < self._spool.end and self._may_tell())

    def _may_tell(self) -> bool:
        """Nobody hears of the output before the start, nor of the exit while it could still be forgotten."""
        return self._agent.known and (not self._over or self._recorder.safe)

    def _detached(self) -> None:
        self._gate.engine = None
        self._alone_since = monotonic()

    def _tell_engine(self, message: bytes) -> None:
        if self._gate.engine is not None:
            self._gate.engine.answer(message)

    def _tell_trouble(self, trouble: str) -> None:
        self._tell_engine(frame(TROUBLE, trouble.encode()))

    def _on_engine(self, engine: Connection) -> None:
        if engine is not self._gate.engine:
            return  # replaced a moment ago
        try:
            for kind, body in engine.receive():
                self._obey(engine, kind, body)
        except _NOT_OURS:
            engine.close()
        if not engine.open and self._gate.engine is engine:
            self._detached()

    def _on_visitor(self, visitor: Connection) -> None:
        try:
            for kind, body in visitor.receive():
                if self._gate.engine is visitor:
                    self._obey(visitor, kind, body)
                elif kind == HELLO:
                    self._greet(visitor, body)
                elif kind == STATUS:
                    visitor.answer(frame(STATE, self._state()))
                else:
                    visitor.close()
        except _NOT_OURS:
            visitor.close()
        visitor.push(None)
        if not visitor.open and visitor in self._gate.visitors:
            self._gate.visitors.remove(visitor)

    def _greet(self, visitor: Connection, body: bytes) -> None:
        """Attach an engine, unless another has been given the right since."""
        token, after = map(int, unpack(body))
        if token < self._token:
            visitor.answer(frame(REFUSED, OLD_TOKEN, str(self._token).encode()))
            return
        if not self._spool.start <= after <= self._spool.end:
            readable = (str(self._spool.start).encode(), str(self._spool.end).encode())
            visitor.answer(frame(REFUSED, BAD_OFFSET, *readable))
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
        if self._agent.known:
            visitor.answer(self._attached(visitor.sent))
        if self._recorder.trouble:
            self._tell_trouble(self._recorder.trouble)

    def _attached(self, begin: int) -> bytes:
        return frame(ATTACHED, str(begin).encode(), self._state())

    def _state(self) -> bytes:
        state = {
            "agent_pid": self._agent.pid,
            "holder_pid": os.getpid(),
            "guard_pid": self._agent.guard_pid,
            "attached": int(self._gate.engine is not None),
            "over": int(self._over),
            "token": self._token,
            "start": self._spool.start,
            "confirmed": self._spool.confirmed,
            "end": self._spool.end,
        }
        return pack_map({name: str(value) for name, value in state.items()})

    def _obey(self, engine: Connection, kind: int, body: bytes) -> None:
        parts = unpack(body)
        if kind == CONFIRM:
            self._spool.confirm(int(parts[0]))
        elif kind == WRITE:
            self._take_input(engine, *parts)
        elif kind == STOP:
            self._agent.stop(b"asked", float(parts[0]))
        elif kind == KILL:
            self._agent.stop(b"asked", 0.0)
        elif kind == STATUS:
            engine.answer(frame(STATE, self._state()))
        elif kind == FINISH:
            if self._over and self._recorder.safe:
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
        elif not self._agent.takes_input:
            engine.answer(frame(WRITTEN, name, CLOSED))
        elif self._recorder.trouble or not self._agent.has_room_for(data):
            engine.answer(frame(WRITTEN, name, FULL))
        else:
            self._agent.give(data, close=close == b"1")
            self._accepted.add(name)
            self._recorder.record(INPUT, 0, name)
            self._unanswered.append(name)

    def _answer_inputs(self) -> None:
        """Say that inputs were accepted, as soon as that is on disk."""
        self._recorder.sync()
        if self._recorder.safe:
            for name in self._unanswered:
                self._tell_engine(frame(WRITTEN, name, ACCEPTED))
            self._unanswered.clear()
