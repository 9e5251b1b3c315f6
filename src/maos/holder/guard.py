"""The agent's parent: starts it, adopts its orphans, and ends the whole tree on request or when the holder dies.

The guard is a fork of the holder that owns nothing but one end of a socket pair. The holder sends one byte a message:

    t  send TERM to the agent    e  end the tree: TERM to all processes, then kill    k  kill the tree

The guard sends lists of byte strings: `started` pid · `failed` where errno · `exit` status and usage · `dead`
"""

from __future__ import annotations

import os
import select
from time import monotonic

from maos.holder import process_tree
from maos.holder.wire import HolderSpec, pack

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from _socket import socket
    from typing import NoReturn
else:
    import _signal as signal

ORPHANED_S = 1.2
"""How long the agent may take to end after the holder died: the whole tree must be dead within 2 s."""
LEFT_BEHIND_S = 0.3
"""How long processes that outlive the agent may take to end after TERM."""


def guard(spec: HolderSpec, holder: socket, pipes: tuple[int, int, int]) -> NoReturn:
    """Run the guard in this forked process; never returns. `pipes` are the agent's ends of its pipes."""
    status = 1
    try:
        rename("maos-guard")
        Guard(spec, holder, pipes).watch()
        status = 0
    finally:
        os._exit(status)


class Guard:
    """Starts the agent, and ends it with all its descendants."""

    def __init__(self, spec: HolderSpec, holder: socket, pipes: tuple[int, int, int]) -> None:
        self._holder = holder
        process_tree.adopt_orphans()
        self._waking = wake_on(signal.SIGCHLD)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        self._began = monotonic()
        self._agent = _start(spec, holder, pipes)
        self._running = self._agent > 0

    def watch(self) -> None:
        """Obey the holder until it closes the socket or dies, then end the tree."""
        if not self._running:
            return
        poll = select.poll()
        poll.register(self._holder.fileno(), select.POLLIN)
        poll.register(self._waking, select.POLLIN)
        while True:
            for fd, _mask in poll.poll():
                if fd == self._waking:
                    os.read(self._waking, 512)
                    self._reap()
                    continue
                try:
                    command = self._holder.recv(1)
                except OSError:
                    command = b""
                if command == b"t":
                    self._term()
                elif command in (b"e", b"k"):
                    if command == b"e":
                        self._term_all()
                    self._kill()
                    self._report(b"dead")
                else:
                    self._end_without_holder()
                    return

    def _term(self) -> None:
        agent = process_tree.look(self._agent)
        if self._running and agent is not None:
            process_tree.send(agent, signal.SIGTERM)

    def _term_all(self) -> None:
        """Send TERM to the processes that outlived the agent, and wait a moment for them to end."""
        if not self._reap():
            return
        for process in process_tree.descendants(os.getpid()):
            process_tree.send(process, signal.SIGTERM)
        until = monotonic() + LEFT_BEHIND_S
        while self._reap() and monotonic() < until:
            self._wait(until - monotonic())

    def _kill(self) -> None:
        """Kill until no process is left: as long as one of the tree lives, the guard has a child."""
        until = monotonic() + process_tree.KILLED_S_MAX
        while self._reap() and monotonic() < until:
            process_tree.kill(os.getpid())
            self._wait(0.002)

    def _end_without_holder(self) -> None:
        """End the tree after the holder died: the agent gets TERM and time to save its work, then all are killed."""
        self._term()
        until = monotonic() + ORPHANED_S
        while self._running and monotonic() < until:
            self._wait(until - monotonic())
            self._reap()
        self._kill()

    def _wait(self, within_s: float) -> None:
        """Wait until a process has ended, at most this long."""
        select.select([self._waking], [], [], max(0.0, within_s))
        try:
            os.read(self._waking, 512)
        except BlockingIOError:
            pass

    def _reap(self) -> bool:
        """Collect processes that have ended; return whether any is left."""
        while True:
            try:
                pid, status, used = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self._agent:
                self._running = False
                times_s = (used.ru_utime, used.ru_stime, monotonic() - self._began)
                user_us, system_us, passed_us = (int(seconds * 1e6) for seconds in times_s)
                numbers = (status, user_us, system_us, used.ru_maxrss * 1024, passed_us)
                self._report(b"exit", *(str(number).encode() for number in numbers))

    def _report(self, *parts: bytes) -> None:
        try:
            self._holder.send(pack(parts))
        except OSError:
            pass  # the holder is dead; the next receive notices


def _start(spec: HolderSpec, holder: socket, pipes: tuple[int, int, int]) -> int:
    """Start the agent and report to the holder; return its pid, or 0 when it could not be started."""
    failed, fails = os.pipe()  # closed by a successful exec
    pid = os.fork()
    if pid == 0:
        _exec(spec, pipes, fails)
    for fd in pipes:
        os.close(fd)
    os.close(fails)
    why = os.read(failed, 256)
    os.close(failed)
    if why:
        os.waitpid(pid, 0)
        where, number = why.split()
        holder.send(pack([b"failed", where, number]))
        return 0
    holder.send(pack([b"started", str(pid).encode()]))
    return pid


def _exec(spec: HolderSpec, pipes: tuple[int, int, int], fails: int) -> NoReturn:
    where = b"prepare"
    try:
        parent = os.getppid()
        os.setsid()  # `kill 0` in the agent must not reach the guard
        process_tree.die_with_parent(signal.SIGTERM)
        if os.getppid() != parent:
            os._exit(1)
        for number, fd in enumerate(pipes):
            os.dup2(fd, number)  # the only descriptors without close-on-exec
        where = b"cwd"
        os.chdir(spec.cwd)
        where = b"prepare"
        signal.set_wakeup_fd(-1)
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        os.umask(spec.umask)
        where = b"program"
        os.execvpe(spec.argv[0], spec.argv, spec.env)  # noqa: S606 - a list of arguments, no shell
    except OSError as error:
        os.write(fails, where + b" " + str(error.errno or 0).encode())
    finally:
        os._exit(127)


def wake_on(number: int) -> int:
    """Return the reading end of a pipe that becomes readable when this signal arrives; nothing else happens then."""
    waking, wakes = os.pipe()
    os.set_blocking(waking, False)
    os.set_blocking(wakes, False)
    signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
    signal.signal(number, lambda _number, _frame: None)  # without a handler, Python would not write to the pipe
    return waking


def rename(name: str) -> None:
    """Set the name that `ps` and `top` show for this process."""
    fd = os.open("/proc/self/comm", os.O_WRONLY)
    try:
        os.write(fd, name.encode())
    finally:
        os.close(fd)
