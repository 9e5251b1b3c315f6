"""What can go wrong with a workflow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from maos.errors import MaosError


class StepFailed(MaosError):
    """A step, a child or an agent that a workflow called has failed for good; the workflow may catch it."""

    def __init__(self, name: str, error: Mapping[str, Any]) -> None:
        self.name = name
        self.type = str(error.get("type", ""))
        """The name of what was raised, as recorded: after a crash nothing else is left of it."""
        self.message = str(error.get("message", ""))
        super().__init__(f"{name} failed: {self.type}: {self.message}" if self.type else f"{name}: {self.message}")


class WorkflowFailed(MaosError):
    """A workflow has ended without a result."""


class WorkflowChanged(MaosError):
    """The definition makes other calls than it made when it was run before."""


class NotWaiting(MaosError):
    """Something was sent to a workflow that has ended."""
