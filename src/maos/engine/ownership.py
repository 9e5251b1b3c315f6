"""Which process owns a run or an attempt, recorded so that another process on the same machine can see that it has
exited, and how a process claims one.

A lease alone would make every engine wait until it runs out. A process that can prove that the owner has exited
releases the lease in its place; one that cannot waits (I26: a host name or a process id alone proves nothing).
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from maos.clock import MICROSECONDS, Clock
from maos.errors import Conflict
from maos.holder import identity as held
from maos.holder import process_tree
from maos.journal.journal import Journal
from maos.model.attempt import Attempt
from maos.model.events.parts import Owner
from maos.settings import LEASE_S
from maos.store.contract import Lease

if TYPE_CHECKING:
    from maos.engine.recorder import Fold

CLAIM_S = 10.0
CLAIM_POLL_S = 0.1


class Liveness(StrEnum):
    """Whether the process that owns a run or an attempt is alive, as far as this machine can tell."""

    ALIVE = "alive"
    """It runs on this machine."""
    GONE = "gone"
    """It has provably ended on this machine: another process may give its lease back at once."""
    DETACHED = "detached"
    """It has exited, and the agent it started is alive, held by a process of its own."""
    RESTARTED = "restarted"
    """The machine was restarted since, so it has ended; its lease runs out by itself."""
    ELSEWHERE = "elsewhere"
    """It is on another machine, or among processes that cannot be seen from here: unknown."""

    @property
    def has_ended(self) -> bool:
        """Whether nothing of the owner is left on this machine."""
        return self in (Liveness.GONE, Liveness.RESTARTED)

    @property
    def is_here(self) -> bool:
        """Whether it runs, or ran, on this machine since the machine was started."""
        return self in (Liveness.ALIVE, Liveness.GONE, Liveness.DETACHED)


def identity(lease: Lease) -> Owner:
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


def liveness(owner: Owner) -> Liveness:
    """Whether the process of an owner is alive, as far as this machine can tell."""
    machine = _machine()
    if machine and owner.get("machine") == machine:
        try:
            return Liveness.ALIVE if _start_ticks(int(owner["pid"])) == int(owner["since"]) else Liveness.GONE
        except (KeyError, TypeError, ValueError):
            return Liveness.ALIVE
    then, now = str(owner.get("machine", "")).partition(":")[0], machine.partition(":")[0]
    is_restarted = bool(then and now) and then != now and owner.get("host") == socket.gethostname()
    return Liveness.RESTARTED if is_restarted else Liveness.ELSEWHERE


def agent_liveness(attempt: Attempt) -> Liveness:
    """Whether the engine of an attempt is alive; DETACHED when only the agent is."""
    found = liveness(attempt.owner)
    return Liveness.DETACHED if found is Liveness.GONE and is_held(attempt) else found


def is_held(attempt: Attempt) -> bool:
    """Whether the process that holds an agent is alive on this machine, whether its engine is or not."""
    if not attempt.folder or not liveness(attempt.owner).is_here:
        return False
    try:
        holder = held.read(Path(attempt.folder))
    except (OSError, ValueError):  # the event names a folder that is none of a holder
        return False
    return holder is not None and holder.process() is not None


def lease_of(owner: Owner) -> Lease:
    """The lease an owner had, to give it back in its place."""
    return Lease(str(owner["lease"]), str(owner["name"]), int(owner["token"]), 0)


def _machine() -> str:
    """This start of this kernel and this set of process ids: within it a pid and its start time name one process."""
    try:
        return f"{process_tree.boot_id()}:{os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def _start_ticks(pid: int) -> int:
    """When a process began, in ticks since the kernel did; 0 when there is none."""
    seen = process_tree.living(pid)
    return 0 if seen is None else seen.start_ticks


class Held(Conflict):
    """Another engine acts for it."""

    def __init__(self, name: str, who: str, hint: str) -> None:
        super().__init__(name, what=f"{name} is run by {who}", hint=hint)


async def claim(
    journal: Journal,
    clock: Clock,
    name: str,
    fold: Fold | None,
    *,
    is_open: bool,
    hint: str,
    look: Callable[[], Awaitable[Fold | None]] | None = None,
) -> Lease:
    """A lease on a name whose owner, as far as is recorded, is that of the fold. Held while the owner lives.

    `look` reads the fold again when no owner is recorded, or one that has exited: the process that has the lease may
    be about to record that it does.

    A process that died between claiming and recording that it did cannot be identified, nor can one that acquired its
    lease again after it ran out; such leases run out. An agent cannot claim anything: it is not an engine.
    """
    journal.principal.check_may_decide(f"start, resume or change {name}")
    if fold is not None and liveness(fold.owner) is Liveness.GONE:
        await journal.release(lease_of(fold.owner))
    until_us = clock.steady_us() + int(LEASE_S * 1.2 * MICROSECONDS)
    while True:
        lease = await journal.acquire(name, ttl_s=CLAIM_S)
        if lease is not None:
            return lease
        if look is not None and (fold is None or not fold.owner or liveness(fold.owner) is Liveness.GONE):
            fold = await look()
        owner = fold.owner if fold is not None else {}
        is_owned = bool(owner) and is_open and liveness(owner) is not Liveness.GONE
        if is_owned or clock.steady_us() > until_us:
            who = f"process {owner['pid']} on {owner['host']}" if owner else "another process"
            raise Held(name, who, hint)
        await asyncio.sleep(CLAIM_POLL_S)
