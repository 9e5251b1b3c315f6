"""How often a workflow is made safe (R-1002): every step by default.

With any other policy the outcomes of steps that are idempotent are written in groups; after a crash those of the last
group are called again. A step that is not idempotent is always recorded before it begins and when it has ended.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from maos.clock import MICROSECONDS
from maos.errors import InvalidInput
from maos.settings.schema import CheckpointSettings

WORDS = ("frequency", "every", "interval_s", "enabled")
FREQUENCIES = ("every_step", "every_n_steps", "on_gates", "time_based", "manual")


class CheckpointPolicy:
    """When outcomes are written, and when a checkpoint is made."""

    def __init__(
        self, frequency: str = "every_step", *, every: int = 10, interval_s: float = 30.0, enabled: bool = True
    ) -> None:
        if frequency not in FREQUENCIES:
            raise InvalidInput(f"there is no checkpoint frequency {frequency!r}", hint=f"use {', '.join(FREQUENCIES)}")
        if every < 1 or interval_s <= 0:
            raise InvalidInput("checkpoints need a positive number of steps and a positive interval")
        self.frequency = frequency if enabled else "manual"
        self.every = every
        self.interval_s = interval_s
        self._steps = 0
        self._last_us: int | None = None

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> CheckpointPolicy:
        """As the workflow was started with."""
        given = options.get("checkpoints", {})
        try:
            return cls(**given)
        except TypeError as error:
            raise InvalidInput(f"checkpoints cannot be {given!r}", hint=f"use {', '.join(WORDS)}") from error

    @staticmethod
    def as_set(checkpoint: CheckpointSettings) -> dict[str, Any]:
        """What the settings say, as a workflow keeps it; nothing when they say what counts anyway."""
        found = {"every": checkpoint.steps, "interval_s": checkpoint.interval_s, "frequency": checkpoint.frequency}
        if not checkpoint.enabled:
            found["frequency"] = "manual"
        return {} if found["frequency"] == "every_step" else found

    @property
    def every_step(self) -> bool:
        """Whether an outcome is on disk before anything else begins."""
        return self.frequency == "every_step"

    @property
    def on_gates(self) -> bool:
        """Whether a question to a person is a reason for a checkpoint."""
        return self.frequency == "on_gates"

    def after_step(self, steady_us: int) -> str:
        """Why a checkpoint is due now that a step has ended; empty when none is."""
        self._steps += 1
        if self.frequency == "every_n_steps" and self._steps % self.every == 0:
            return "steps"
        if self.frequency == "time_based":
            if self._last_us is None:
                self._last_us = steady_us
            if steady_us - self._last_us >= self.interval_s * MICROSECONDS:
                self._last_us = steady_us
                return "time"
        return ""
