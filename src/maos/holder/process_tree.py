"""A process tree by parentage: who is in it, and how it is ended.

Agent CLIs put the shells they start into sessions of their own, so neither a process group nor a session holds a tree
together. Parentage does, as long as somebody adopts the orphans: guard and holder ask the kernel for that.
"""

from __future__ import annotations

import os
from time import monotonic, sleep

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
else:
    import _signal as signal  # the part that is in C: `signal` itself makes enumerations, at a megabyte

_SET_PDEATHSIG, _SET_CHILD_SUBREAPER = 1, 36
CHILDREN = "children"
"""The file in which a kernel lists the children of a thread; not every kernel is built with it."""
KILLED_S_MAX = 5.0
"""How long the kernel may take to end what was killed."""


class Seen:
    """A process as it was seen: the pid alone could be another's a moment later."""

    __slots__ = ("parent", "pid", "start_ticks", "state")

    def __init__(self, pid: int, parent: int, start_ticks: int, state: str) -> None:
        self.pid = pid
        self.parent = parent
        self.start_ticks = start_ticks
        self.state = state


def look(pid: int) -> Seen | None:
    """The process with that pid, or None."""
    try:
        fd = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        text = os.read(fd, 4096)
    except OSError:
        return None  # it ended while we looked
    finally:
        os.close(fd)
    fields = text[text.rfind(b")") + 2 :].split()
    if len(fields) < 20:
        return None
    return Seen(pid, int(fields[1]), int(fields[19]), fields[0].decode())


def everybody() -> list[Seen]:
    """Every process there is that has not ended."""
    seen = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            process = look(int(name))
            if process is not None and process.state not in "ZX":
                seen.append(process)
    return seen


def descendants(root: int) -> list[Seen]:
    """The living children of a process, their children, and so on; parents before children."""
    found: list[Seen] = []
    pids = [root]
    for pid in pids:
        for child in _children(pid):
            process = look(child)
            if process is not None and process.state not in "ZX":
                found.append(process)
                pids.append(child)
    return found


def _children(pid: int) -> list[int]:
    """The children of a process, zombies too, the youngest last.

    Asks the kernel, which takes microseconds. To read all of /proc takes milliseconds, and processes that fork again
    and again would be gone by then, leaving children nobody has seen.
    """
    children: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            fd = os.open(f"/proc/{pid}/task/{thread}/{CHILDREN}", os.O_RDONLY | os.O_CLOEXEC)
            try:
                children += map(int, _all_of(fd).split())
            finally:
                os.close(fd)
    except OSError:
        if look(pid) is not None and not os.path.exists(f"/proc/thread-self/{CHILDREN}"):
            return [process.pid for process in everybody() if process.parent == pid]  # a kernel that does not tell
        # Else it ended while we looked, and its children are somebody else's now.
    return children


def _all_of(fd: int) -> bytes:
    data = b""
    while True:
        try:
            more = os.read(fd, 65536)
        except OSError:
            return data  # it ended while we looked
        if not more:
            return data
        data += more


def send(process: Seen, number: int) -> bool:
    """Signal exactly this process; False when it is gone, even if another has its pid now."""
    try:
        fd = os.pidfd_open(process.pid)
    except OSError:
        return False
    try:
        now = look(process.pid)
        if now is None or now.start_ticks != process.start_ticks:
            return False
        signal.pidfd_send_signal(fd, number)
    except OSError:
        return False
    finally:
        os.close(fd)
    return True


def kill(root: int) -> int:
    """Kill all descendants of a process, but not the process itself; returns how many."""
    return _stop_and_kill(root, [])


def kill_all(roots: list[Seen]) -> int:
    """Kill some processes with all their descendants; returns how many."""
    return sum(_stop_and_kill(root.pid, [root]) for root in roots)


def _stop_and_kill(root: int, first: list[Seen]) -> int:
    # Everybody is stopped first, again and again until no new one appears: who is stopped cannot fork.
    for process in first:
        send(process, signal.SIGSTOP)
    met = {process.pid: process for process in first}
    looks_in_vain = 0
    while looks_in_vain < 2:
        looks_in_vain = 0 if _stop_below(root, met) else looks_in_vain + 1
    return sum(send(process, signal.SIGKILL) for process in reversed(met.values()) if process.state not in "ZX")


def _stop_below(root: int, met: dict[int, Seen]) -> bool:
    """Stop the descendants of a process that were not met before; whether anybody new was seen.

    Each is stopped the moment it is seen, the youngest first, and asked for its children after that. One that ended
    while we looked counts as new: its children got another parent, maybe after we had asked that parent for its own.
    """
    new = False
    pids = [root]
    for pid in pids:
        for child in reversed(_children(pid)):
            known = met.get(child)
            if known is not None and known.state in "ZX":
                continue  # nobody collects it, as who would is stopped or at work here
            process = look(child)
            if process is None:
                new = True
                continue
            if process.state in "ZX":
                met[child] = process
                new = True
                continue
            if known is None or known.start_ticks != process.start_ticks:
                send(process, signal.SIGSTOP)
                met[child] = process
                new = True
            pids.append(child)
    return new


def is_alive(process: Seen) -> bool:
    """Whether exactly this process has not ended."""
    now = look(process.pid)
    return now is not None and now.start_ticks == process.start_ticks and now.state not in "ZX"


def gone(processes: list[Seen], within_s: float) -> bool:
    """Whether all of them have ended, or do so within a time."""
    until = monotonic() + within_s
    while True:
        if not any(map(is_alive, processes)):
            return True
        if monotonic() > until:
            return False
        sleep(0.005)


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends."""
    _prctl(_SET_CHILD_SUBREAPER, 1)


def die_with_parent(number: int) -> None:
    """Be sent a signal when the parent ends."""
    _prctl(_SET_PDEATHSIG, number)


def _prctl(option: int, value: int) -> None:
    # Calling C through `ctypes` costs 0.7 MB and two milliseconds; through the part of it that is in C, a fifth.
    import _ctypes

    # None stands for this program itself, in C as here; the type stub does not know.
    function = _ctypes.dlsym(_ctypes.dlopen(None, 0), "prctl")  # type: ignore[arg-type]
    if _ctypes.call_function(function, (option, value, 0, 0, 0)) != 0:
        raise OSError(f"prctl({option}, {value}) failed")
