"""Process trees by parentage: finding their processes, and killing them.

Agent CLIs put the shells they start into sessions of their own, so neither a process group nor a session contains the
whole tree. Parentage does, as long as orphans are adopted: guard and holder are subreapers.
"""

from __future__ import annotations

import os
from time import monotonic, sleep

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
else:
    import _signal as signal  # the C part alone: `signal` creates enumerations, which take a megabyte

_SET_PDEATHSIG, _SET_CHILD_SUBREAPER = 1, 36
CHILDREN = "children"
"""The file in /proc that lists the children of a thread; not every kernel is built with it."""
KILLED_S_MAX = 5.0
"""How long the kernel may take to end killed processes."""


def read_file(path: str) -> bytes:
    """Return the content of a file."""
    fd = os.open(path, os.O_RDONLY)
    data = b""
    try:
        while more := os.read(fd, 65536):
            data += more
    finally:
        os.close(fd)
    return data


def boot_id() -> str:
    """Return the id of this boot of the machine: pids and start times are unique within one boot only."""
    return read_file("/proc/sys/kernel/random/boot_id").decode().strip()


class Seen:
    """A process as it was seen in /proc: its pid alone could be reused by another one a moment later."""

    __slots__ = ("parent", "pid", "start_ticks", "state")

    def __init__(self, pid: int, parent: int, start_ticks: int, state: str) -> None:
        self.pid = pid
        self.parent = parent
        self.start_ticks = start_ticks
        self.state = state


def look(pid: int) -> Seen | None:
    """Return the process with this pid, or None."""
    try:
        text = read_file(f"/proc/{pid}/stat")
    except OSError:
        return None  # there is none, or it ended in the meantime
    fields = text[text.rfind(b")") + 2 :].split()
    if len(fields) < 20:
        return None
    return Seen(pid, int(fields[1]), int(fields[19]), fields[0].decode())


def environment(pid: int) -> dict[bytes, bytes]:
    """Return the variables that a process was started with; none when it has ended, or belongs to another user."""
    try:
        text = read_file(f"/proc/{pid}/environ")
    except OSError:
        return {}
    return dict(entry.partition(b"=")[::2] for entry in text.split(b"\0") if entry)


def living(pid: int, start_ticks: int = 0) -> Seen | None:
    """Return the process with this pid unless it has ended; None, too, when another one that began then is meant."""
    seen = look(pid)
    if seen is None or seen.state in "ZX" or start_ticks not in (0, seen.start_ticks):
        return None
    return seen


def all_processes() -> list[Seen]:
    """Return every process on the machine that has not ended."""
    found = [living(int(name)) for name in os.listdir("/proc") if name.isdigit()]
    return [process for process in found if process is not None]


def descendants(root: int) -> list[Seen]:
    """Return the living descendants of a process, parents before children."""
    found: list[Seen] = []
    pids = [root]
    for pid in pids:
        for child in _children(pid):
            process = living(child)
            if process is not None:
                found.append(process)
                pids.append(child)
    return found


def ancestors(pid: int) -> list[Seen]:
    """Return the processes that a process descends from, its parent first.

    They are read until they are the same twice: one that exits meanwhile would hide those above it. The kernel gives
    its children another parent before its pid disappears.
    """
    found, is_same = _ancestors(pid), False
    while not is_same:
        again = _ancestors(pid)
        is_same = [(each.pid, each.start_ticks) for each in again] == [(each.pid, each.start_ticks) for each in found]
        found = again
    return found


def _ancestors(pid: int) -> list[Seen]:
    found: list[Seen] = []
    process = look(pid)
    while process is not None and (process := look(process.parent)) is not None:
        found.append(process)
    return found


def _children(pid: int) -> list[int]:
    """Return the pids of the children of a process, zombies included, the youngest last.

    The kernel lists them within microseconds. Reading all of /proc takes milliseconds: a process that forks again and
    again could end in that time and leave children that were not seen.
    """
    children: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            children += map(int, read_file(f"/proc/{pid}/task/{thread}/{CHILDREN}").split())
    except OSError:
        if look(pid) is not None and not os.path.exists(f"/proc/thread-self/{CHILDREN}"):
            return [process.pid for process in all_processes() if process.parent == pid]  # this kernel has no such file
        # Otherwise the process ended in the meantime, and its children have another parent now.
    return children


def send(process: Seen, number: int) -> bool:
    """Signal exactly this process; return False when it has exited, even if another process has its pid now."""
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


def kill_all(roots: list[Seen]) -> int:
    """Kill processes with all their descendants; return how many."""
    return sum(kill(root.pid, [root]) for root in roots)


def kill(root: int, first: list[Seen] | tuple[()] = ()) -> int:
    """Kill all descendants of a process, and those named first, such as the process itself; return how many."""
    # Stop all processes first, until no new one appears: a stopped process cannot fork.
    for process in first:
        send(process, signal.SIGSTOP)
    met = {process.pid: process for process in first}
    unchanged = 0
    while unchanged < 2:
        unchanged = 0 if _stop_below(root, met) else unchanged + 1
    return sum(send(process, signal.SIGKILL) for process in reversed(met.values()) if process.state not in "ZX")


def _stop_below(root: int, met: dict[int, Seen]) -> bool:
    """Stop the descendants of a process that were not met before; return whether a new one was seen.

    Each is stopped as soon as it is seen, the youngest first, and its children are listed after that. One that ended
    in between counts as new: its children got another parent, perhaps after the children of that one were listed.
    """
    new = False
    pids = [root]
    for pid in pids:
        for child in reversed(_children(pid)):
            known = met.get(child)
            if known is not None and known.state in "ZX":
                continue  # a zombie stays: its parent is stopped, or is this process
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


def wait_until_dead(processes: list[Seen], within_s: float) -> bool:
    """Wait until all processes have ended; return False if one still lives after this time."""
    until = monotonic() + within_s
    while True:
        if not any(living(process.pid, process.start_ticks) for process in processes):
            return True
        if monotonic() > until:
            return False
        sleep(0.005)


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends."""
    _prctl(_SET_CHILD_SUBREAPER, 1)


def die_with_parent(number: int) -> None:
    """Have the kernel send a signal to this process when its parent ends."""
    _prctl(_SET_PDEATHSIG, number)


def _prctl(option: int, value: int) -> None:
    # Loading `ctypes` costs 0.7 MB and two milliseconds; its C part alone costs a fifth.
    import _ctypes

    # None means the running program, as NULL does in C; the type stub does not know that.
    function = _ctypes.dlsym(_ctypes.dlopen(None, 0), "prctl")  # type: ignore[arg-type]
    if _ctypes.call_function(function, (option, value, 0, 0, 0)) != 0:
        raise OSError(f"prctl({option}, {value}) failed")
