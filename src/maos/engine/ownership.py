"""Which process owns an attempt, told so that another process on the same machine can see that it is gone.

A lease alone would make everybody wait until it runs out. Whoever can prove that the owner's process has ended may
give the lease back in its place; whoever cannot, waits (I26: a host name or a process id alone proves nothing).
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from maos.holder import identity as held
from maos.model.attempt import Attempt
from maos.store.contract import Lease


def identity(lease: Lease) -> dict[str, Any]:
    """This process as the owner of a lease, in plain data."""
    pid = os.getpid()
    return {
        "name": lease.owner,
        "lease": lease.name,
        "token": lease.token,
        "host": socket.gethostname(),
        "machine": _machine(),
        "pid": pid,
        "since": _start_ticks(pid),
    }


def is_gone(owner: Mapping[str, Any]) -> bool:
    """Whether the owner's process has provably ended; False when it lives or nobody here can tell."""
    machine = _machine()
    if not machine or owner.get("machine") != machine:
        return False
    try:
        return _start_ticks(int(owner["pid"])) != int(owner["since"])
    except (KeyError, TypeError, ValueError):
        return False


def is_unattended(owner: Mapping[str, Any]) -> bool:
    """Whether nothing of the owner is left on this machine: its process has ended, or the machine was restarted."""
    then, now = str(owner.get("machine", "")).partition(":")[0], _machine().partition(":")[0]
    restarted = bool(then and now) and then != now and owner.get("host") == socket.gethostname()
    return restarted or is_gone(owner)


def is_here(owner: Mapping[str, Any]) -> bool:
    """Whether the owner runs, or ran, on this machine since it was started."""
    return bool(_machine()) and owner.get("machine") == _machine()


def is_at_work(attempt: Attempt) -> bool:
    """Whether somebody may still be at work on an attempt: its engine, or the holder that outlives it."""
    return attempt.is_open and (not is_unattended(attempt.owner) or holder_lives(attempt))


def holder_lives(attempt: Attempt) -> bool:
    """Whether the agent's own process is still held, and can be taken up."""
    if not attempt.folder or not is_here(attempt.owner):
        return False
    holder = held.read(Path(attempt.folder))
    return holder is not None and holder.process() is not None


def lease_of(owner: Mapping[str, Any]) -> Lease:
    """The lease an owner had, to give it back in its place."""
    return Lease(str(owner["lease"]), str(owner["name"]), int(owner["token"]), 0)


def _machine() -> str:
    """This start of this kernel and this set of process ids: within it a pid and its start time name one process."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot}:{os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def _start_ticks(pid: int) -> int:
    """When a process began, in ticks since the kernel did; 0 when there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return 0
    fields = stat.rpartition(b")")[2].split()
    return 0 if fields[0] in (b"Z", b"X") else int(fields[19])
