"""Waiting for a moment of the clock, which somebody may put right meanwhile."""

from __future__ import annotations

import asyncio

from maos.clock import MICROSECONDS, Clock

NAP_S_MAX = 5.0
"""How long a sleeper sleeps before it looks at the clock again."""


async def until(clock: Clock, moment_us: int) -> None:
    """Wait until the clock says so."""
    while (left_us := moment_us - clock.now_us()) > 0:  # noqa: ASYNC110 - the clock rings for nobody
        await asyncio.sleep(min(left_us / MICROSECONDS, NAP_S_MAX))
