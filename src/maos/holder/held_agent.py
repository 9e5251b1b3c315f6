"""The agent as the holder sees it: its guard, its three pipes, and how it ended.

Output is read in blocks of whole lines, with secrets redacted.
"""

from __future__ import annotations

import _socket
import os
from time import monotonic, sleep

from maos.holder import process_tree, wire
from maos.holder.guard import guard
from maos.holder.spool import SpoolWriter
from maos.redact import Redactor

DRAIN_S = 0.5
"""How long a process that outlives the agent may keep the output open."""
READ_BYTES = 64 << 10
"""The most that one read takes; with a smaller line limit every block would have to be searched line by line."""
FEW_BYTES = 4 << 10
"""The size of a read while the agent writes little: a larger buffer costs time even when it stays empty."""


def oom_kills() -> int:
    """Return how many processes of this cgroup the kernel has killed for lack of memory; 0 where it does not say."""
    try:
        path = process_tree.read_file("/proc/self/cgroup").split(b"::", 1)[1].split(b"\n", 1)[0].decode()
        for line in process_tree.read_file(f"/sys/fs/cgroup{path}/memory.events").splitlines():
            name, _, count = line.partition(b" ")
            if name == b"oom_kill":
                return int(count)
    except (OSError, IndexError):
        pass  # no cgroup v2 here
    return 0


class Intake:
    """An output pipe, and the part of a line that has been read from it so far."""

    def __init__(self, fd: int, kind: int, redactor: Redactor, line_bytes_max: int) -> None:
        self.fd = fd
        self.kind = kind
        self.open = True
        self._redactor = redactor
        self._line_bytes_max = line_bytes_max
        self._read_bytes = FEW_BYTES
        self._rest = bytearray()

    def read(self) -> tuple[int, list[tuple[int, bytes]]]:
        """Line 1/8: read the pipe; return how many bytes there were (0 at the end) and their records: flags and data.

        Raises BlockingIOError when there is nothing to read before the end.
        """
        data = os.read(self.fd, self._read_bytes)
        self._read_bytes = READ_BYTES if len(data) == self._read_bytes else FEW_BYTES
        if not data:
            return 0, self.close()
        return len(data), self._split(data)

    def close(self) -> list[tuple[int, bytes]]:
        """Stop reading, even if a process still has the pipe open; return the last records."""
        self.open = False
        os.close(self.fd)
        return self._flush()

    def _split(self, data: bytes) -> list[tuple[int, bytes]]:
        cut = data.rfind(b"\n") + 1
        records: list[tuple[int, bytes]] = []
        if cut:
            lines = data if cut == len(data) else data[:cut]
            if self._rest:
                if len(self._rest) + lines.find(b"\n") > self._line_bytes_max:
                    records.extend(self._cut())
                lines = bytes(self._rest) + lines
                self._rest.clear()
            clean = self._redactor.lines(lines)
            if clean:
                records.append((0, clean))
            data = data[cut:]
        self._rest += data
        if len(self._rest) >= self._line_bytes_max:
            records.extend(self._cut())
        return records

    def _cut(self) -> list[tuple[int, bytes]]:
        """Return as much of an over-long line as certainly does not end inside a secret."""
        clean, used = self._redactor.part(bytes(self._rest))
        del self._rest[:used]
        return [(wire.PARTIAL, clean)] if clean else []

    def _flush(self) -> list[tuple[int, bytes]]:
        clean = self._redactor.lines(bytes(self._rest)) if self._rest else b""
        self._rest.clear()
        return [(wire.NO_NEWLINE, clean)] if clean else []


