"""Runs that nobody carries out, though there is something left to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from maos.cli.agent import standing
from maos.cli.failures import note
from maos.clock import MICROSECONDS, SystemClock

if TYPE_CHECKING:
    from maos.app import Maos
    from maos.model.run import Run
    from maos.settings.current import Current

SHOWN_MAX = 3
DAY_US = 86_400 * MICROSECONDS


def is_interrupted(run: Run) -> bool:
    """Whether the process that carried a run out is gone, and nobody paused or ended the run."""
    return run.status in ("planning", "running") and standing.is_unattended(run.owner)


def is_carried_out(run: Run) -> bool:
    """Whether a process that lives, as far as anybody here can tell, carries it out."""
    return run.status in ("planning", "running") and not standing.is_unattended(run.owner)


def since_us(settings: Current) -> int:
    """Runs that nothing has happened to since then are not named (R-1009)."""
    days = settings.values.recovery.lookback_days
    return SystemClock().now_us() - int(days * DAY_US) if days else 0


async def tell(m: Maos, *, but: str = "") -> None:
    """Name the interrupted runs, and how to go on with them."""
    from maos.engine import orchestration

    since = since_us(m.settings)
    unfinished = [run for run in await orchestration.unfinished(m.runs) if run.updated_us >= since]
    found = [run for run in unfinished if is_interrupted(run) and run.id != but]
    for run in found[:SHOWN_MAX]:
        note(f"{run.id} was interrupted, {run.done} of {len(run.tasks)} tasks done: `maos resume {run.id}` goes on")
    if len(found) > SHOWN_MAX:
        note(f"so were {len(found) - SHOWN_MAX} more: `maos orchestration list` shows them")
