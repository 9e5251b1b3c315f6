"""What a run or a task may take: money, tokens and time. Agents are warned before a limit, and stopped at one.

What agents at work have taken counts as their messages arrive. The money that a run has left is divided among them:
each is started with a share as its own limit, and the shares together are never more than what is left. So the limit
holds also while no engine is there to see it.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from typing import Any

from maos.clock import MICROSECONDS
from maos.model.attempt import Attempt
from maos.model.events.parts import Spent
from maos.model.prices import settings_for
from maos.model.run import Run
from maos.model.status import RunStatus
from maos.tuples import NamedTuple

WARN_AT = 0.8
SENDER = "maos"
"""Whom warnings are from."""
SHARE_MIN = 0.01
"""The smallest part of a money limit that an agent is started with; when less is left, the limit is reached."""

WARNING = (
    "{percent} % of the budget of {whose} is used ({limits}). Finish now: complete what you have started, "
    "leave the files in good order, and report what is done and what is left."
)


class Reached(NamedTuple):
    """A limit that is reached."""

    limit: str = ""
    """Its name: `cost_usd`, `tokens` or `time_s`; empty when none is reached."""
    why: str = ""
    """What is said of it."""

    def __bool__(self) -> bool:
        return bool(self.limit)


NOTHING_REACHED = Reached()


class Allowance(NamedTuple):
    """What something may still take; None where there is no limit."""

    usd: float | None = None
    tokens: int | None = None
    time_s: float | None = None


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

    @property
    def share_min(self) -> float:
        """The least money that an agent is started with."""
        return SHARE_MIN * self.cost_usd

    def used(self, cost_usd: float, tokens: int) -> float:
        """How much of the tighter of money and tokens is used up; 1 is all of it."""
        return max(
            cost_usd / self.cost_usd if self.cost_usd else 0.0,
            tokens / self.tokens if self.tokens else 0.0,
        )

    def exceeded(self, cost_usd: float, tokens: int) -> str:
        """Why no more may be taken, when a limit is reached; else nothing."""
        return self.reached(cost_usd, tokens).why

    def reached(self, cost_usd: float, tokens: int) -> Reached:
        """The limit of money or tokens that is reached."""
        if self.cost_usd and self.cost_usd - cost_usd < self.share_min:
            return Reached("cost_usd", f"the budget of ${self.cost_usd:.2f} is used up: ${cost_usd:.2f} spent")
        if self.tokens and tokens >= self.tokens:
            return Reached("tokens", f"the budget of {self.tokens} tokens is used up: {tokens} spent")
        return NOTHING_REACHED

    def time_is_up(self) -> Reached:
        """The limit of time, which is reached."""
        return Reached("time_s", f"the time limit of {self.time_s:g} s is reached")

    def left_usd(self, spent_usd: float) -> float:
        """The money that is left; 0 when there is no limit."""
        return max(self.share_min, self.cost_usd - spent_usd) if self.cost_usd else 0.0

    def warning(self, whose: str) -> str:
        """The warning to agents before a limit."""
        parts = [f"${self.cost_usd:.2f}"] if self.cost_usd else []
        parts += [f"{self.tokens} tokens"] if self.tokens else []
        parts += [f"{self.time_s:g} s"] if self.time_s else []
        return WARNING.format(percent=int(WARN_AT * 100), whose=whose, limits=", ".join(parts))


def is_at_limit(run: Run) -> bool:
    """Whether a run is paused because it has reached a limit of its budget."""
    return run.status == RunStatus.PAUSED and bool(run.limit)


def resume_command(run: Run) -> str:
    """The command that resumes a run; of one that has used up its budget, with a larger one, without which it would be
    paused again at once."""
    command = f"maos resume {run.id}"
    budget = Budget.of(run.options)
    if not is_at_limit(run) or not budget.exceeded(run.spent.cost_usd, run.spent.tokens):
        return command
    if run.limit == "tokens":
        return f"{command} --tokens {int(_twice(max(budget.tokens, run.spent.tokens)))}"
    return f"{command} --budget {_twice(max(budget.cost_usd, run.spent.cost_usd)):g}"


def _twice(figure: float) -> float:
    """Twice a figure, in two digits."""
    return float(f"{2 * figure:.2g}")


def left_of(run: Run, spent: Spent, now_us: int) -> Allowance:
    """What a run may still take. Its time counts from its start or its last resume, while it is executed."""
    budget = Budget.of(run.options)
    until_us = now_us if run.is_going else run.ended_us or run.updated_us
    used_s = max(0, until_us - (run.restored_us or run.created_us)) / MICROSECONDS
    return _left(budget, spent, used_s)


def left_of_attempt(attempt: Attempt, now_us: int) -> Allowance:
    """What an agent at work may still take: of its own budget or its share of the run's, and of its time limit."""
    order = attempt.order
    limits = Budget(float(order.get("budget_usd", 0)), 0, float(order.get("time_limit_s", 0)))
    return _left(limits, attempt.spent, attempt.worked_us(now_us) / MICROSECONDS)


def _left(budget: Budget, spent: Spent, used_s: float) -> Allowance:
    return Allowance(
        usd=max(0.0, budget.cost_usd - spent.cost_usd) if budget.cost_usd else None,
        tokens=max(0, budget.tokens - spent.tokens) if budget.tokens else None,
        time_s=max(0.0, budget.time_s - used_s) if budget.time_s else None,
    )