class HeldAgent:
    """The agent's process tree, from its start to its end."""

    def __init__(self, spec: wire.HolderSpec, writer: SpoolWriter) -> None:
        self.pid = 0
        self.guard_pid = 0
        self.failed: tuple[bytes, bytes] | None = None
        """What failed when it was started, and the error number."""
        self.exit: dict[str, str] | None = None
        """How its first process ended."""
        self.tree_dead = False
        """Whether all its descendants are dead too."""
        self.guard: _socket.socket | None = None
        self.intakes: list[Intake] = []
        self.stdin = -1
        self._spec = spec
        self._writer = writer
        self._stopping = False
        self._input = [spec.first_input] if spec.first_input else []
        self._close_input = not spec.keeps_input_open
        self._oom_kills = 0
        self._limit_s = spec.time_limit_s or 0.0
        self._worked_s = 0.0
        """How much of the time limit was used before it was last suspended."""
        self._works_since: float | None = None
        """Since when the time limit counts; None: it does not, because it is suspended or the agent does not run."""
        # When something is due, on the monotonic clock; None: never.
        self._kill_at: float | None = None
        self._drained_at: float | None = None

    def start(self) -> None:
        """Start the guard, which starts the agent and reports how that went."""
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
            guard(self._spec, theirs, pipes)
        for fd in (inputs[0], outputs[1], errors[1]):
            os.close(fd)
        theirs.close()
        self.guard = ours
        self.stdin = inputs[1]
        for fd in (inputs[1], outputs[0], errors[0]):
            os.set_blocking(fd, False)
        self.intakes = [
            Intake(fd, kind, Redactor(self._spec.secrets), self._spec.line_bytes_max)
            for fd, kind in ((outputs[0], wire.STDOUT), (errors[0], wire.STDERR))
        ]
        self._works_since = monotonic()

    @property
    def start_reported(self) -> bool:
        """Whether the guard has reported the start or its failure."""
        return self.pid > 0 or self.exit is not None

    # Time

    @property
    def _limit_at(self) -> float | None:
        """When the time limit is reached; None: never, as it is now."""
        if not self._limit_s or self._works_since is None or self._stopping or self.exit is not None:
            return None
        return self._works_since + self._limit_s - self._worked_s

    def times(self) -> tuple[float | None, float | None, float | None]:
        """Return when the time limit, the kill and the end of draining are due; None: never."""
        return self._limit_at, self._kill_at, self._drained_at

    def run_due(self, now: float) -> None:
        """Stop the agent at its time limit, kill it after the grace, end processes that outlive it."""
        if self._limit_at is not None and now >= self._limit_at:
            self.stop(b"time_limit", self._spec.stop_grace_s)
        if self._kill_at is not None and now >= self._kill_at:
            self._kill_at = None
            self._send_to_guard(b"k")
        if self._drained_at is not None:
            drained = not any(intake.open for intake in self.intakes)
            if drained or now >= self._drained_at:
                self._drained_at = None
                self._send_to_guard(b"e")

    def suspend_limit(self, *, suspended: bool) -> None:
        """Let the time limit rest, or continue with what is left of it. A repeated request changes nothing."""
        if suspended and self._works_since is not None:
            self._worked_s += monotonic() - self._works_since
            self._works_since = None
        elif not suspended and self._works_since is None and self.exit is None:
            self._works_since = monotonic()

    def set_limit(self, limit_s: float) -> None:
        """Set how long the agent may work from its start, without the time in which the limit is suspended; 0: for
        ever. A repeated request changes nothing."""
        self._limit_s = limit_s

    def stop(self, why: bytes, grace_s: float) -> None:
        """Send TERM to the agent, and kill its tree after the grace. A second stop can only shorten the grace."""
        if self.exit is not None:
            return
        if not self._stopping:
            self._stopping = True
            self._writer.record(wire.STOPPING, 0, why)
            self._send_to_guard(b"t")
        kill_at = monotonic() + grace_s
        self._kill_at = kill_at if self._kill_at is None else min(kill_at, self._kill_at)

    # Input and output

    @property
    def waits_for_input(self) -> bool:
        """Whether its standard input has to be written to, or closed."""
        return self.stdin >= 0 and (bool(self._input) or self._close_input)

    @property
    def takes_input(self) -> bool:
        """Whether it accepts more input."""
        return self.stdin >= 0 and not self._close_input and self.exit is None

    def has_room_for(self, data: bytes) -> bool:
        """Return whether this much more input fits into the queue."""
        return sum(map(len, self._input)) + len(data) <= wire.INPUT_BYTES_MAX

    def give(self, data: bytes, *, close: bool) -> None:
        """Queue input for the agent."""
        if data:
            self._input.append(data)
        self._close_input = close
        self.feed()

    def feed(self) -> None:
        """Write queued input to the agent until its pipe is full."""
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
        """Read an output pipe once and record the output; return how many bytes there were."""
        try:
            count, records = intake.read()
        except BlockingIOError:
            if not self.tree_dead:
                return 0
            count, records = 0, intake.close()  # a process outside the tree still has the pipe
        for flags, data in records:
            self._writer.record(intake.kind, flags, data)
        return count

    def drain(self) -> bool:
        """Read on after the tree is dead; return whether all output is recorded."""
        for intake in self.intakes:
            if intake.open and self._writer.has_room:
                self.read(intake)
        return not any(intake.open for intake in self.intakes)

    # The guard

    def receive(self) -> None:
        """Handle a message of the guard."""
        assert self.guard is not None
        try:
            message = wire.unpack(self.guard.recv(4096))
        except OSError:
            message = []
        if not message:
            self.guard.close()
            self.guard = None
            if not self.tree_dead:
                self._kill_without_guard()
        elif message[0] == b"started":
            self.pid = int(message[1])
            self._writer.record(wire.STARTED, 0, message[1])
        elif message[0] == b"failed":
            self.failed = (message[1], message[2])
            self.exit = {"where": message[1].decode(), "errno": message[2].decode()}
            self.tree_dead = True
        elif message[0] == b"exit":
            self._note_exit(*map(int, message[1:]))
            self._drained_at = monotonic() + DRAIN_S
        elif message[0] == b"dead":
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
        self._kill_at = None

    def _kill_without_guard(self) -> None:
        """Kill the tree after the guard was killed: its children are now the holder's, and the agent needs a guard."""
        if self.exit is None:
            self._stopping = True
            self._writer.record(wire.STOPPING, 0, b"holder_error")
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
            self.exit = {}  # it ended before the guard did, and the guard has not reported how
        self._kill_at = self._drained_at = None
        self.tree_dead = True

    def _send_to_guard(self, word: bytes) -> None:
        if self.guard is not None:
            try:
                self.guard.send(word)
            except OSError:
                pass  # it is dead; the next receive notices
