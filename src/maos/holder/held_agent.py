"""The agent as the holder sees it: a guard to talk to, three pipes, and how it ended."""

from __future__ import annotations

import _socket
import os
from time import monotonic, sleep

from maos.holder import process_tree
from maos.holder.guard import guard
from maos.holder.intake import Intake
from maos.holder.machine import oom_kills
from maos.holder.spool_writer import SpoolWriter
from maos.holder.wire import STARTED, STDERR, STDOUT, STOPPING, HolderSpec, unpack
from maos.redact import Redactor

DRAIN_S = 0.5
"""How long a process that the agent left behind may keep the output open."""
INPUT_BYTES_MAX = 1 << 20
"""How much input may wait for an agent that does not read."""


class HeldAgent:
    """The agent's process tree, from its start to its end."""

    def __init__(self, order: HolderSpec, recorder: SpoolWriter) -> None:
        self.pid = 0
        self.guard_pid = 0
        self.failed: tuple[bytes, bytes] | None = None
        """What could not be done to start it, and the error number."""
        self.exit: dict[str, str] | None = None
        """How its first process ended."""
        self.tree_dead = False
        """Whether everything that came from it is gone too."""
        self.guard: _socket.socket | None = None
        self.intakes: list[Intake] = []
        self.stdin = -1
        self._order = order
        self._recorder = recorder
        self._stopping = False
        self._input = [order.first_input] if order.first_input else []
        self._close_input = not order.keep_stdin_open
        self._oom_kills = 0
        # When what is due, in steady seconds; None: never.
        self._limit_at: float | None = None
        self._kill_at: float | None = None
        self._drained_at: float | None = None

    def start(self) -> None:
        """Start the guard, which starts the agent; what comes of it is heard from the guard."""
        inputs, outputs, errors = os.pipe(), os.pipe(), os.pipe()
        ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
        process_tree.adopt_orphans()
        self._oom_kills = oom_kills()
        self.guard_pid = os.fork()
        if self.guard_pid == 0:
            pipes = (inputs[0], outputs[1], errors[1])
            for name in os.listdir("/proc/self/fd"):
                if int(name) not in (1, 2, theirs.fileno(), *pipes):
                    os.closerange(int(name), int(name) + 1)
            guard(self._order, theirs, pipes)
        for fd in (inputs[0], outputs[1], errors[1]):
            os.close(fd)
        theirs.close()
        self.guard = ours
        self.stdin = inputs[1]
        for fd in (inputs[1], outputs[0], errors[0]):
            os.set_blocking(fd, False)
        self.intakes = [
            Intake(fd, kind, Redactor(self._order.secrets), self._order.line_bytes_max)
            for fd, kind in ((outputs[0], STDOUT), (errors[0], STDERR))
        ]
        if self._order.time_limit_s is not None:
            self._limit_at = monotonic() + self._order.time_limit_s

    @property
    def known(self) -> bool:
        """Whether the guard has said what became of the start."""
        return self.pid > 0 or self.exit is not None

    # Time

    def times(self) -> tuple[float | None, float | None, float | None]:
        """When `do_what_is_due` has something to do."""
        return self._limit_at, self._kill_at, self._drained_at

    def do_what_is_due(self, now: float) -> None:
        """Stop at the time limit, kill after the grace, end what was left behind."""
        if self._limit_at is not None and now >= self._limit_at:
            self._limit_at = None
            self.stop(b"time_limit", self._order.stop_grace_s)
        if self._kill_at is not None and now >= self._kill_at:
            self._kill_at = None
            self._tell_guard(b"k")
        if self._drained_at is not None:
            drained = not any(intake.open for intake in self.intakes)
            if drained or now >= self._drained_at:
                self._drained_at = None
                self._tell_guard(b"e")

    def stop(self, why: bytes, grace_s: float) -> None:
        """Ask it to end, and see to it when the grace is over. A second stop can only shorten that."""
        if self.exit is not None:
            return
        if not self._stopping:
            self._stopping = True
            self._recorder.record(STOPPING, 0, why)
            self._tell_guard(b"t")
        kill_at = monotonic() + grace_s
        self._kill_at = kill_at if self._kill_at is None else min(kill_at, self._kill_at)

    # Input and output

    @property
    def waits_for_input(self) -> bool:
        """Whether its standard input should be written to, or closed."""
        return self.stdin >= 0 and (bool(self._input) or self._close_input)

    @property
    def takes_input(self) -> bool:
        """Whether more input may be given to it at all."""
        return self.stdin >= 0 and not self._close_input and self.exit is None

    def has_room_for(self, data: bytes) -> bool:
        """Whether it has read enough of what it was given before."""
        return sum(map(len, self._input)) + len(data) <= INPUT_BYTES_MAX

    def give(self, data: bytes, *, close: bool) -> None:
        """Put input in the queue for it."""
        if data:
            self._input.append(data)
        self._close_input = close
        self.feed()

    def feed(self) -> None:
        """Give it as much of its input as it takes."""
        try:
            while self._input:
                written = os.write(self.stdin, self._input[0])
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
            os.close(self.stdin)
            self.stdin = -1

    def read(self, intake: Intake) -> int:
        """Record what one read gives; how many bytes that were."""
        try:
            count, records = intake.read()
        except BlockingIOError:
            if not self.tree_dead:
                return 0
            count, records = 0, intake.give_up()  # somebody outside the tree was given the pipe
        for flags, data in records:
            self._recorder.record(intake.kind, flags, data)
        return count

    def read_the_rest(self) -> bool:
        """Whether all output is recorded, once everybody is dead who could write some."""
        for intake in self.intakes:
            if intake.open and self._recorder.has_room:
                self.read(intake)
        return not any(intake.open for intake in self.intakes)

    # The guard

    def hear(self) -> None:
        """Take note of what the guard says."""
        assert self.guard is not None
        try:
            said = unpack(self.guard.recv(4096))
        except OSError:
            said = []
        if not said:
            self.guard.close()
            self.guard = None
            if not self.tree_dead:
                self._do_without_guard()
        elif said[0] == b"started":
            self.pid = int(said[1])
            self._recorder.record(STARTED, 0, said[1])
        elif said[0] == b"failed":
            self.failed = (said[1], said[2])
            self.exit = {"where": said[1].decode(), "errno": said[2].decode()}
            self._limit_at = None
            self.tree_dead = True
        elif said[0] == b"exit":
            self._note_exit(*map(int, said[1:]))
            self._drained_at = monotonic() + DRAIN_S
        elif said[0] == b"dead":
            self._drained_at = None
            self.tree_dead = True

    def _note_exit(self, status: int, utime_us: int, stime_us: int, rss_max_bytes: int, duration_us: int) -> None:
        code = os.waitstatus_to_exitcode(status)
        self.exit = {
            "code" if code >= 0 else "signal": str(abs(code)),
            "core": str(int(os.WIFSIGNALED(status) and os.WCOREDUMP(status))),
            "oom": str(int(code == -9 and not self._stopping and oom_kills() > self._oom_kills)),
            "utime_us": str(utime_us),
            "stime_us": str(stime_us),
            "rss_max_bytes": str(rss_max_bytes),
            "duration_us": str(duration_us),
        }
        self._limit_at = self._kill_at = None

    def _do_without_guard(self) -> None:
        """The guard was killed: its children are ours now, and without it the agent cannot go on."""
        if self.exit is None:
            self._stopping = True
            self._recorder.record(STOPPING, 0, b"holder_error")
        until = monotonic() + process_tree.KILLED_S_MAX
        while monotonic() < until:
            process_tree.kill(os.getpid())
            try:
                pid, status, used = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                sleep(0.002)
            elif pid == self.pid and self.exit is None:
                self._note_exit(status, int(used.ru_utime * 1e6), int(used.ru_stime * 1e6), used.ru_maxrss * 1024, 0)
        if self.exit is None:
            self.exit = {}  # it ended before the guard did, and the guard has not told us how
        self._limit_at = self._kill_at = self._drained_at = None
        self.tree_dead = True

    def _tell_guard(self, word: bytes) -> None:
        if self.guard is not None:
            try:
                self.guard.send(word)
            except OSError:
                pass  # it is dead, which its end of the pair tells us next
