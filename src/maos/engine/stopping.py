"""Having agents end, whichever process runs them, or none."""

from __future__ import annotations

import asyncio

from maos.engine.attempts import Attempts
from maos.engine.claims import Held
from maos.engine.ownership import liveness
from maos.errors import LeaseLost
from maos.model.attempt import Attempt, agent_of, stream
from maos.model.events.attempt import AttemptEnded
from maos.model.events.parts import Owner

LOOK_EVERY_S = 1.0


async def end(attempts: Attempts, attempt: Attempt, grace_s: float) -> None:
    """Ask whoever runs an agent to stop it; if that is nobody, be the one. It has ended when this returns."""
    asked: Owner | None = None
    while attempt.is_open:
        if liveness(attempt.owner).has_ended or attempt.owner == asked:
            await _take_up_and_stop(attempts, attempt.agent, grace_s)
        else:
            await attempts.stop(attempt.agent, grace_s=grace_s)
            asked = attempt.owner
        await _wait_for_end(attempts, attempt)
        attempt = await attempts.get(attempt.agent)


async def end_all(attempts: Attempts, run: str, grace_s: float) -> list[str]:
    """Have all agents of a run end, those of its gates too; the names of those that had not."""
    names = {agent_of(name.removeprefix(stream(""))) async for name in attempts.journal.streams(stream(f"{run}."))}
    found = [await attempts.get(name) for name in sorted(names)]
    at_work = [each for each in found if each.is_open]
    await asyncio.gather(*(end(attempts, each, grace_s) for each in at_work))
    return [each.agent for each in at_work]


async def _take_up_and_stop(attempts: Attempts, agent: str, grace_s: float) -> None:
    try:
        running = await attempts.adopt(agent)
        if running is not None:
            await running.stop(grace_s=grace_s)
            await running.wait()
    except (Held, LeaseLost):
        pass  # somebody does run it, and is asked


async def _wait_for_end(attempts: Attempts, attempt: Attempt) -> None:
    """Return when it has ended, or after a while, so that the caller can look who runs it."""

    async def ended() -> None:
        async for record in attempts.journal.follow_stream(stream(attempt.id), after=attempt.version):
            if isinstance(record.event, AttemptEnded):
                return

    try:
        await asyncio.wait_for(ended(), LOOK_EVERY_S)
    except TimeoutError:
        pass
