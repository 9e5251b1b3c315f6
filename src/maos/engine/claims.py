"""The right to act for an agent or a run: a lease, without waiting for an owner that is provably gone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from maos.clock import MICROSECONDS, Clock
from maos.engine import ownership
from maos.engine.ownership import Liveness
from maos.engine.recorder import LEASE_S, Fold, Recorder
from maos.engine.types import RUN
from maos.errors import Conflict
from maos.journal.journal import Journal
from maos.model.run import PAUSED, Run, stream
from maos.store.contract import Lease

CLAIM_S = 10.0
CLAIM_POLL_S = 0.1


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

    `look` is asked for what was not there yet: whoever has the lease may be about to begin it.

    A process that died between claiming and recording that it did is known to nobody, and one that had its lease again
    after it ran out has a token that nobody knows; such leases run out.
    """
    if fold is not None and ownership.liveness(fold.owner) is Liveness.GONE:
        await journal.release(ownership.lease_of(fold.owner))
    until_us = clock.steady_us() + int(LEASE_S * 1.2 * MICROSECONDS)
    while True:
        lease = await journal.acquire(name, ttl_s=CLAIM_S)
        if lease is not None:
            return lease
        if fold is None and look is not None:
            fold = await look()
        is_owned = fold is not None and is_open and ownership.liveness(fold.owner) is not Liveness.GONE
        if is_owned or clock.steady_us() > until_us:
            who = f"process {fold.owner['pid']} on {fold.owner['host']}" if fold else "another process"
            raise Held(name, who, hint)
        await asyncio.sleep(CLAIM_POLL_S)


@asynccontextmanager
async def held(journal: Journal, clock: Clock, run: Run) -> AsyncIterator[Recorder[Run]]:
    """A run under our own lease until the end of the block; Held while an engine executes it."""
    hint = f"pause it first, with `maos orchestration pause {run.id}`"
    is_open = bool(run.version) and run.is_open and run.status != PAUSED
    known = run if run.version else None
    lease = await claim(journal, clock, stream(run.id), known, is_open=is_open, hint=hint)
    newest = await RUN.load(journal, run.id) or run
    recorder = Recorder(journal, RUN, newest, lease, lease_s=CLAIM_S)  # no record would show that we have exited
    keeping = asyncio.create_task(recorder.keep_lease())
    try:
        yield recorder
    finally:
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)
        await journal.release(recorder.lease)
