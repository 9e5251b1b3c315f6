"""The plan file that a run was made from, as the run keeps it among its options."""

from __future__ import annotations

from typing import Any

import msgspec

from maos.model.run import Run

OPTION = "workflow"
"""Where a run keeps what it was made from."""


class Origin(msgspec.Struct, frozen=True):
    """The file that a run was made from, as it was."""

    file: str
    digest: str
    name: str = ""
    variables: dict[str, Any] = {}
    steps: list[str] = []
    """Its steps; other tasks of the run came later, from agents or people."""

    def option(self) -> dict[str, Any]:
        """As a run keeps it."""
        return {OPTION: msgspec.to_builtins(self)}


def origin(run: Run) -> Origin | None:
    """The file that a run was made from; None when it was made from none, or comes from another machine."""
    try:
        return msgspec.convert(run.options.get(OPTION), Origin)
    except msgspec.ValidationError:
        return None
