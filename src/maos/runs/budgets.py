"""What a run or a task may take: money, tokens and time. Agents are warned before a limit, and stopped at one."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from maos.model.run import Run

WARN_AT = 0.8
SENDER = "maos"
"""Whom warnings are from."""
LEFT_USD_MIN = 0.01
"""A budget that is used up is not the same as none, which is what 0 means to agents."""

WARNING = (
    "{percent} % of the budget of {whose} is used ({limits}). Finish now: complete what you have started, "
    "leave the files in good order, and report what is done and what is left."
)


class Budget(NamedTuple):
    """The limits of a run or a task; 0 where there is none."""

    cost_usd: float = 0.0
    tokens: int = 0
    time_s: float = 0.0
    """For a run: from when it was begun or resumed; for a task: for each attempt."""

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Budget:
        """The limits that a run was given."""
        budget = options.get("budget") or {}
        return cls(float(budget.get("cost_usd", 0)), int(budget.get("tokens", 0)), float(budget.get("time_s", 0)))

    def used(self, cost_usd: float, tokens: int) -> float:
        """How much of the tighter of money and tokens is used up; 1 is all of it."""
        return max(
            cost_usd / self.cost_usd if self.cost_usd else 0.0,
            tokens / self.tokens if self.tokens else 0.0,
        )

    def exceeded(self, cost_usd: float, tokens: int) -> str:
        """Which limit was reached; nothing when none was."""
        if self.cost_usd and cost_usd >= self.cost_usd:
            return f"the budget of ${self.cost_usd:.2f} is used up"
        if self.tokens and tokens >= self.tokens:
            return f"the budget of {self.tokens} tokens is used up"
        return ""

    def time_is_up(self) -> str:
        """The reason when the time limit is reached."""
        return f"the time limit of {self.time_s:g} s is reached"

    def left_usd(self, spent_usd: float) -> float:
        """The money that is left; 0 when there is no limit."""
        return max(LEFT_USD_MIN, self.cost_usd - spent_usd) if self.cost_usd else 0.0

    def warning(self, whose: str) -> str:
        """The warning to agents before a limit."""
        parts = [f"${self.cost_usd:.2f}"] if self.cost_usd else []
        parts += [f"{self.tokens} tokens"] if self.tokens else []
        parts += [f"{self.time_s:g} s"] if self.time_s else []
        return WARNING.format(percent=int(WARN_AT * 100), whose=whose, limits=", ".join(parts))


def is_at_limit(run: Run) -> bool:
    """Whether a run is paused because it has reached a limit of its budget."""
    budget = Budget.of(run.options)
    return run.status == "paused" and run.why in (budget.exceeded(run.cost_usd, run.tokens), budget.time_is_up())


class Meter:
    """How much of a budget is used up, while it is being used."""

    def __init__(self, budget: Budget, whose: str) -> None:
        self.budget = budget
        self.warning = budget.warning(whose)
        """The warning when most of it is used."""
        self._began_s = time.monotonic()
        self._nearly = asyncio.Event()
        self.spent = asyncio.Event()
        """Set when all the money or all the tokens are used up; the holder watches the time limit."""

    def note(self, cost_usd: float, tokens: int) -> None:
        """What was taken by now."""
        used = self.budget.used(cost_usd, tokens)
        if used >= WARN_AT:
            self._nearly.set()
        if used >= 1:
            self.spent.set()

    async def until_nearly_used_up(self) -> None:
        """Until most of it is, be it money, tokens or time."""
        left_s = None
        if self.budget.time_s:
            left_s = max(0.0, WARN_AT * self.budget.time_s - (time.monotonic() - self._began_s))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._nearly.wait(), left_s)
