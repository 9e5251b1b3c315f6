"""The agent's parent: starts it, adopts its orphans, and ends the whole tree when it is told to or the holder dies.

A fork of the holder that owns nothing but one end of a socket pair. What the holder says, one byte a message:

    t  send TERM to the agent    e  end the tree: TERM to everybody, then kill    k  kill the tree

What it says, as a list of byte strings: `started` pid · `failed` where errno · `exit` status and use · `dead`
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
"""How long the agent may take to end after the holder died: everything must be dead within 2 s."""
LEFT_BEHIND_S = 0.3
"""How long processes that the agent left behind may take to end after TERM."""


def guard(order: HolderSpec, holder: socket, pipes: tuple[int, int, int]) -> NoReturn:
    """Be the guard; never returns. `pipes` are the agent's ends."""
    status = 1
    try:
        rename("maos-guard")
        Guard(order, holder, pipes).watch()
        status = 0
    finally:
        os._exit(status)


class Guard:
    """The agent's process and everything it starts."""

    def __init__(self, order: HolderSpec, holder: socket, pipes: tuple[int, int, int]) -> None:
        self._holder = holder
        process_tree.adopt_orphans()
        waking, wakes = os.pipe()
        os.set_blocking(waking, False)
        os.set_blocking(wakes, False)
        self._waking = waking
        signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, _noted)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        self._began = monotonic()
        self._agent = _start(order, holder, pipes)
        self._running = self._agent > 0

    def watch(self) -> None:
        """Serve the holder until nothing is left to guard."""
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
                    said = self._holder.recv(1)
                except OSError:
                    said = b""
                if said == b"t":
                    self._term()
                elif said in (b"e", b"k"):
                    if said == b"e":
                        self._term_everybody()
                    self._kill()
                    self._tell(b"dead")
                else:
                    self._end_without_holder()
                    return

    def _term(self) -> None:
        agent = process_tree.look(self._agent)
        if self._running and agent is not None:
            process_tree.send(agent, signal.SIGTERM)

    def _term_everybody(self) -> None:
        """Give what the agent left behind a moment to end by itself."""
        if not self._reap():
            return
        for process in process_tree.descendants(os.getpid()):
            process_tree.send(process, signal.SIGTERM)
        until = monotonic() + LEFT_BEHIND_S
        while self._reap() and monotonic() < until:
            select.select([self._waking], [], [], max(0.0, until - monotonic()))
            _drain(self._waking)

    def _kill(self) -> None:
        """Kill until nobody is left: as long as somebody of the tree lives, we have a child."""
        until = monotonic() + process_tree.KILLED_S_MAX
        while self._reap() and monotonic() < until:
            process_tree.kill(os.getpid())
            select.select([self._waking], [], [], 0.002)
            _drain(self._waking)

    def _end_without_holder(self) -> None:
        """The holder is dead. The agent may save its work, then everything goes."""
        self._term()
        until = monotonic() + ORPHANED_S
        while self._running and monotonic() < until:
            select.select([self._waking], [], [], max(0.0, until - monotonic()))
            _drain(self._waking)
            self._reap()
        self._kill()

    def _reap(self) -> bool:
        """Collect who has ended; whether anybody is left."""
        while True:
            try:
                pid, status, used = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self._agent:
                self._running = False
                self._tell(
                    b"exit",
                    str(status).encode(),
                    str(int(used.ru_utime * 1e6)).encode(),
                    str(int(used.ru_stime * 1e6)).encode(),
                    str(used.ru_maxrss * 1024).encode(),
                    str(int((monotonic() - self._began) * 1e6)).encode(),
                )

    def _tell(self, *parts: bytes) -> None:
        try:
            self._holder.send(pack(parts))
        except OSError:
            pass  # the holder is dead, which its end of the pair tells us next


def _start(order: HolderSpec, holder: socket, pipes: tuple[int, int, int]) -> int:
    """Start the agent and tell the holder; its pid, or 0 when it could not be started."""
    failed, fails = os.pipe()  # closed by a successful exec
    pid = os.fork()
    if pid == 0:
        _become(order, pipes, fails)
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


def _become(order: HolderSpec, pipes: tuple[int, int, int], fails: int) -> NoReturn:
    """Turn this new process into the agent."""
    where = b"prepare"
    try:
        parent = os.getppid()
        os.setsid()  # `kill 0` of the agent must not reach us
        process_tree.die_with_parent(signal.SIGTERM)
        if os.getppid() != parent:
            os._exit(1)
        for number, fd in enumerate(pipes):
            os.dup2(fd, number)  # not close-on-exec, as opposed to everything else we have open
        where = b"cwd"
        os.chdir(order.cwd)
        where = b"prepare"
        signal.set_wakeup_fd(-1)
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        os.umask(order.umask)
        where = b"program"
        os.execvpe(order.argv[0], order.argv, order.env)  # noqa: S606 - a list of arguments, no shell
    except OSError as error:
        os.write(fails, where + b" " + str(error.errno or 0).encode())
    finally:
        os._exit(127)


def rename(name: str) -> None:
    """Show what this process is in `ps` and `top`."""
    fd = os.open("/proc/self/comm", os.O_WRONLY)
    try:
        os.write(fd, name.encode())
    finally:
        os.close(fd)


def _drain(fd: int) -> None:
    try:
        os.read(fd, 512)
    except BlockingIOError:
        pass


def _noted(_number: int, _frame: object) -> None:
    """A handler, so that the signal is written to the pipe that wakes us."""