class Meter:
    """How much of a budget is used up, while it is being used."""

    def __init__(self, budget: Budget, whose: str, *, waited_s: Callable[[], float] = lambda: 0.0) -> None:
        """`waited_s` returns how much of the time since it began was spent waiting, which does not count."""
        self.budget = budget
        self._whose = whose
        self._waited_s = waited_s
        self._began_s = time.monotonic()
        self._changed = asyncio.Event()
        """Set when most of it is used up, and when the budget has changed."""
        self._is_nearly_spent = False
        self.spent = asyncio.Event()
        """Set while all the money or all the tokens are used up; the holder watches the time limit."""

    @property
    def warning(self) -> str:
        """The warning when most of it is used."""
        return self.budget.warning(self._whose)

    def set_budget(self, budget: Budget) -> None:
        """Measure with other limits from now on; `note` then says what was taken of them."""
        self.budget = budget
        self._is_nearly_spent = False
        self.spent.clear()
        self._changed.set()

    def note(self, cost_usd: float, tokens: int) -> None:
        """What was taken by now."""
        if self.budget.used(cost_usd, tokens) >= WARN_AT and not self._is_nearly_spent:
            self._is_nearly_spent = True
            self._changed.set()
        if self.budget.exceeded(cost_usd, tokens):
            self.spent.set()

    async def until_nearly_used_up(self) -> None:
        """Until most of it is, be it money, tokens or time."""
        while not self._is_nearly_spent:
            self._changed.clear()
            left_s = None
            if self.budget.time_s:
                used_s = time.monotonic() - self._began_s - self._waited_s()
                left_s = WARN_AT * self.budget.time_s - used_s
                if left_s <= 0:
                    return
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), left_s)

    async def until_changed(self, budget: Budget) -> None:
        """Until it has another budget than this one."""
        while self.budget == budget:
            self._changed.clear()
            await self._changed.wait()


class Purse:
    """What a whole run has taken and has left, while agents work for it."""

    def __init__(self, run: Run, tell: Callable[[], None] = lambda: None) -> None:
        self._run = run
        self._tell = tell
        self.budget = Budget.of(run.options)
        self.meter = Meter(self.budget, "this whole run")
        self._beginning: set[str] = set()
        """Tasks whose agents are about to get a share."""
        self._shares: dict[str, float] = {}
        """Shares of agents that have not started yet."""
        self._attempts: dict[str, Attempt] = {}
        """The attempt that each task is at, until its outcome is in the fold of the run."""
        self._unpriced = ""
        """A model without a price that an agent uses."""

    def set_budget(self, budget: Budget) -> None:
        """Keep other limits from now on; agents at work keep the shares that they were started with."""
        self.budget = budget
        self.meter.set_budget(budget)
        used = self.used
        self.meter.note(used.cost_usd, used.tokens)
        self._tell()

    @property
    def used(self) -> Spent:
        """What was taken by now, agents at work included."""
        sum_ = self._run.spent
        for each in self._attempts.values():
            sum_ = sum_.plus(each.spent)
        return sum_

    @property
    def reached(self) -> Reached:
        """The limit of money or tokens that is reached."""
        if not any(self.budget):
            return NOTHING_REACHED
        if self.budget.cost_usd and self._unpriced:
            why = f"{self._unpriced} has no price, so the budget cannot be kept: set {settings_for(self._unpriced)}"
            return Reached("cost_usd", why)
        used = self.used
        return self.budget.reached(used.cost_usd, used.tokens)

    @property
    def free_usd(self) -> float:
        """The money that no agent at work may take."""
        taken = sum(self._shares.values())
        for each in self._attempts.values():
            share = float(each.order.get("budget_usd", 0)) if each.is_open else 0.0
            taken += max(share, each.cost_usd)
        return self.budget.cost_usd - self._run.spent.cost_usd - taken

    @property
    def affords_another(self) -> bool:
        """Whether the money is enough to start another agent, beside those that begin."""
        return self.free_usd >= self.budget.share_min * (len(self._beginning) + 1)

    def begin(self, task: str) -> None:
        """An agent of a task is about to be started or resumed, unless it is found at work. All that begin together
        are named before the first of them gets its share."""
        self._beginning.add(task)

    def share(self, task: str) -> float:
        """What the agent of a task may cost; 0 when there is no limit."""
        share = self.free_usd / len({*self._beginning, task})
        self._beginning.discard(task)
        if not self.budget.cost_usd:
            return 0.0
        self._shares[task] = max(self.budget.share_min, share)
        return self._shares[task]

    def note(self, task: str, attempt: Attempt) -> None:
        """What the agent of a task has taken by now."""
        self._beginning.discard(task)
        self._shares.pop(task, None)
        self._attempts[task] = attempt
        self._unpriced = self._unpriced or (attempt.unpriced_model if attempt.unpriced_tokens else "")
        used = self.used
        self.meter.note(used.cost_usd, used.tokens)
        if self.reached:
            self.meter.spent.set()
            self._tell()

    def conclude(self, task: str) -> None:
        """What the agent of a task took is in the fold of the run now, or it took nothing."""
        self._beginning.discard(task)
        self._shares.pop(task, None)
        self._attempts.pop(task, None)
