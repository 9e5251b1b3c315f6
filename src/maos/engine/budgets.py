"""What a whole run may take: money, tokens and time. Its agents are warned before a limit, and it is paused at one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from maos.model.run import Run

WARN_AT = 0.8
SENDER = "maos"
"""Whom warnings are from."""

WARNING = (
    "{percent} % of what this whole run may take is used up ({limits}). Come to an end now: finish what you have "
    "begun, leave the files in good order, and say what is done and what is left."
)


class Budget(NamedTuple):
    """The limits of a run; 0 where there is none."""

    cost_usd: float = 0.0
    tokens: int = 0
    time_s: float = 0.0
    """From when it was begun or resumed."""

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

    def reached(self, run: Run) -> str:
        """Which limit was reached by what is recorded; nothing when none was."""
        if self.cost_usd and run.cost_usd >= self.cost_usd:
            return f"the budget of ${self.cost_usd:.2f} is used up"
        if self.tokens and run.tokens >= self.tokens:
            return f"the budget of {self.tokens} tokens is used up"
        return ""

    def time_is_up(self) -> str:
        """What is said when the time is over."""
        return f"the time of {self.time_s:g} s is over"

    def left_usd(self, run: Run) -> float:
        """The money that is left; 0 when there is no limit."""
        return max(0.01, self.cost_usd - run.cost_usd) if self.cost_usd else 0.0

    def warning(self) -> str:
        """What the agents are told before a limit."""
        parts = [f"${self.cost_usd:.2f}"] if self.cost_usd else []
        parts += [f"{self.tokens} tokens"] if self.tokens else []
        parts += [f"{self.time_s:g} s"] if self.time_s else []
        return WARNING.format(percent=int(WARN_AT * 100), limits=", ".join(parts))
